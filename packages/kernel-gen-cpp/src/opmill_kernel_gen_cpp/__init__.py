"""Loop IR to vectorised C++ kernels."""

from .__about__ import __version__ as __version__
