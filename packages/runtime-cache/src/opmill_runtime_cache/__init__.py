"""The Plan format, its native executor, and the artifact store of opmill."""

from .__about__ import __version__ as __version__
from .interpreter import refuse_free_threading

refuse_free_threading()
