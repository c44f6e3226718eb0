"""Functions that become graphs of their own, inside of the graph: how they are recorded, and what is put together of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C._functorch import get_dynamic_layer_stack_depth

from ...graph.regions import Region
from ...values.base import MISSING, Lazy, Value
from ...values.constant import ConstantValue
from ...values.functions import CellValue, FunctionValue, MethodValue, PartialValue
from ...values.mapping import DictValue
from ...values.objects import ObjectValue
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.sets import SetValue
from ...values.tensor import TensorValue

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@contextmanager
def recording(vm: Interpreter, region: Region) -> Iterator[Region]:
    """Operations are recorded in ``region`` meanwhile; refused (FE029) under a torch function mode, which would be told of the operator."""
    if vm.recorder.modes.on:
        mode = vm.recorder.modes.on[-1].python_type().__qualname__
        vm.unsupported("FE029", f"a function that is a graph of its own under the torch function mode {mode}")
    vm.recorder.regions.append(region)
    try:
        yield region
    finally:
        vm.recorder.regions.pop()


def input_like(vm: Interpreter, region: Region, fake: object, name: str) -> TensorValue:
    """A tensor like ``fake`` that the region is given."""
    return TensorValue(fake, region.placeholder(name))


def like(vm: Interpreter, fake: torch.Tensor, *, requires_grad: bool | None = None) -> Any:
    """A fake of the same type, sizes and layout, and nothing else in common."""
    with torch.no_grad(), vm.recorder.context:
        made = torch.empty_like(fake)
    wanted = fake.requires_grad if requires_grad is None else requires_grad
    return made if made.requires_grad == wanted else made.requires_grad_(wanted)


Gradients = Sequence[torch.Tensor | None] | None


class _Outputs(torch.autograd.Function):
    """Fakes of what an operator gives, which require grad where one of its inputs does."""

    @staticmethod
    def forward(ctx: Any, fakes: Sequence[object], fixed: Sequence[object], gradients: Gradients, *inputs: Any) -> Any:
        ctx.mark_non_differentiable(*fixed)
        ctx.gradients = gradients
        return tuple(fakes)

    @staticmethod
    def backward(ctx: Any, *given: object) -> Any:
        """Where captured code goes backward itself: fakes like those that the operator's backward gave."""
        if ctx.gradients is None or torch.is_grad_enabled():
            raise NotImplementedError("nothing is known of the gradients of an operator of the graph")
        return None, None, None, *(None if each is None else torch.empty_like(each) for each in ctx.gradients)


def through_operator(step: object) -> bool:
    """Whether a step of a history is such an operator, whose gradients may be any tensors."""
    return type(step).__name__ == f"{_Outputs.__name__}Backward"


def differentiable(vm: Interpreter, fake: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Any:
    """The same inside of function transforms, which differentiate what operators gave."""
    with vm.recorder.context:
        with torch.no_grad():
            made = torch.empty_like(fake)
        if made.is_floating_point() or made.is_complex():
            for given in inputs:
                if given.is_floating_point() or given.is_complex():
                    made = made + (given.sum() * 0).real.to(made.dtype)
    if made.stride() != fake.stride():
        vm.unsupported("FE015", "torch.autograd.Function", "inside a function transform, it gives a tensor of unusual strides")
    return made


def outputs(
    vm: Interpreter,
    node: torch.fx.Node,
    fakes: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    fixed: Sequence[torch.Tensor] = (),
    *,
    single: bool = False,
    gradients: Gradients = None,
) -> list[Value]:
    """The tracked values of a node that gives a tuple of tensors like ``fakes``, or the ``single`` one; ``fixed`` are those that never
    require grad. ``gradients``: what those of ``inputs`` are like, where that is known."""
    recorder = vm.recorder
    made: Sequence[torch.Tensor] = ()
    recorder.operations += 1
    node.meta["stack_trace"] = vm.location()
    if get_dynamic_layer_stack_depth():
        made = tuple(differentiable(vm, f, inputs if all(f is not each for each in fixed) else ()) for f in fakes)
        return [recorder.track(vm, made[0], node)] if single else vm.unpack(recorder.track(vm, made, node))
    fresh = {id(f): like(vm, f, requires_grad=False) for f in fakes}
    fixed = [fresh[id(f)] for f in fixed] + [f for f in fresh.values() if not (f.is_floating_point() or f.is_complex())]
    with recorder.context:
        made = _Outputs.apply([fresh[id(f)] for f in fakes], fixed, gradients, *inputs) if fakes else made
    return [recorder.track(vm, made[0], node)] if single else vm.unpack(recorder.track(vm, tuple(made), node))


# ---- results -------------------------------------------------------------------------------------------------------------


def flat(vm: Interpreter, value: Value) -> tuple[list[TensorValue], Callable[[Iterator[Value]], Value], object]:
    """The tensors in a result, how it is rebuilt from others, and what is comparable of the rest."""
    if isinstance(value, TensorValue):
        return [value], next, "tensor"
    if isinstance(value, SequenceValue):
        parts = [flat(vm, v) for v in value.values(vm)]
        cls = value.cls
        make = ListValue if cls is list else lambda items: TupleValue(items, cls)
        return [t for p in parts for t in p[0]], lambda given: make([p[1](given) for p in parts]), (cls, [p[2] for p in parts])
    if type(value) is DictValue:
        keys = [key.constant() for key in value.key_values(vm)]
        parts = [flat(vm, v) for v in value.all_values(vm)]

        def rebuild(given: Iterator[Value]) -> Value:
            out = DictValue({})
            for key, part in zip(keys, parts, strict=True):
                out.store(vm, ConstantValue(key), part[1](given))
            return out

        return [t for p in parts for t in p[0]], rebuild, (dict, keys, [p[2] for p in parts])
    return [], lambda given: value, value.constant()


# ---- what else a body does -----------------------------------------------------------------------------------------------


@contextmanager
def without_effects(vm: Interpreter, *functions: Value) -> Iterator[None]:
    """Raises Unsupported (FE083) where something of before changes meanwhile: which body runs, and how often, is not known."""
    before = _effects(vm), _contents(vm, functions)
    yield
    if before != (_effects(vm), _contents(vm, functions)):
        vm.unsupported(
            "FE083", "a change of an object in a branch or a loop", "how often it happens is not known at capture", "return what changes"
        )


def _effects(vm: Interpreter) -> tuple[list[int], tuple[dict[tuple[int, str], int], dict[tuple[int, str], int]], int, int]:
    effects = vm.effects
    names = {k: id(v[2]) for k, v in effects.globals.items()}, {k: id(v[3]) for k, v in effects.attributes.items()}
    return [id(v) for v in effects.changed], names, len(effects.draws), len(effects.calls)


def _contents(vm: Interpreter, functions: Sequence[Value]) -> list[object]:
    """What containers that the functions can reach hold, of those made or changed in captured code."""
    found: list[Any] = []
    changed = {id(v) for v in vm.effects.changed}
    seen: set[int] = set()
    stack: list[Any] = list(functions)
    while stack:
        value = stack.pop()
        if not isinstance(value, Value) or id(value) in seen:
            continue
        seen.add(id(value))
        inner = _inside(value)
        if value.source is None or id(value) in changed:
            found.append([_identity(v) for v in inner])
        stack += inner
    return found


def _identity(value: object) -> int:
    if type(value) is Lazy:
        return id(value.obj)
    if isinstance(value, ConstantValue):
        return id(value.value)
    real = value.real() if isinstance(value, Value) else MISSING
    return id(value if real is MISSING else real)


def _inside(value: Value) -> list[object]:
    if isinstance(value, CellValue):
        return [value.content]
    if isinstance(value, FunctionValue):
        return [*value.closure, *value.defaults, *value.keyword_defaults().values()]
    if isinstance(value, MethodValue):
        return [value.function, value.owner]
    if isinstance(value, PartialValue):
        return [value.function, *value.args, value.keywords]
    if isinstance(value, SequenceValue):
        return list(value.items)
    if isinstance(value, DictValue):
        return [v for _, v in value.items.values()]
    if isinstance(value, SetValue):
        return list(value.items.values())
    if isinstance(value, ObjectValue):
        return [value._attrs, value.storage, *value.slots.values()]
    return []
