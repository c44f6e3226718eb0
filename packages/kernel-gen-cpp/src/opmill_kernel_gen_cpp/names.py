"""Kinds of artifacts in the store."""

ARTIFACT = "cpu-so"
"""Shared objects of kernels."""
INDEX = "cpu-kernel"
"""The notes that say which shared object a kernel is in."""
