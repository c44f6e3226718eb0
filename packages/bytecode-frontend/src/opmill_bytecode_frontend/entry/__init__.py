"""From a function to a compiled one: what is kept per function, when and how capture is tried, which sizes vary."""
