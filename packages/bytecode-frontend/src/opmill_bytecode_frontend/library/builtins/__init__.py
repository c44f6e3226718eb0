"""Builtin functions, classes and iterators."""
