"""Version counters of what a graph writes to: backends count one write, eager each of them, and none of those through ``data``."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ..values.tensor import TensorValue


def written(fake: torch.Tensor) -> int:
    """How often a tensor was written to; those of inference mode do not count."""
    return 1 if fake.is_inference() else fake._version


def memory(fake: torch.Tensor) -> int:
    """Tells memory from other memory. Fakes of one memory have meta tensors that share storage."""
    try:
        return int(getattr(fake, "meta", fake).untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # a class that has none
        return id(fake)


class Writes:
    """How many steps of a graph wrote to a memory, also through what counts its writes apart."""

    def __init__(self) -> None:
        self._steps: collections.Counter[int] = collections.Counter()

    def note(self, fake: torch.Tensor) -> None:
        self._steps[memory(fake)] += 1

    def to(self, fake: torch.Tensor) -> int:
        return self._steps[memory(fake)]


def uncounted(value: TensorValue) -> bool:
    """Whether an input of the graph is only written to through its ``data``."""
    users = value.node.users if value.node is not None else ()
    return written(value.fake) == 0 and any(user.target is getattr and user.args[1] == "data" for user in users)


def kept(*tensors: torch.Tensor) -> AbstractContextManager[object]:
    """Their counters are afterwards what they were."""
    return torch.autograd._unsafe_preserve_version_counter(tuple(t for t in tensors if not t.is_inference()))


def count(pairs: Iterable[tuple[torch.Tensor, int]], before: Sequence[int]) -> None:
    """Makes up for what the graph did not count. ``before``: what the counters said."""
    for (tensor, times), then in zip(pairs, before, strict=True):
        for _ in range(then + times - tensor._version):
            torch.autograd.graph.increment_version(tensor)


def versions(*tensors: torch.Tensor) -> list[int]:
    """Version counters of tensors; those of inference mode have none, and give a number that no other has."""
    return [t._version if not t.is_inference() else 1 << 62 for t in tensors]


__all__ = ["Writes", "count", "kept", "memory", "uncounted", "versions", "written"]
