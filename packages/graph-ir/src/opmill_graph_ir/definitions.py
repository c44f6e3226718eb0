"""Operators that this package defines in torch: a definition that fails half-way leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_kept: list[torch.library.Library] = []
"""What is defined lives as long as its library."""


@contextmanager
def definitions(space: str) -> Iterator[torch.library.Library]:
    """A library for the operators of one ``with`` statement, in torch's namespace ``space``. Where that ends with an exception they are
    taken back: torch refuses to define an operator twice, so half an operator could never become a whole one."""
    library = torch.library.Library(space, "FRAGMENT")
    try:
        yield library
        _kept.append(library)
    except BaseException:
        library._destroy()
        raise


__all__ = ["definitions"]
