"""Nests that are matrix products: recognised by their form, written with tensor cores."""
