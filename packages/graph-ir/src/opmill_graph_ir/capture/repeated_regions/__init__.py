"""Regions of a torch-level graph that repeat (the layers of a model) run a few times; the others are written down after them."""
