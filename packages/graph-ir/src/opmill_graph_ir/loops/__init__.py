"""Loop IR: loops over buffers as immutable data."""
