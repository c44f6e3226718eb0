"""Function transforms: vmap is recorded as torch's own steps (a level, batched tensors, the function's operations), as its Python code takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch

from ..values.base import Value
from ..values.constant import ConstantValue
from .registry import handles, named

NONE = ConstantValue(None)


def recorded(vm: Any, function: Any, args: list[Value]) -> Value:
    """Put a step that returns a constant into the graph, and take it now, so that what follows sees it."""
    vm.recorder.graph.call_function(function, tuple(vm.recorder.lower(a, False) for a in args))
    return vm.fresh(function(*[vm.plain(a) for a in args]))


@named("torch._functorch.predispatch._vmap_increment_nesting")
@handles(_functorch._vmap_increment_nesting)
def increment_nesting(vm: Any, batch_size: Value, randomness: Value) -> Value:
    return recorded(vm, _functorch._vmap_increment_nesting, [batch_size, randomness])


@named("torch._functorch.predispatch._vmap_decrement_nesting")
@handles(_functorch._vmap_decrement_nesting)
def decrement_nesting(vm: Any) -> Value:
    return recorded(vm, _functorch._vmap_decrement_nesting, [])


@named("torch._functorch.predispatch._add_batch_dim")
@handles(_functorch._add_batch_dim)
def add_batch_dim(vm: Any, tensor: Value, dim: Value, level: Value) -> Value:
    plain = dim.constant()
    return vm.recorder.call_function(vm, _functorch._add_batch_dim, [tensor, ConstantValue(plain % tensor.fake.dim()), level], {})  # type: ignore[attr-defined]


@named("torch._functorch.predispatch._remove_batch_dim")
@handles(_functorch._remove_batch_dim)
def remove_batch_dim(vm: Any, *args: Value) -> Value:
    return vm.recorder.call_function(vm, _functorch._remove_batch_dim, list(args), {})


@named("torch._functorch.predispatch.lazy_load_decompositions")
def load_decompositions(vm: Any) -> Value:
    from torch._functorch.predispatch import lazy_load_decompositions

    lazy_load_decompositions()
    return NONE


@named("torch.overrides.TorchFunctionMode.__enter__")
def enter_mode(vm: Any, mode: Value) -> Value:
    """The one mode that is followed: subscripts by scalar tensors do not become numbers."""
    if mode.python_type().__name__ != "TransformGetItemToIndex":
        vm.unsupported("FE029", f"the torch function mode {mode.python_type().__qualname__}", "it changes what torch functions mean")
    vm.recorder.index_by_tensors += 1
    return mode


@named("torch.overrides.TorchFunctionMode.__exit__")
def leave_mode(vm: Any, mode: Value, *exc: Value) -> Value:
    vm.recorder.index_by_tensors -= 1
    return NONE


@handles(_functorch.get_unwrapped)
def get_unwrapped(vm: Any, tensor: Value) -> Value:
    return vm.recorder.call_function(vm, _functorch.get_unwrapped, [tensor], {})


@handles(_functorch.is_batchedtensor, _functorch.is_functorch_wrapped_tensor)
def is_wrapped(vm: Any, value: Any) -> Value:
    fake = getattr(value, "fake", None)
    return ConstantValue(isinstance(fake, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(fake))
