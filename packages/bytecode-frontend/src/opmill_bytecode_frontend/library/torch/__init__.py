"""torch: what of its functions, classes and marks needs more than recording an operator."""
