"""Asking NumPy, with arrays of ones of the layouts that are known, and refusing what it is not followed in."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import Unsupported
from ...values.arrays import ArrayValue, sizes_now
from ...values.base import Lazy, NotConstant, Value
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, SliceValue, TupleValue
from ...values.tensor import TensorValue
from .sizes import HINT, Sizes, at, flattened, other_like

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NO_PROGRAM = "there is no program of torch for it"


def refuse(vm: Interpreter, key: str, why: str) -> NoReturn:
    """Ends the graph at a call of NumPy's."""
    vm.unsupported("FE085", f"NumPy's {key.lstrip('.')}", why, HINT)


def has_array(value: object, depth: int = 3) -> bool:
    """Whether an array of the graph is among values, so many levels deep."""
    if isinstance(value, ArrayValue) or depth == 0:
        return isinstance(value, ArrayValue)
    if isinstance(value, SequenceValue):
        return any(has_array(v, depth - 1) for v in value.items)
    return isinstance(value, SliceValue) and any(has_array(v) for v in value.parts)


def check_unchanged(vm: Interpreter, value: ArrayValue) -> None:
    """Ends the graph where an array shows what has been written to since."""
    if value.stands_for is not None and value.stands_for[0].fake._version != value.stands_for[1]:
        refuse(vm, "view", "what it shows has been written to since, and tensors have no such view")


def like(vm: Interpreter, value: Value | Lazy, unit: bool = False, sizes: Sizes | None = None) -> Any:
    """What NumPy is asked with for a value: at this call, or for other ``sizes``."""
    if type(value) is Lazy:
        value = vm.wrap(value.obj, value.source)
    if isinstance(value, ArrayValue):
        check_unchanged(vm, value)
        found = value.like if sizes is None else other_like(vm, value, sizes)
        if unit and getattr(found, "ndim", 0) >= 2:
            made = found.copy()
            made[...] = sys.modules["numpy"].eye(*made.shape[-2:], dtype=made.dtype)
            return made
        return found
    if isinstance(value, SymbolicNumber) and value.python_type() is int:
        return sizes_now([value.number])[0] if sizes is None else at(vm, value.number, sizes)
    if isinstance(value, TensorValue):
        refuse(vm, "functions", "it is given a tensor")
    if isinstance(value, TupleValue):
        return value.assembled([like(vm, v, unit, sizes) for v in value.items])
    if isinstance(value, ListValue):
        return [like(vm, v, unit, sizes) for v in value.items]
    if isinstance(value, SliceValue):
        return slice(*[like(vm, v, False, sizes) for v in value.parts])
    return vm.plain(value)


def ask(vm: Interpreter, obj: object, key: str, args: list[Value], kwargs: dict[str, Value], unit: bool = False) -> object:
    """What NumPy gives for arrays of the same layouts. Where it raises, the program does, in its own words."""
    return asked(vm, obj, key, args, kwargs, unit)[0]


def asked(
    vm: Interpreter, obj: Any, key: str, args: list[Value], kwargs: dict[str, Value], unit: bool, sizes: Sizes | None = None
) -> tuple[Any, list[object]]:
    """As :func:`answer`; where NumPy raises the graph ends."""
    try:
        return answer(vm, obj, key, args, kwargs, unit, sizes)
    except Unsupported:
        raise
    except Exception as exc:
        return refuse(vm, key, f"it raises {type(exc).__name__}")


def answer(
    vm: Interpreter,
    obj: Callable[..., object],
    key: str,
    args: list[Value],
    kwargs: dict[str, Value],
    unit: bool,
    sizes: Sizes | None = None,
) -> tuple[object, list[object]]:
    """What NumPy gives, and the arrays that it was given. ``sizes``: others than those of this call. Raises what NumPy does."""
    np = sys.modules["numpy"]
    try:
        given, named = [like(vm, a, unit, sizes) for a in args], {k: like(vm, v, unit, sizes) for k, v in kwargs.items()}
    except NotConstant as exc:
        refuse(vm, key, f"it is given {exc}")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return obj(*given, **named), list(flattened([*given, *named.values()]))


__all__ = ["NO_PROGRAM", "answer", "ask", "asked", "check_unchanged", "has_array", "like", "refuse"]
