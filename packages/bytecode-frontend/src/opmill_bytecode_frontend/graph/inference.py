"""Tensors that captured code makes in inference mode. Graphs run outside of it: what leaves them is made such a tensor afterwards, and what
eager refuses with one ends the capture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from .versions import memory

if TYPE_CHECKING:
    from ..values.base import Machine


class Inference:
    """What captured code made of inference mode (``mode``; None: nothing), where it first did (``began``), and what it made there."""

    def __init__(self) -> None:
        self.mode: bool | None = None
        self.began: int | None = None
        self._memories: set[int] = set()
        self._ordinary: set[int] = set()

    def is_on(self) -> bool:
        return torch.is_inference_mode_enabled() if self.mode is None else self.mode

    def note(self, fake: torch.Tensor, given: bool = False) -> None:
        """There is a new tensor, ``given`` or made by an operator: views of others are as those are."""
        at = memory(fake)
        if self.mode and not given and at not in self._ordinary:
            self._memories.add(at)
        elif at not in self._memories:
            self._ordinary.add(at)

    def made(self, fake: torch.Tensor) -> bool:
        return bool(self._memories) and memory(fake) in self._memories

    def refuse_differentiated(self, vm: Machine, result: object, tensors: Iterable[torch.Tensor]) -> None:
        """Eager saves none of them for a backward."""
        if self._memories and isinstance(result, torch.Tensor) and result.requires_grad and any(map(self.made, tensors)):
            vm.unsupported("FE032", "gradients by a tensor of inference mode", "eager refuses to save it", whole=True)


def of_inference(tensor: torch.Tensor) -> torch.Tensor:
    """What a graph gave, as a tensor of inference mode."""
    if tensor.is_inference() or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return tensor
    with torch.inference_mode():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


__all__ = ["Inference", "of_inference"]
