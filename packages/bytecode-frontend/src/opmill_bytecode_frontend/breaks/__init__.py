"""Where a graph ends, and how frames go on natively and after it."""
