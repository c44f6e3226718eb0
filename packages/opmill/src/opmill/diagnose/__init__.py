"""From a wrong number to the line that made it: side by side checks, bisection, bundles for bug reports, profiles."""
