"""Tensors whose classes take operators apart (``__torch_dispatch__``): what such a class adds to a tensor.

A wrapper is a :class:`TensorValue` like any other. Its fake is an object of its class made of fakes, so that operators run what the class
says, as they do when the graph is compiled: a graph has the operators of the program, with wrappers for operands."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors.jagged import is_jagged
from opmill_fake_tensors.wrappers import Share, flattened, same_context, says_sizes, shares, takes_operators
from opmill_guards.guard import Predicate, Remembered, TensorMatch
from opmill_guards.source import Attr, Pinned

from ..interpretation.owners import installed
from .base import MISSING, Machine, Value, find_in_mro
from .immutable import SETTLED
from .objects import bind_descriptor
from .self_contained import also_read, mentions

if TYPE_CHECKING:
    from opmill_guards.source import Source

    from .tensor import TensorValue

OF_TORCH = (torch.Tensor, torch._C.TensorBase, object)
PLAIN = (bool, int, float, complex, str, bytes)
CODE = (types.FunctionType, property, classmethod, staticmethod)


def is_wrapped(value: object) -> bool:
    """Whether a tracked tensor is one of a class that takes operators."""
    return takes_operators(type(getattr(value, "fake", None)))


def added(vm: Machine, value: TensorValue, name: str) -> Value:
    """What the class or the object has under a name that tensors do not have, or have otherwise; MISSING where it is a tensor's own."""
    owner, raw = find_in_mro(value.cls.__mro__, name)
    own = raw is not MISSING and owner not in OF_TORCH
    if own and (isinstance(raw, CODE) or hasattr(type(raw), "__set__")):
        return of_class(vm, value, owner, name, raw)
    if name in getattr(value.fake, "__dict__", ()):
        return of_object(vm, value, name)
    return of_class(vm, value, owner, name, raw) if own else MISSING


def of_class(vm: Machine, value: TensorValue, owner: type, name: str, raw: object) -> Value:
    """What the program wrote is interpreted. Methods of installed packages run while the graph is recorded, as their ``__torch_dispatch__``
    does."""
    vm.guard_lookup(value.cls, owner, name)
    code = getattr(getattr(raw, "fget", None) or getattr(raw, "__func__", raw), "__code__", None)
    if code is None or not installed(code.co_filename):
        if isinstance(raw, CODE):
            return bind_descriptor(vm, owner, name, raw, value, vm.wrap(value.cls))
        return of_object(vm, value, name)
    if isinstance(raw, property):
        return of_object(vm, value, name)
    return (
        InstalledMethod(value, name)
        if type(raw) is types.FunctionType
        else bind_descriptor(vm, owner, name, raw, value, vm.wrap(value.cls))
    )


def of_object(vm: Machine, value: TensorValue, name: str) -> Value:
    """An attribute: a tensor is one of the graph, anything else is what it is now."""
    content = getattr(value.fake, name)
    if isinstance(content, torch.Tensor):
        node = vm.recorder.graph.call_function(getattr, (vm.recorder.node_of(value), name))
        return vm.recorder.track(vm, content, node)
    if value.obj is not None and getattr(value.obj, name, MISSING) is content:
        return vm.wrap(content, Attr(value.source, name))
    if content is None and value.obj is not None and isinstance(real := getattr(value.obj, name), torch.Tensor):
        return vm.wrap(real, Attr(value.source, name))  # what it keeps once it was computed
    if isinstance(content, (torch.SymInt, torch.SymFloat, torch.SymBool, tuple)) and says_sizes(content):
        return vm.fresh(content)
    if not says_sizes(content):
        return vm.wrap(content, Pinned(content, name))
    real = MISSING if value.obj is None else getattr(value.obj, name, MISSING)
    if type(real) is type(content) and _has_its_sizes(value) and same_context(real, content):
        return vm.wrap(real, Attr(value.source, name))
    return vm.unsupported("FE031", f"attribute {name} of a {value.cls.__qualname__}", "it has the sizes of the tensor, which change")


def _has_its_sizes(value: TensorValue) -> bool:
    """Whether a tensor of before the call still has the sizes that it had then."""
    return tuple(n.node.hint if type(n) is torch.SymInt else n for n in value.fake.shape) == tuple(value.obj.shape)


def guard_inside(vm: Machine, obj: Any, fake: torch.Tensor, source: Source) -> None:
    """Assumes of a wrapper its context and the looks of the tensors inside."""
    names, context = flattened(obj)
    names, cls = tuple(names), type(obj)
    vm.recorder.wrappers.meet(obj)
    tensors = [name for name in names if isinstance(getattr(obj, name), torch.Tensor)]
    things = {name: getattr(obj, name) for name in names if name not in tensors}
    if (more := unsaid(obj, vars(fake))) is not None:
        why = "its __tensor_flatten__ does not say so, and code of its class reads it"
        hint = "say it in the context that __tensor_flatten__ gives"
        vm.unsupported("FE051", f"a {cls.__qualname__} with attribute {more}", why, hint)
    said = {key: value for key, value in vars(obj).items() if type(value) in PLAIN}
    alone = is_jagged(cls)  # what is inside has other sizes than the tensor
    moving = [] if alone else [(name, d, share) for name in tensors for d, share in _moving(obj, getattr(obj, name), getattr(fake, name))]

    def holds(now: Any) -> bool:
        found, says = flattened(now)
        alike = (says is context or same_context(says, context)) and tuple(found) == names
        alike = alike and all(same_context(getattr(now, name), things[name]) for name in things)
        alike = alike and said.keys() <= vars(now).keys() and unsaid(now, said) is None
        return alike and all(share.of(getattr(now, name).shape[d]) == now.shape[d] for name, d, share in moving)

    label, read = f"{cls.__qualname__} of the same context", also_read(cls, "__tensor_flatten__")
    if moving or read is None or any(type(n) is not int for n in fake.shape):
        vm.guard(Predicate(source, holds, label))
    else:
        vm.guard(Remembered(source, holds, label, tuple(tensors), SETTLED, read))
    for name in tensors:
        part, inner, where = getattr(obj, name), getattr(fake, name), Attr(source, name)
        vm.recorder.inside.append((part, where))
        keys = torch._C._dispatch_keys(part).raw_repr()
        strided = part.layout is torch.strided
        sizes = tuple(n if type(n) is int else None for n in inner.shape)
        strides = tuple(n if type(n) is int else None for n in inner.stride()) if strided else None
        for d, stride in enumerate(inner.stride() if alone else ()):
            if type(stride) is not int:
                vm.recorder.numbers.assume_stride(where, d, stride)
        vm.guard_tensor(
            TensorMatch(where, type(part), part.dtype, part.device, part.layout, sizes, strides, part.requires_grad, keys), False
        )
        if takes_operators(type(part)):
            guard_inside(vm, part, inner, where)


def unsaid(obj: torch.Tensor, said: Mapping[str, object]) -> str | None:
    """An attribute of a wrapper, a number or a text, that is not as it was ``said`` to be, and that code of its class may read: operators
    may mean something else by it. None where there is none."""
    for name, value in vars(obj).items():
        if type(value) in PLAIN and name != "_is_param" and (name not in said or type(said[name]) in (*PLAIN, type(None))):
            other = said.get(name, MISSING)
            if (type(other) is not type(value) or (other != value and value == value)) and mentions(type(obj), name):
                return name
    return None


def _moving(obj: torch.Tensor, part: torch.Tensor, fake: torch.Tensor) -> Iterator[tuple[int, Share]]:
    """The dimensions of a part whose sizes are not assumed, and how each goes into the whole."""
    dims = [d for d, n in enumerate(fake.shape) if type(n) is not int]
    yield from (shares(obj, part, dims) or {}).items()


def may_put_on(value: TensorValue, name: str) -> bool:
    """Whether an attribute of a wrapper can say nothing of what operators on it do: it is no part of it, and nothing that its class leads
    to reads it."""
    cls = value.cls
    known = name in getattr(value.fake, "__dict__", ()) or any(name in vars(base) for base in cls.__mro__)
    own = find_in_mro(cls.__mro__, "__setattr__")[0] is not object
    return not known and not own and not mentions(cls, name)


class InstalledMethod(Value):
    """A method of a wrapper that an installed package wrote in Python."""

    def __init__(self, owner: TensorValue, name: str) -> None:
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.name} of a {self.owner.cls.__qualname__}"

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.recorder.call_method(vm, self.name, [self.owner, *args], kwargs)


__all__ = ["InstalledMethod", "added", "guard_inside", "is_wrapped", "may_put_on"]
