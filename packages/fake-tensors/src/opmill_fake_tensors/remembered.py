"""What functions of torch give, kept by the looks of their arguments: layers that repeat ask for the same again and again."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.nn import functional

from .context import META, FakeContext
from .tensor import FakeTensor

#: Functions whose result is a new tensor, of a geometry that only that of the arguments decides. They neither draw random numbers nor ask a
#: switch of torch's that is not looked at here.
FUNCTIONS = {id(function): function for function in (
    functional.linear, functional.layer_norm, functional.gelu, functional.silu, functional.relu, functional.softmax,
    torch.matmul, torch.add, torch.sub, torch.mul, torch.div, torch.relu, torch.sigmoid, torch.tanh, torch.rsqrt, torch.softmax,
    operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul, operator.neg,
)}  # fmt: skip
_ATOMS = frozenset({int, bool, float, str, type(None), torch.dtype})


class Remembered:
    """Results of one context by function and looks of the arguments.

    Remembered are only floating tensors that share no memory with an argument, of calls without gradients, symbolic sizes, known values,
    and without modes that may see the call."""

    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self._known: dict[Any, tuple[Any, ...]] = {}

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What ``function`` gives for these arguments, as a new fake."""
        key = self._key(function, args, kwargs)
        if key is None:
            return function(*args, **kwargs)
        known = self._known.get(key)
        if known is not None:
            size, stride, dtype, device = known
            with torch._C._DisableTorchDispatch():
                meta = torch.empty_strided(size, stride, dtype=dtype, device=META)
            return self.context.from_meta(meta, device)
        result = function(*args, **kwargs)
        if type(result) is FakeTensor and self._is_new(result, args):
            self._known[key] = result.size(), result.stride(), result.dtype, result.device
        return result

    def _key(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Equal for calls that give tensors of one geometry; None where a call is not to be remembered."""
        if id(function) not in FUNCTIONS or torch.is_grad_enabled() or self.context.sizes is not None:
            return None
        if (
            torch._C._is_any_autocast_enabled()
            or torch._C._len_torch_function_stack()
            or torch._C._functorch.peek_interpreter_stack() is not None
        ):
            return None
        parts: list[Any] = [function, torch.get_default_dtype(), torch.is_inference_mode_enabled(), *kwargs]
        tensors = 0
        for value in (*args, *kwargs.values()):
            kind = type(value)
            if kind is FakeTensor:
                if value.is_conj():
                    return None
                tensors += value._constant is None
                parts.append((value.size(), value.stride(), value.dtype, value.device))
            elif kind in _ATOMS:
                parts.append((kind, value))
            elif kind in (tuple, list) and all(type(item) is int for item in value):
                parts.append((kind, tuple(value)))
            else:
                return None
        return tuple(parts) if tensors else None

    def _is_new(self, result: FakeTensor, args: list[Any]) -> bool:
        if not result.is_floating_point() or result._constant is not None or result._is_view() or result.storage_offset():
            return False
        own = result.meta.untyped_storage()
        like = torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device=META).untyped_storage()
        shared = {value.meta.untyped_storage()._cdata for value in args if type(value) is FakeTensor}
        return own.nbytes() == like.nbytes() and own._cdata not in shared


__all__ = ["Remembered"]
