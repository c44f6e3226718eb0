"""NumPy: its calls, and the programs of torch that stand for them."""
