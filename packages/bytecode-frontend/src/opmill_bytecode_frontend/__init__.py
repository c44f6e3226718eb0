"""Symbolic interpretation of Python bytecode into FX graphs."""

from .__about__ import __version__ as __version__
