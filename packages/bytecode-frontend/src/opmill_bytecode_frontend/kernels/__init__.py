"""Triton kernels of the program's own: what they write, and each as an operator that a graph can hold. Triton itself is never imported."""
