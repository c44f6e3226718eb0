"""Nests that are sums of products over windows (convolutions): recognised by their form, written as blocked matrix products."""
