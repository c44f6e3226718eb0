"""Autograd's hooks on saved tensors, while fakes are run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_hooks_on_saved_tensors() -> Iterator[None]:
    """Hooks that the caller set (checkpointing does) are for its own tensors, not for the fakes of a graph under construction."""
    taken = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
        taken.append(hooks)
    try:
        yield
    finally:
        for hooks in reversed(taken):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)
