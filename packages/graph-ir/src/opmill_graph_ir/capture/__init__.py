"""Torch-level FX graph to a functional graph of aten operators."""
