"""opmill.compile(model): a modular compiler for PyTorch programs."""

from .__about__ import __version__ as __version__
