"""``tensor.data = other``: the tensor gets other memory when the graph has run; what uses it later in captured code uses that memory.

The graph is given an alias of the tensor that keeps the memory of before: a backward that is computed later reads what the forward read.
Eager's own backward would find the new memory where a step kept the tensor itself: such a step ends the graph before the assignment."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from opmill_fake_tensors import FakeTensor
from opmill_guards.source import Pinned

from ..graph.versions import written

if TYPE_CHECKING:
    from .base import Machine
    from .tensor import TensorValue

PRODUCTS = (torch.nn.functional.linear, operator.matmul, torch.matmul, torch.mm, "matmul", "mm")
"""What keeps its second operand only where the first one requires grad. A bias is never kept."""


class NewData(Struct, eq=False):
    """What a tensor was given. ``original``: the tensor with the memory of before; ``plain``: the new memory, without a history;
    ``recorded``: what stands for both where gradients are recorded, once something asked for it; ``writes``: how often the memory had been
    written to by then."""

    original: TensorValue
    plain: TensorValue
    recorded: TensorValue | None = None
    writes: int = 0

    def current(self, vm: Machine) -> TensorValue:
        """The tensor as a step of the graph reads it."""
        if not (self.original.fake.requires_grad and torch.is_grad_enabled()):
            return self.plain
        writes = vm.recorder.writes.to(self.plain.fake)
        if self.recorded is not None and self.writes == writes:
            return self.recorded
        if self.recorded is not None or vm.recorder.regions:
            why = "it was written to since, or this is inside of a branch, a loop or a transform"
            vm.unsupported("FE032", "a use of a tensor whose data was assigned", why)
        cls = vm.wrap(WithNewData, Pinned(WithNewData, "WithNewData"))
        made: Any = vm.call(vm.getattr(cls, "apply"), [self.original, self.plain], {})
        made.node.meta["given data"] = True
        if self.original.fake.is_leaf:
            vm.recorder.given_leaves.append(made.fake)
        self.recorded, self.writes = made, writes
        return self.recorded


class WithNewData(torch.autograd.Function):
    """What a tensor holds now, whose gradient is the tensor's."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def may_be_given(vm: Machine, tensor: TensorValue, data: TensorValue) -> bool:
    """Whether a tensor of before the call may get the memory of ``data`` behind the graph."""
    new, own = data.fake, tensor.fake
    fits = new.shape == own.shape and new.dtype == own.dtype and new.device == own.device and new.layout == own.layout
    plain = tensor.obj is not None and type(tensor.obj) in (torch.Tensor, torch.nn.Parameter) and type(new) is type(own)
    if not plain or not fits or vm.recorder.regions or tensor.unhooked is not None:
        return False
    if new.stride() != own.stride() or (isinstance(own, FakeTensor) and own.is_known()) or not tensor.obj.is_leaf:
        return False
    if vm.recorder.went_back:  # a backward in captured code uses up what its steps kept
        return True
    given = tensor.given
    nodes = [tensor.node] if given is None else [given.original.node, given.recorded and given.recorded.node]
    return all(not keeps(vm, user, node) for node in nodes if node is not None for user in node.users)


def keeps(vm: Machine, user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether autograd may keep the tensor of ``node`` for the backward of a step."""
    if only_reads(user):
        return False
    made = user.meta.get("val")
    if isinstance(made, torch.Tensor) and not made.requires_grad:
        return False
    if user.target in PRODUCTS and user.args and user.args[0] is not node:
        first = next((value for value in vm.recorder.by_fake.values() if value.node is user.args[0]), None)
        return first is None or first.fake.requires_grad
    return True


def only_reads(node: torch.fx.Node) -> bool:
    """Whether a node is the same memory without a history."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in ("detach", "detach.default") or (name == "getattr" and node.args[1:] == ("data",)) or "given data" in node.meta


def take(vm: Machine, tensor: TensorValue, data: TensorValue) -> None:
    """``tensor.data = data``, from here on."""
    original = tensor.given.original if tensor.given is not None else tensor.like_before()
    plain: Any = data.method(vm, "detach", [], {})
    vm.effects.calls.append((give, [tensor, data], {}))
    tensor.given = NewData(original, plain)
    vm.recorder.by_fake[id(plain.fake)] = tensor
    for each in (tensor, original):
        each.held, each.aliased = False, not written(original.fake)


def give(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """``tensor.data = data``."""
    tensor.data = data


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, also when the tensor has other memory, and the same gradient."""
    with torch.enable_grad():
        return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach()


__all__ = ["NewData", "alias", "give", "may_be_given", "take"]
