"""Graphs whose weights stay: what is made of weights alone is made once.

``rewrite.py`` is the driver; ``batch_norm.py`` and ``packing.py`` change the graph so that more depends on weights alone, ``split.py``
takes that apart, and ``copies.py`` makes it for each set of weights that comes, and keeps it for as long as these stay as they are.
"""
