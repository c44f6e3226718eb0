"""Lowering of aten operators to loops over named buffers, one family of operators a file."""
