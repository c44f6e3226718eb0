"""Where a value came from, what was assumed of it, and a native tree that checks it."""

from .__about__ import __version__ as __version__
