"""``opmill.report``: the page of a trace, as a file."""

from __future__ import annotations

import os
from pathlib import Path


def report(folder: str | os.PathLike[str], target: str | os.PathLike[str] | None = None) -> Path:
    """Makes one HTML page of the trace in ``folder``, which programs write while ``OPMILL_TRACE=folder`` is in their environment; all their
    processes are on it. It needs nothing beside it, and no network.

    Args:
        folder: what ``OPMILL_TRACE`` named.
        target: where the page goes; ``report.html`` in the folder otherwise.

    Returns:
        The path of the page.

    Raises:
        ValueError: (OM023) ``folder`` has no trace.
    """
    from .page import page_of  # not above: nobody who compiles needs it
    from .reading import read

    path = Path(folder) / "report.html" if target is None else Path(target)
    path.write_text(page_of(read(Path(folder))))
    return path


__all__ = ["report"]
