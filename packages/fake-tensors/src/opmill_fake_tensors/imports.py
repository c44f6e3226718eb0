"""Imports while something is compiled: what is imported, and what is left of an import that failed."""

from __future__ import annotations

import sys

PACKAGES = ("opmill", "torch", "sympy", "mpmath", "triton", "numpy", "msgspec", "filelock", "platformdirs", "rich")
"""Beginnings of the names of what is imported while something is compiled."""


def forget_orphans() -> list[str]:
    """Forgets the modules of packages that are gone, and gives their names.

    Python takes a package whose import failed (there was no memory) out of ``sys.modules``, and leaves the modules in it that were done.
    Imported again, the package lacks them as attributes (``sympy.core``), for ever: a module is put into its package when it is loaded."""
    gone: list[str] = []
    for name in sorted(sys.modules):  # a package comes before what is in it
        if name.startswith(PACKAGES) and (package := name.rpartition(".")[0]) and package not in sys.modules:
            del sys.modules[name]
            gone.append(name)
    return gone


class Imports:
    """Whether something failed on its way, and may have left half a package."""

    suspect = False

    def mend(self) -> None:
        """Before something is compiled: makes good what failed before."""
        if self.suspect:
            forget_orphans()
            self.suspect = False


imports = Imports()

__all__ = ["PACKAGES", "forget_orphans", "imports"]
