"""Hooks on gradients: on what captured code computes they are parts of the graph, on leaves from before the call they are put when the
graph has run."""

from __future__ import annotations

import collections
import weakref
from typing import TYPE_CHECKING, Any, Callable, Hashable, NoReturn

import torch
from torch.utils.hooks import RemovableHandle

from opmill_fake_tensors.strides import is_dense
from opmill_guards.guard import Predicate, TypeIs
from opmill_guards.source import Pinned, Referent, Source

from ...errors import Unsupported
from ...graph.failing import is_harmless
from ...interpretation.identity import root_is_pinned
from ...interpretation.tracking import as_varying, builtin, by_structure, tracks
from ...values.base import MISSING, Lazy, Machine, Value
from ...values.classes import ClassValue
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue, CellValue, FunctionValue, MethodValue, PartialValue
from ...values.handle_ids import GivenId, leads_to_hooks
from ...values.modules import ModuleValue
from ...values.number import SymbolicNumber
from ...values.objects import ObjectValue
from ...values.sequence import TupleValue
from ...values.tensor import TensorValue
from ...values.varying import VaryingNumber
from ..registry import handles
from .gradients import with_backward

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


class Hooked(torch.autograd.Function):
    """A tensor with a hook: itself, with the hook as its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, hook: object, copied: bool) -> torch.Tensor:
        ctx.hook = hook
        return x.clone() if copied else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[object, ...]:
        changed = ctx.hook(gradient)
        return gradient if changed is None else changed, None, None


class HandleValue(Value):
    """What registering gave. Who wants to keep it gets a real one, of a hook that is put natively; ``effect``: the call to be made, if
    there is one."""

    def __init__(self, vm: Interpreter, effect: object = None) -> None:
        self.vm = vm
        self.place = vm.place()
        self.effect = effect

    def python_type(self) -> type:
        return RemovableHandle

    def natively(self) -> NoReturn:
        self.vm.unsupported("FE033", "the handle of a hook is kept", "the hook is a part of the graph", place=self.place)

    def constant(self) -> object:
        self.natively()

    def getattr(self, vm: Machine, name: str) -> Value:
        return super().getattr(vm, name) if name == "remove" and self.effect is not None else self.natively()

    def m_remove(self, vm: Interpreter) -> Value:
        vm.effects.calls = [call for call in vm.effects.calls if call is not self.effect]
        return NONE


class GivenHandle(ObjectValue):
    """The handle of a hook, one of before the call."""

    def instance_attribute(self, vm: Machine, name: str) -> Value:
        found = self.attrs.items.get(name)
        if name == "id" and found is not None and type(found[1]) is Lazy and type(found[1].obj) is int and found[1].source is not None:
            return GivenId(vm, found[1].obj, found[1].source)
        return super().instance_attribute(vm, name)


class TableReference(BuiltinValue):
    """A weak reference through which a handle of before the call finds a dictionary of hooks. Each handle may have one of its own: to which
    dictionary it leads is looked up where it is; which one it is, is assumed where the program asks."""

    def __init__(self, vm: Machine, obj: weakref.ref[dict[object, object]], source: Source) -> None:
        super().__init__(obj, source)
        self.vm = vm
        vm.guard(TypeIs(source, weakref.ref))

    def constant(self) -> object:
        self.vm.guard_object(self)
        return self.obj

    def key(self, vm: Machine) -> Hashable:
        return self.constant()

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        table = self.obj()
        if args or kwargs:
            return super().call(vm, args, kwargs)
        if table is None:
            vm.guard(Predicate(self.source, leads_nowhere, "leads to nothing that lives"))
            return NONE
        return vm.wrap(table, Referent(self.source))


def leads_nowhere(reference: Callable[[], object]) -> bool:
    """Whether what a weak reference was for is gone."""
    return reference() is None


TABLES = (collections.OrderedDict, type(None))


@tracks(weakref.ref)
def reference(vm: Interpreter, obj: weakref.ref[dict[object, object]], source: Source | None) -> Value:
    """A weak reference, known by identity; one that a handle of an argument has is known by what it leads to."""
    if source is None or root_is_pinned(source) or not leads_to_hooks(source) or type(obj()) not in TABLES:
        return builtin(vm, obj, source)
    return as_varying(vm, obj, source) or TableReference(vm, obj, source)


@tracks(RemovableHandle)
def handle(vm: Interpreter, obj: RemovableHandle, source: Source | None) -> Value:
    """The handle of a hook, known as other objects are; its number is not assumed."""
    return GivenHandle(type(obj), obj, by_structure(vm, obj, source) or Pinned(obj, type(obj).__qualname__))


@handles(torch.Tensor.register_hook)
def register_hook(vm: Interpreter, tensor: TensorValue, hook: Value) -> Value:
    """``tensor.register_hook()``: a part of the graph for what the graph computes, put later for what came in."""
    if tensor.obj is not None:
        return put_later(vm, "register_hook", tensor, hook)
    try:
        if vm.recorder.regions or not tensor.fake.requires_grad or tensor.fake.is_leaf or tensor.fake._is_view():
            vm.unsupported(
                "FE033", "method register_hook of a tensor", "that is a leaf or a view, or inside of a branch, a loop or a transform"
            )
        if may_change(vm, hook, vm.place()):
            vm.unsupported("FE033", "method register_hook of a tensor", "what the hook reads may be another thing when the backward runs")
        put_now(vm, tensor, hook)
        vm.effects.backwards[-1].place = tensor.first_use()
    except Unsupported as exc:
        # put natively, it would come before one that is a part of the graph, and would not see uses in it
        exc.place = tensor.hooked_at if tensor.hooked_at is not None else tensor.first_use()
        raise
    return HandleValue(vm)


SETTLED = (ConstantValue, TensorValue, SymbolicNumber, VaryingNumber, ClassValue, BuiltinValue, ModuleValue)
"""What is the same when the backward runs, as far as hooks ask: modules are what they were, as elsewhere between forward and backward."""


def may_change(vm: Interpreter, value: Any, place: int, seen: set[int] | None = None) -> bool:
    """Whether a hook may read another thing through a value when the backward runs than it does now. Variables that it reads may not change
    after ``place``."""
    seen = set() if seen is None else seen
    if type(value) is Lazy:
        value = vm.wrap(value.obj, value.source)
    if value is MISSING or isinstance(value, SETTLED) or id(value) in seen:
        return False
    seen.add(id(value))
    parts: list[object]
    if isinstance(value, FunctionValue):
        names = zip(value.closure, value.code.co_freevars, strict=True)
        cells: list[Any] = [cell if isinstance(cell, CellValue) else vm.wrap(cell, Pinned(cell, name)) for cell, name in names]
        for cell in cells:
            cell.settled_at = place
        parts = [*(cell.get(vm) for cell in cells), *value.defaults, *value.keyword_defaults().values()]
    elif isinstance(value, MethodValue):
        parts = [value.function, value.owner]
    elif isinstance(value, PartialValue):
        parts = [value.function, *value.args, *value.keywords.all_values(vm)]
    elif type(value) is TupleValue:
        parts = list(value.items)
    else:
        return True
    return any(may_change(vm, part, place, seen) for part in parts)


@handles(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(vm: Interpreter, tensor: TensorValue, hook: Value) -> Value:
    """``tensor.register_post_accumulate_grad_hook()`` of a leaf: put when the program runs."""
    if tensor.obj is None:
        vm.unsupported("FE033", "method register_post_accumulate_grad_hook of a tensor", "it is no leaf")
    return put_later(vm, "register_post_accumulate_grad_hook", tensor, hook)


def put_later(vm: Interpreter, method: str, tensor: TensorValue, hook: Value) -> Value:
    """Puts a hook on a leaf when the program runs; its handle."""
    if vm.recorder.regions or not (tensor.obj.is_leaf and tensor.obj.requires_grad):
        vm.unsupported("FE033", f"method {method} of a tensor", "it was computed before the call")
    effect: tuple[object, list[Value], dict[str, Value]] = (getattr(torch.Tensor, method), [tensor, hook], {})
    vm.effects.calls.append(effect)
    return HandleValue(vm, effect)


def put_now(vm: Interpreter, tensor: TensorValue, hook: Value) -> None:
    """All that reads the tensor, from where it was made on, reads what has the hook. A second hook comes before the first one in the graph,
    and behind it in the backward."""
    plain = tensor.unhooked or TensorValue(tensor.fake, tensor.node)
    original = plain.node
    earlier = list(original.users)
    if tensor.unhooked is None and not all(map(is_harmless, earlier)):
        vm.unsupported("FE033", "method register_hook of a tensor", "it was written to before")
    copied = ConstantValue(is_dense(plain.fake.size(), plain.fake.stride()))
    cls = vm.wrap(Hooked, Pinned(Hooked, "Hooked"))
    hooked: Any = with_backward(vm, cls, [plain, hook, copied], {}, [plain])
    node = hooked.node
    if earlier:
        move_behind(vm, original, node)
        for user in earlier:
            user.replace_input_with(original, node)
    if tensor.unhooked is None:
        tensor.unhooked, tensor.hooked_at, tensor.node, tensor.fake = plain, vm.place(), node, hooked.fake
        vm.recorder.by_fake |= {id(hooked.fake): tensor, id(plain.fake): tensor}


def move_behind(vm: Interpreter, original: torch.fx.Node, node: torch.fx.Node) -> None:
    """Moves ``node``, and the modules that only it reads, to where ``original`` is made."""
    before = set()
    for each in original.graph.nodes:
        before.add(each)
        if each is original:
            break
    last = original
    for each in node.all_input_nodes:
        if each.op == "get_attr" and each not in before:
            last.append(each)
            last = each
        elif each not in before:
            vm.unsupported("FE033", "method register_hook of a tensor", "the hook reads what was computed after uses of the tensor")
    last.append(node)
