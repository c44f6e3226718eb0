"""Functions of ``math`` of floats that change from call to call (rates of schedulers): they are computed before the graph."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.floating import FloatNumber, operand, tame_power
from ...values.number import SymbolicNumber
from ..dispatch import fold
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

ANY: tuple[tuple[str, float], ...] = ()
#: Function -> comparisons with its argument. Where they hold it gives a float, whatever else the argument is.
DEFINED: dict[Callable[[float], float], tuple[tuple[str, float], ...]] = {
    **dict.fromkeys((math.cos, math.sin, math.tan), (("__gt__", -1e300), ("__lt__", 1e300))),
    **dict.fromkeys((math.tanh, math.atan, math.asinh, math.erf, math.erfc, math.fabs, math.radians), ()),
    math.degrees: (("__gt__", -1e300), ("__lt__", 1e300)),
    **dict.fromkeys((math.sinh, math.cosh), (("__gt__", -700.0), ("__lt__", 700.0))),
    **dict.fromkeys((math.exp, math.expm1), (("__lt__", 700.0),)),
    **dict.fromkeys((math.log, math.log2, math.log10), (("__gt__", 0.0),)),
    math.log1p: (("__gt__", -1.0),),
    **dict.fromkeys((math.gamma, math.lgamma), (("__gt__", 0.0), ("__lt__", 170.0))),
    math.cbrt: ANY,
    math.exp2: (("__lt__", 1000.0),),
    math.sqrt: (("__ge__", 0.0),),
    **dict.fromkeys((math.asin, math.acos), (("__ge__", -1.0), ("__le__", 1.0))),
}


TAME = (("__gt__", -1e150), ("__lt__", 1e150))
#: The same of functions of two numbers, for each of them.
OF_TWO: dict[Callable[[float, float], float], tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]] = {
    **dict.fromkeys((math.atan2, math.copysign), (ANY, ANY)),
    math.hypot: (TAME, TAME),
    **dict.fromkeys((math.fmod, math.remainder), (TAME, (*TAME, ("__ne__", 0.0)))),
    math.log: ((("__gt__", 0.0),), (("__gt__", 1.0),)),
}


def function_of_float(vm: Interpreter, *args: Value, function: Callable[[float], float]) -> Value:
    """A function of ``math`` of a float that changes: computed at each call where the argument is in its domain, which is guarded."""
    given = operand(vm, args[0]) if len(args) == 1 and type(args[0]) in (FloatNumber, SymbolicNumber) else None
    if not isinstance(given, FloatNumber) or not within(given, DEFINED[function]):
        return fold(vm, function, list(args), {})
    return given.applied(function)


def of_two(vm: Interpreter, *args: Value, function: Callable[..., float]) -> Value:
    """The same of a function of two numbers."""
    if function is math.log and len(args) == 1:
        return function_of_float(vm, *args, function=function)
    first, second = (operand(vm, each) for each in args) if len(args) == 2 else (None, None)
    changes = isinstance(first, FloatNumber) or isinstance(second, FloatNumber)
    if not changes or first is None or second is None or not is_defined(function, first, second):
        return fold(vm, function, list(args), {})
    name = f"math.{function.__name__}"
    if isinstance(first, FloatNumber):
        return first.computed(function, second, f"{name}({{left}}, {{right}})")
    assert isinstance(second, FloatNumber), second
    return second.computed(function, first, f"{name}({{right}}, {{left}})", swapped=True)


def is_defined(function: Callable[..., float], first: FloatNumber | float, second: FloatNumber | float) -> bool:
    """Whether a function of two numbers gives a float for these, which is assumed of those that change."""
    if function is math.pow:
        return tame_power(first, second)
    return all(within(number, limits) for number, limits in zip((first, second), OF_TWO[function], strict=True))


def within(number: FloatNumber | float, limits: Iterable[tuple[str, float]]) -> bool:
    """Whether these comparisons hold, which is assumed of a number that changes."""
    if isinstance(number, FloatNumber):
        return all(number.decide(comparison, bound) for comparison, bound in limits)
    return all(getattr(operator, comparison)(number, bound) for comparison, bound in limits)


for _function in DEFINED:
    if _function not in (math.sqrt, math.log):  # of sizes the first is torch's; the second is one of two numbers, too
        handles(_function)(functools.partial(function_of_float, function=_function))


for _both in (*OF_TWO, math.pow):
    handles(_both)(functools.partial(of_two, function=_both))


def decided(vm: Interpreter, value: Value, function: Callable[[Any], bool]) -> Value:
    """What a function of ``math`` says of a number, which is assumed, and nothing else of it."""
    if type(value) is not FloatNumber:
        return fold(vm, function, [value], {})
    return ConstantValue(value.says(function))


for _function in (math.isnan, math.isinf, math.isfinite):
    handles(_function)(functools.partial(decided, function=_function))

__all__ = ["DEFINED", "function_of_float"]
