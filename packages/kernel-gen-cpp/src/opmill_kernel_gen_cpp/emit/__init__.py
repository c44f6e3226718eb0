"""From loop IR's values to C++ text."""
