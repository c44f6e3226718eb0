from __future__ import annotations
def split_nest(nest, symbols, prefix):
    return [nest], []
