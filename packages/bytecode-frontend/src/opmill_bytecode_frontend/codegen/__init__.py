"""From tracked values back to Python: text of the function that loads inputs, runs the graph, replays effects, rebuilds results."""
