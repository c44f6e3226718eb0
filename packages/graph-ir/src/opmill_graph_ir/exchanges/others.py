"""What processes that exchange tensors know of each other's compiles, for the one that waits in vain: each writes its latest news into the
store of the default process group, under its rank."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

_KEY = "opmill/news/"


def tell(news: str) -> None:
    """Says what this process does now. Nothing where there are no others; a store that cannot be reached is passed over."""
    found = _store()
    if found is not None:
        store, rank, _ = found
        with contextlib.suppress(RuntimeError):
            store.set(f"{_KEY}{rank}", f"{time.time():.0f} {news}")


def told() -> list[str]:
    """A line for each other process that has said something."""
    found, lines = _store(), []
    if found is not None:
        store, own, size = found
        with contextlib.suppress(RuntimeError):
            for rank in (rank for rank in range(size) if rank != own and store.check([f"{_KEY}{rank}"])):
                since, _, news = store.get(f"{_KEY}{rank}").decode().partition(" ")
                lines.append(f"rank {rank}, {max(0, round(time.time() - float(since)))} s ago: {news}")
    return lines


def _store() -> tuple[Any, int, int] | None:
    """The store, this process's rank, and the number of processes."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized() or (size := c10d.get_world_size()) < 2:
        return None
    return c10d._get_default_store(), c10d.get_rank(), size


__all__ = ["tell", "told"]
