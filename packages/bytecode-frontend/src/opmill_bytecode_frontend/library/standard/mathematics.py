"""Functions of ``math`` of floats that change from call to call (rates of schedulers): they are computed before the graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.floating import FloatNumber, operand
from ...values.number import SymbolicNumber
from ..dispatch import fold
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

#: Function -> comparisons with its argument. Where they hold it gives a float, whatever else the argument is.
DEFINED: dict[Callable[[float], float], tuple[tuple[str, float], ...]] = {
    **dict.fromkeys((math.cos, math.sin, math.tan), (("__gt__", -1e300), ("__lt__", 1e300))),
    **dict.fromkeys((math.tanh, math.atan, math.asinh, math.erf, math.erfc, math.fabs, math.radians), ()),
    **dict.fromkeys((math.sinh, math.cosh), (("__gt__", -700.0), ("__lt__", 700.0))),
    **dict.fromkeys((math.exp, math.expm1), (("__lt__", 700.0),)),
    **dict.fromkeys((math.log, math.log2, math.log10), (("__gt__", 0.0),)),
    math.log1p: (("__gt__", -1.0),),
    math.sqrt: (("__ge__", 0.0),),
    **dict.fromkeys((math.asin, math.acos), (("__ge__", -1.0), ("__le__", 1.0))),
}


def function_of_float(vm: Interpreter, *args: Value, function: Callable[[float], float]) -> Value:
    """A function of ``math`` of a float that changes: computed at each call where the argument is in its domain, which is guarded."""
    given = operand(vm, args[0]) if len(args) == 1 and type(args[0]) in (FloatNumber, SymbolicNumber) else None
    if not isinstance(given, FloatNumber) or not all(given.decide(comparison, bound) for comparison, bound in DEFINED[function]):
        return fold(vm, function, list(args), {})
    return given.applied(function)


for _function in DEFINED:
    if _function is not math.sqrt:  # of sizes it is torch's
        handles(_function)(functools.partial(function_of_float, function=_function))


def decided(vm: Interpreter, value: Value, function: Callable[[Any], bool]) -> Value:
    """What a function of ``math`` says of a number, which is assumed, and nothing else of it."""
    if type(value) is not FloatNumber:
        return fold(vm, function, [value], {})
    return ConstantValue(value.says(function))


for _function in (math.isnan, math.isinf, math.isfinite):
    handles(_function)(functools.partial(decided, function=_function))

__all__ = ["DEFINED", "function_of_float"]
