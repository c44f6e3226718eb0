"""Loop IR to Triton kernels."""

from .__about__ import __version__ as __version__
