"""Optimizer steps as fused kernels."""
