"""How tensors of before the call are tracked: as inputs of the graph, by the way of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors.classes import computes_as_plain
from opmill_fake_tensors.errors import FakeTensorError, NoFakeKernel
from opmill_fake_tensors.jagged import is_jagged
from opmill_fake_tensors.wrappers import NotTakenApart, take_apart, takes_operators
from opmill_guards.guard import TensorMatch
from opmill_guards.source import Pinned, Source

from ..assumptions.contents import know_contents
from ..errors import NotYet
from ..values.base import Value
from ..values.overriding import OverridingTensor, has_functions_only
from ..values.ragged import moving_inside
from ..values.tensor import TensorValue
from ..values.wrapped import guard_inside
from .tracking import tracks

if TYPE_CHECKING:
    from .machine import Interpreter


@tracks(torch.Tensor)
def tensor(vm: Interpreter, obj: torch.Tensor, source: Source | None) -> Value:
    """A tensor: an input of the graph, by the way of its class."""
    cls = type(obj)
    if torch.nn.parameter.is_lazy(obj):
        raise NotYet
    source = Pinned(obj, "tensor") if source is None else source
    if computes_as_plain(cls):
        return graph_input(vm, obj, obj, source)
    if takes_operators(cls):
        return wrapper_input(vm, obj, source)
    if not has_functions_only(cls):
        vm.unsupported("FE051", f"tensor of class {cls.__qualname__}", "it gives attributes of tensors another meaning")
    vm.recorder.overriding, vm.overridden[source] = True, torch.Tensor
    return OverridingTensor(graph_input(vm, obj, torch.Tensor.as_subclass(obj, torch.Tensor), source), cls, obj, source)


def graph_input(vm: Interpreter, obj: torch.Tensor, given: torch.Tensor, source: Source) -> TensorValue:
    """A tensor that the graph may ask for. ``given``: what it is given then, ``obj`` or an alias that has no class of its own."""
    held = given is obj and vm.in_tree(source)
    inside = moving_inside(vm.varying, given, source, held) if is_jagged(type(given)) else None
    limits = vm.varying.dimensions(source, given, held) if inside is None else {}
    moving = frozenset() if isinstance(given, torch.nn.Parameter) else vm.varying.moving(source, given)
    try:
        fake = vm.recorder.fake_of(given, source, limits, moving, inside=inside)
    except FakeTensorError as exc:
        vm.unsupported("FE051", f"tensor with layout {given.layout}", str(exc))
    value = TensorValue(fake, None, type(given), given, source)
    value.held, value.below = held, given is not obj
    vm.recorder.by_fake[id(fake)] = value
    vm.recorder.inference.note(fake, given=True)
    keys = torch._C._dispatch_keys(obj).raw_repr()
    sizes: tuple[int | None, ...] = tuple(given.shape)
    strides: Any = tuple(given.stride())
    if inside is not None:  # what is inside tells them
        vm.recorder.own_symbols(value)
        sizes, strides = (None,) * given.dim(), None
    elif limits or moving:
        vm.recorder.own_symbols(value)
        sizes, strides = (tuple(n if type(n) is int else None for n in numbers) for numbers in (fake.shape, fake.stride()))
        for d, stride in enumerate(fake.stride()):
            if strides[d] is None:
                vm.recorder.numbers.assume_stride(source, d, stride)
    vm.guard_tensor(
        TensorMatch(source, type(obj), given.dtype, given.device, given.layout, sizes, strides, given.requires_grad, keys), held
    )
    know_contents(vm, given, source, held)
    return value


def wrapper_input(vm: Interpreter, obj: torch.Tensor, source: Source) -> TensorValue:
    """A tensor whose class takes operators apart: an input as others, of which is also assumed what it is made of."""
    try:
        take_apart(obj)
        value = graph_input(vm, obj, obj, source)
    except (NotTakenApart, NoFakeKernel) as error:
        hint = "define __tensor_flatten__, which gives the names of the tensors inside and a context, and __tensor_unflatten__"
        vm.unsupported("FE051", f"tensor of class {type(obj).__qualname__}", str(error), hint)
    guard_inside(vm, obj, value.fake, source)
    return value


__all__ = ["graph_input"]
