"""Autograd's hooks on saved tensors, while fakes are run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def no_hooks_on_saved_tensors() -> Iterator[None]:
    """Hooks that the caller set (checkpointing does) are for its own tensors, not for the fakes of a graph under construction."""
    taken: list[tuple[Any, Any]] = []
    try:  # which a handler of a signal may leave anywhere
        while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
            taken.append(hooks)
            torch._C._autograd._pop_saved_tensors_default_hooks()
        yield
    finally:
        if taken and torch._C._autograd._top_saved_tensors_default_hooks(False) == taken[-1]:
            del taken[-1]  # these are still there
        for hooks in reversed(taken):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)
