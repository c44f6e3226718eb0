"""The symbolic interpreter: frames, instructions, Python's operators, and which tracked value stands for which object."""
