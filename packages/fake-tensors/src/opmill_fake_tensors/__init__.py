"""Light fake tensors: shapes, strides, dtypes and devices without data."""

from .__about__ import __version__ as __version__
