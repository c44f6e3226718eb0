"""The standard library."""
