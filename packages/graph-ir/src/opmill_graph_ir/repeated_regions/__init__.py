"""Blocks that a graph repeats (the layers of a transformer) are lowered and scheduled once."""
