"""Keeping a store below its size: the entries used longest ago go first."""

import os
import time
from pathlib import Path

from .entry import PARTIAL
from .private import SECRET

BUILDING = "build"
"""The folder of what is being made."""
_ABANDONED_S = 24 * 3600.0


def entries_of(root: Path) -> list[tuple[float, int, str]]:
    """(time of last use, bytes, path) of every file of entries; removes what crashed writers and old locks left behind."""
    found: list[tuple[float, int, str]] = []
    now = time.time()
    for folder, below, names in os.walk(root):
        if folder == str(root) and BUILDING in below:
            below.remove(BUILDING)  # cleared by its own rule
        for name in names:
            path = os.path.join(folder, name)
            if folder == str(root) and name == SECRET:
                continue
            try:
                stat = os.stat(path, follow_symlinks=False)
            except OSError:
                continue
            if name.startswith(PARTIAL) or name.endswith(".lock"):
                if now - stat.st_mtime > _ABANDONED_S:
                    _remove(path)
            else:
                found.append((stat.st_mtime, stat.st_size, path))
    return found


def evict(root: Path, max_bytes: int) -> int:
    """Brings the entries under ``root`` to at most ``max_bytes``, to four fifths of it if they were above; returns the bytes left."""
    entries = entries_of(root)
    total = sum(size for _, size, _ in entries)
    if total <= max_bytes:
        return total
    for _, size, path in sorted(entries):
        if total <= max_bytes * 4 // 5:
            break
        if _remove(path):
            total -= size
    return total


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
