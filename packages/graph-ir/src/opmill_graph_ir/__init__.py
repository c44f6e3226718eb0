"""FX graph to functional aten, loop IR, fused schedule and Plan."""

from .__about__ import __version__ as __version__
