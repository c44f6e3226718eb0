"""Function transforms: vmap is recorded as torch's own steps (a level, batched tensors, the function's operations), as its Python code
takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch

from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.tensor import TensorValue
from ..registry import handles, named
from .overrides import below

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


def recorded(vm: Interpreter, function: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Put a step that returns a constant into the graph, and take it now, so that what follows sees it."""
    lower = vm.recorder.lower
    vm.recorder.graph.call_function(function, tuple(lower(a, False) for a in args), {k: lower(v, False) for k, v in kwargs.items()})

    def taken(value: Value) -> object:
        return value.number if isinstance(value, SymbolicNumber) else vm.plain(value)

    return vm.fresh(function(*map(taken, args), **{k: taken(v) for k, v in kwargs.items()}))


def wrapped(value: Value) -> bool:
    """Whether a tensor is one of a level of function transforms."""
    fake = getattr(value, "fake", None)
    return isinstance(fake, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(fake)


def stepwise(function: Callable[..., object]) -> Callable[..., Value]:
    """``function`` moves between torch's levels: a step of the graph."""

    @handles(function)
    def step(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return recorded(vm, function, [*args], kwargs)

    return step


named("torch._functorch.predispatch._vmap_increment_nesting")(stepwise(_functorch._vmap_increment_nesting))
named("torch._functorch.predispatch._vmap_decrement_nesting")(stepwise(_functorch._vmap_decrement_nesting))
for _step in (
    _functorch._grad_increment_nesting,
    _functorch._grad_decrement_nesting,
    _functorch._jvp_increment_nesting,
    _functorch._jvp_decrement_nesting,
    _functorch.set_inplace_requires_grad_allowed,
    torch._C._enter_dual_level,
    torch._C._exit_dual_level,
    torch._C._set_fwd_grad_enabled,
):
    stepwise(_step)


def recorded_here(value: Value) -> bool:
    """Whether a value is a tensor that captured code has computed."""
    return isinstance(value, TensorValue) and value.obj is None


def leaves(vm: Interpreter) -> bool:
    """Whether no input of the graph may have been computed from another one."""
    inputs = [v.obj for v in vm.recorder.inputs if isinstance(v, TensorValue)]
    return all(t.is_leaf or not t.requires_grad for t in inputs)


def gradients_of(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[torch.Tensor, ...]:
    """What `torch.func.grad` and its kin ask of autograd, as captured code: zeros where an output does not depend on an input."""
    pairs = [(out, None if given is None else given[k]) for k, out in enumerate(outputs) if out.requires_grad]
    if not pairs:
        return tuple([torch.zeros_like(each) for each in inputs])
    found = torch.autograd.grad(
        tuple([out for out, _ in pairs]),
        inputs,
        None if given is None else tuple([grad for _, grad in pairs]),
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return tuple([torch.zeros_like(each) if grad is None else grad for grad, each in zip(found, inputs)])


@named("torch._functorch.eager_transforms._autograd_grad")
def gradients_in_transform(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Torch's own function turns torch's compiler off in it, and imports that to do so."""
    named_ = {{"grad_outputs": "given"}.get(key, key): value for key, value in kwargs.items()}
    return vm.call(vm.wrap(gradients_of, Pinned(gradients_of, gradients_of.__name__)), list(args), named_)


@named("torch._functorch.predispatch._add_batch_dim")
@handles(_functorch._add_batch_dim)
def add_batch_dim(vm: Interpreter, tensor: Value, dim: Value, level: Value) -> Value:
    """The begin of ``vmap`` for a tensor: ``dim`` is its batch dimension at this level."""
    plain = dim.constant()
    inner: Any = below(tensor)  # a class that is told of functions is lost within
    return vm.recorder.call_function(vm, _functorch._add_batch_dim, [inner, ConstantValue(plain % inner.fake.dim()), level], {})


@named("torch._functorch.predispatch._remove_batch_dim")
@handles(_functorch._remove_batch_dim)
def remove_batch_dim(vm: Interpreter, *args: Value) -> Value:
    """The end of ``vmap`` for a tensor."""
    return vm.recorder.call_function(vm, _functorch._remove_batch_dim, list(args), {})


@named("torch._functorch.predispatch.lazy_load_decompositions")
def load_decompositions(vm: Interpreter) -> Value:
    """Loads the decompositions that ``vmap`` relies on, at capture."""
    from torch._functorch.predispatch import lazy_load_decompositions

    lazy_load_decompositions()
    return NONE


@handles(_functorch.get_unwrapped)
def get_unwrapped(vm: Interpreter, tensor: Value) -> Value:
    """The tensor below a transform's wrapper."""
    return vm.recorder.call_function(vm, _functorch.get_unwrapped, [tensor], {})


@handles(_functorch.is_batchedtensor, _functorch.is_functorch_wrapped_tensor)
def is_wrapped(vm: Interpreter, value: Value) -> Value:
    """Whether a tensor is one of a transform's."""
    return ConstantValue(wrapped(value))
