"""Where inputs begin in their memory: assumed where a program asks, for views of one size come from all places of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opmill_guards.guard import Predicate

from .versions import memory

if TYPE_CHECKING:
    from ..values.base import Machine
    from ..values.tensor import TensorValue


class BeginsAt:
    """Whether a tensor begins so many elements behind the beginning of its storage."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.storage_offset() == self.offset


def assume_beginnings(vm: Machine, asked: TensorValue) -> None:
    """Of the inputs whose memory the asked one shares."""
    wanted = memory(asked.fake)
    for value in list(vm.recorder.by_fake.values()):
        if value.source is not None and value.obj is not None and memory(value.fake) == wanted:
            offset = value.obj.storage_offset()
            vm.guard(Predicate(value.source, BeginsAt(offset), f"storage_offset() == {offset}"))


__all__ = ["assume_beginnings"]
