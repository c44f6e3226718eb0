"""What is recorded: FX nodes over fakes, symbolic numbers, graphs inside of the graph, switches of torch, collectives."""
