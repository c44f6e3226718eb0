"""From loop IR to Triton text, piece by piece."""
