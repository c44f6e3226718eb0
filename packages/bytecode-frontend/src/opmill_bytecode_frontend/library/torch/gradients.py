"""``torch.autograd.Function``, inference mode."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch._functorch.autograd_function import autograd_function_apply

from opmill_guards.source import Pinned

from ...effects.backwards import Backward
from ...graph.regions import Region
from ...graph.thread_state import in_dual_level
from ...graph.versions import written
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue
from ...values.objects import ObjectValue
from ...values.sequence import SequenceValue, TupleValue
from ...values.tensor import TensorValue
from ..registry import handles, named
from .bodies import flat, input_like, like, outputs, recording, without_effects

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
SET_GRAD = torch._C._set_grad_enabled


class ForwardContext:
    """What ``forward`` and ``backward`` of a ``torch.autograd.Function`` get as ``ctx``."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[object, ...] = ()
        self.dirty: tuple[object, ...] = ()
        self.fixed: tuple[object, ...] = ()
        self.materialized = True

    def save_for_backward(self, *tensors: object) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: object) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: object) -> None:
        self.fixed = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """The operator gives zeros for gradients that nobody computed."""
        self.materialized = value


@handles(torch._C._FunctionBase.__dict__["apply"])  # of torch 2.15 it is the class's own
@named("torch.autograd.function.Function.apply")
def autograd_function(vm: Interpreter, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """Inlined where gradients are not recorded: forward is then all there is."""
    tensors = [a for a in args if isinstance(a, TensorValue)]
    if _functorch.get_dynamic_layer_stack_depth() or in_dual_level():
        if differentiated_once(cls, tensors):
            return with_backward(vm, cls, args, kwargs, tensors)
        inlined_in_transform(vm, cls, tensors)
    elif torch.is_grad_enabled() and any(t.fake.requires_grad for t in tensors):
        return with_backward(vm, cls, args, kwargs, tensors)
    with grad_mode(vm, False):
        _, result = run_forward(vm, cls, args, kwargs, (False,) * len(args))
    return result


def inlined_in_transform(vm: Interpreter, cls: Value, tensors: Sequence[TensorValue]) -> None:
    """Raises Unsupported where a transform asks the function for more than its forward: under vmap alone, without a rule of its own, that
    is all."""
    only_vmap = all(level.key() == _functorch.TransformType.Vmap for level in _functorch.get_interpreter_stack() or ())
    own_rule = cls.constant().vmap is not torch.autograd.Function.vmap
    if own_rule or not only_vmap or in_dual_level() or any(is_recorded(t.fake) for t in tensors):
        vm.unsupported("FE015", "torch.autograd.Function", "inside a function transform that asks for its rule")


def differentiated_once(cls: Value, tensors: Sequence[TensorValue]) -> bool:
    """Whether one ``torch.func.grad`` or its kin is all that asks for the backward, once: torch's operator of two graphs keeps what the
    backward reads out of sight of a second one."""
    levels = _functorch.get_interpreter_stack() or ()
    separate = cls.constant().setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
    if not (SEPARATE and separate and len(levels) == 1 and levels[0].key() == _functorch.TransformType.Grad) or in_dual_level():
        return False
    inner = [_functorch.get_unwrapped(t.fake) if _functorch.is_functorch_wrapped_tensor(t.fake) else t.fake for t in tensors]
    return not any(t.requires_grad for t in inner) and any(t.fake.requires_grad for t in tensors)


def names_inside(code: types.CodeType) -> set[str]:
    """Names that a function uses, and those that functions and classes inside of it do."""
    inner = [each for each in code.co_consts if hasattr(each, "co_names")]
    return set(code.co_names).union(*map(names_inside, inner))


SEPARATE = "setup_context" in names_inside(type(autograd_function_apply).__call__.__code__)


def is_recorded(fake: torch.Tensor) -> bool:
    """Whether a tensor requires grad at some level of function transforms."""
    while not fake.requires_grad and _functorch.is_functorch_wrapped_tensor(fake):
        fake = _functorch.get_unwrapped(fake)
    return bool(fake.requires_grad)


@contextmanager
def grad_mode(vm: Interpreter, enabled: bool) -> Iterator[None]:
    """The graph's own and that of the capture."""
    before = torch.is_grad_enabled()
    if before != enabled:
        vm.call(BuiltinValue(SET_GRAD), [ConstantValue(enabled)], {})
    yield
    if before != enabled:
        vm.call(BuiltinValue(SET_GRAD), [ConstantValue(before)], {})


def run_forward(
    vm: Interpreter, cls: Value, args: Sequence[Value], kwargs: dict[str, Value], wanted: tuple[bool, ...]
) -> tuple[Value, Value]:
    """The context and the result of ``forward``. ``wanted``: which arguments need gradients."""
    context = vm.call(vm.wrap(ForwardContext, Pinned(ForwardContext, "ForwardContext")), [vm.fresh(wanted)], {})
    separate = cls.constant().setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
    result = vm.call(vm.getattr(cls, "forward"), list(args) if separate else [context, *args], kwargs)
    if separate and any(wanted):
        vm.call(vm.getattr(cls, "setup_context"), [context, TupleValue(list(args)), result], {})
    tensors = [a for a in args if isinstance(a, TensorValue)]
    dirty = vm.unpack(vm.getattr(context, "dirty"))
    if isinstance(result, SequenceValue) and result.cls is tuple:
        return context, TupleValue([passed_through(vm, v, tensors, dirty) for v in result.values(vm)])
    return context, passed_through(vm, result, tensors, dirty)


def with_backward(vm: Interpreter, cls: Value, args: Sequence[Value], kwargs: dict[str, Value], tensors: Sequence[TensorValue]) -> Value:
    """Forward and backward as two graphs of an operator: what the backward reads of the forward, the forward returns for it."""
    recorder = vm.recorder
    if kwargs:
        vm.unsupported("FE015", "torch.autograd.Function", "with keywords")
    tensors = list({id(t): t for t in tensors}.values())
    nodes = [recorder.node_of(t) for t in tensors]
    wanted = tuple(isinstance(a, TensorValue) and a.fake.requires_grad for a in args)
    forward, backward = Region(), Region()
    like_them: list[Any] = []
    with recording(vm, forward), grad_mode(vm, False):
        for node in nodes:
            forward.lift(node)
        context, result = run_forward(vm, cls, args, {}, wanted)
        results, rebuild, _ = flat(vm, result)
        if len(results) > 1 and not vm.truth(vm.getattr(context, "materialized")):
            vm.unsupported(
                "FE015",
                "torch.autograd.Function",
                "set_materialize_grads(False): which gradients there are is known when the backward runs",
            )

        def record(region: Region) -> list[object]:
            with recording(vm, region), without_effects(vm, cls, *args):
                gradients = run_backward(vm, cls, context, result, results, len(args))
                summed = [in_all(vm, [g for g, a in zip(gradients, args, strict=True) if a is t]) for t in tensors]
                like_them[:] = [None if g is None else g.fake for g in summed]
                return [None if g is None else recorder.node_of(g) for g in summed]

        later = Backward(cls.constant().__qualname__, forward, record, vm.place(), used_in(vm))
        returned = later.run(vm, backward)
        later.again = len(recorder.regions) == 1
        kept = vm.unpack(vm.getattr(context, "saved_tensors"))
        vm.effects.backwards.append(later)
        checked = {recorder.node_of(t) for t in kept if isinstance(t, TensorValue)}
        later.unsaved = recorder.fakes_of(node for node in backward.lifted if node not in checked)
        marked = {name: vm.unpack(vm.getattr(context, name)) for name in ("fixed", "dirty")}
        if any(isinstance(t, TensorValue) and t.obj is not None for t in marked["dirty"]):
            vm.unsupported("FE015", "torch.autograd.Function", "it writes to a tensor from before the call, which gets a history by that")
        places = {name: [k for k, t in enumerate(results) if any(t is v for v in values)] for name, values in marked.items()}
        out: Any = tuple(recorder.node_of(t) for t in results)
    single = isinstance(result, TensorValue)
    inputs, saved = list(forward.lifted), list(backward.lifted)
    forward.take(inputs)
    returned += [None] * (len(inputs) - len(nodes))  # closures get none, as in eager
    halves = (
        forward.module((out[0] if single else out, tuple(saved))),
        backward.module(returned[0] if len(returned) == 1 else tuple(returned)),
    )
    options: dict[str, Any] = {"non_differentiable_idx": places["fixed"], "saved_for_backward_idx": list(range(len(saved)))}
    if places["dirty"]:
        options["dirty_idx"] = places["dirty"]
    held = [recorder.hold(name, half) for name, half in zip(("forward", "backward"), halves, strict=True)]
    node = recorder.graph.call_function(autograd_function_apply, (*held, *inputs), options)
    made = outputs(
        vm,
        node,
        [t.fake for t in results],
        [t.fake for t in tensors],
        [results[k].fake for k in places["fixed"]],
        single=single,
        gradients=like_them,
    )
    leaving = {id(inside.fake): value.fake for inside, value in zip(results, made, strict=True) if isinstance(value, TensorValue)}
    saved_fakes = [leaving.get(id(t.fake), t.fake) for t in kept if isinstance(t, TensorValue)]
    later.unsaved = [leaving.get(id(fake), fake) for fake in later.unsaved]
    later.saved = [(fake, written(fake)) for fake in saved_fakes]
    return rebuild(iter([becomes(vm, results[k], value) if k in places["dirty"] else value for k, value in enumerate(made)]))


def used_in(vm: Interpreter) -> Mapping[str, object]:
    """The namespace of the code that runs."""
    return vm.frame.globals if vm.frame is not None else {}


def in_all(vm: Interpreter, gradients: Sequence[Value]) -> TensorValue | None:
    """The gradient of a tensor that is an argument as many times: None where none of them has one."""
    parts = [g for g in gradients if isinstance(g, TensorValue)]
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        added = total.method(vm, "add", [part], {})
        assert isinstance(added, TensorValue)
        total = added
    return total


def becomes(vm: Interpreter, dirty: TensorValue, made: Value) -> Value:
    """A tensor that was marked as written is what the operator gives: the same object, with another history."""
    assert isinstance(made, TensorValue)
    dirty.fake, dirty.node = made.fake, made.node
    vm.recorder.by_fake[id(made.fake)] = dirty
    return dirty


def run_backward(vm: Interpreter, cls: Value, context: Value, result: Value, results: Sequence[TensorValue], count: int) -> list[Value]:
    """The gradients, one for each of ``count`` arguments, in the region being recorded."""
    region = vm.recorder.regions[-1]
    given = iter([input_like(vm, region, like(vm, t.fake, requires_grad=False), "tangent") for t in results])
    tangents = [
        next(given) if isinstance(v, TensorValue) else NONE for v in (result.values(vm) if isinstance(result, TupleValue) else [result])
    ]
    found = vm.call(vm.getattr(cls, "backward"), [context, *tangents], {})
    gradients = list(vm.unpack(found)) if isinstance(found, SequenceValue) else [found]
    while len(gradients) > count and isinstance(gradients[-1], ConstantValue) and gradients[-1].value is None:
        gradients.pop()  # of arguments that were left to their defaults
    if len(gradients) != count:
        name = cls.constant().__name__
        vm.throw(
            RuntimeError, f"function {name}Backward returned an incorrect number of gradients (expected {count}, got {len(gradients)})"
        )
    return gradients


def passed_through(vm: Interpreter, result: Value, inputs: list[TensorValue], dirty: list[Value]) -> Value:
    """An input that is returned comes back as a view of itself, unless it was changed in place."""
    if isinstance(result, TensorValue) and any(result is t for t in inputs) and not any(result is d for d in dirty):
        return result.method(vm, "view_as", [result], {})
    return result


@named("torch.autograd.grad_mode.inference_mode.__enter__")
def enter_inference_mode(vm: Interpreter, manager: ObjectValue) -> Value:
    """Recorded as no_grad; what is made inside becomes a tensor of inference mode when it leaves the captured code."""
    mode = vm.truth(vm.getattr(manager, "mode"))
    if not mode and torch.is_inference_mode_enabled():
        vm.unsupported("FE074", "a block outside of inference mode", "the graph runs in it", "leave it outside of the compiled function")
    manager.opened = (torch.is_grad_enabled(), vm.recorder.inference.mode)
    vm.call(BuiltinValue(SET_GRAD), [ConstantValue(not mode)], {})
    vm.recorder.inference.mode = mode
    if vm.recorder.inference.began is None:
        vm.recorder.inference.began = vm.place()
    return ConstantValue(None)


@named("torch.autograd.grad_mode.inference_mode.__exit__")
def leave_inference_mode(vm: Interpreter, manager: Value, *exc: Value) -> Value:
    """The end of ``torch.inference_mode()``; refused (FE074) where it began before the graph."""
    if not hasattr(manager, "opened"):
        vm.unsupported("FE074", "the end of a block in inference mode", "it began before the graph")
    grad, vm.recorder.inference.mode = manager.opened
    vm.call(BuiltinValue(SET_GRAD), [ConstantValue(grad)], {})
    return ConstantValue(None)


@handles(torch.is_inference_mode_enabled)
def is_inference_mode_enabled(vm: Interpreter) -> Value:
    """``torch.is_inference_mode_enabled()`` at this place."""
    return ConstantValue(vm.recorder.inference.is_on())
