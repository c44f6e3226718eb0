"""What a program changes of objects from before the call, kept as data until the graph has run."""
