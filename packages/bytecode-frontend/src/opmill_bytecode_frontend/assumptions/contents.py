"""What small containers hold that decide what a program does: tensors of modules, and global ones (flags, lengths, strides kept as
buffers), and sets among the arguments."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from opmill_guards.constants import is_constant
from opmill_guards.guard import Predicate, TypeIs
from opmill_guards.source import Local, Pinned, Source
from opmill_guards.weak import living, weak

from ..interpretation.optimizing import in_optimizer

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter

NAMES = (int, str, bytes, bool, type(None))
"""Classes of items by which sets among the arguments are known."""
MOST = 16
"""Elements of a tensor whose values may be assumed."""


class Holds:
    """Whether a tensor holds what it held at the capture, bit by bit: zeros have signs, and NaN is NaN."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.kept = bits(tensor).clone()

    def __call__(self, tensor: torch.Tensor) -> bool:
        return torch.equal(bits(tensor), self.kept)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor as bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Items:
    """Whether a set has equal items of the same classes, which come in the same order: equal sets may go through theirs in another."""

    def __init__(self, items: set[object] | frozenset[object]) -> None:
        self.items = list(items)
        self.classes = list(map(type, items))

    def __call__(self, now: Iterable[object]) -> bool:
        return list(now) == self.items and list(map(type, now)) == self.classes


class Members:
    """Whether a set that is known by identity has the members that it had: objects by identity, constants by value."""

    def __init__(self, items: set[object] | frozenset[object]) -> None:
        self.constants = frozenset(filter(is_constant, items))
        self.objects = [weak(each) for each in items if not is_constant(each)]

    def __call__(self, now: set[object]) -> bool:
        if len(now) != len(self.constants) + len(self.objects) or not self.constants <= now:
            return False
        found = set(map(id, now)) if self.objects else set()
        return all(id(living(each)) in found for each in self.objects)


def guard_items(vm: Interpreter, obj: Any, source: Source) -> bool:
    """Whether a set among the arguments is known by its items: then they are assumed, where sets at ``source`` were not seen to differ
    again and again."""
    if type(obj) not in (set, frozenset) or not all(type(v) in NAMES for v in obj):
        return False
    vm.guard(TypeIs(source, type(obj)))
    if source not in vm.varying.opaque:
        vm.guard(Predicate(source, Items(obj), f"== {{{', '.join(map(repr, obj))}}}"))
    return True


def know_contents(vm: Interpreter, tensor: torch.Tensor, source: Source, held: bool) -> None:
    """What the tensor holds may decide which way the program goes: then it is assumed. ``held``: it is a tensor of a module. Not of
    parameters, which are trained, of arguments, which are data, and of what optimizers count; nor of tensors whose values were seen to
    change again."""
    small = tensor.dim() <= 1 and tensor.numel() <= MOST and tensor.device.type == "cpu" and not tensor.is_complex()
    if type(tensor) is not torch.Tensor or not small or tensor.requires_grad or tensor.is_inference() or in_optimizer(vm):
        return
    if source in vm.varying.contents or type(source) is Pinned or (type(source.root) is Local and not held):
        return
    machine = weakref.ref(vm)  # fakes outlive the capture

    def asked() -> None:
        if (vm := machine()) is not None:
            vm.guard(Predicate(source, Holds(tensor), f"holds {tensor.tolist()}"))

    vm.recorder.context.know(tensor, asked)


__all__ = ["Holds", "Items", "know_contents"]
