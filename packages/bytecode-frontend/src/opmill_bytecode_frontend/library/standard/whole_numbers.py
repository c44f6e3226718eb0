"""Functions that give ints of ints which change from call to call (``math.gcd``, ``n.bit_length()``): computed before the graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...values.base import Value
from ...values.number import SymbolicNumber, is_int
from ...values.number import operand as number_of
from ..dispatch import fold
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

Function = Callable[..., int]
Limits = tuple[tuple[int, int], ...]
WORD = (-(1 << 62), 1 << 62)
COUNTS = (0, 4096)
"""So much is chosen from at most: what is computed of more takes time, before it is found to be too large."""
FUNCTIONS: dict[Function, tuple[tuple[int, ...], Limits]] = {
    math.gcd: ((1, 2, 3, 4), (WORD,) * 4),
    math.lcm: ((1, 2, 3, 4), (WORD,) * 4),
    math.isqrt: ((1,), ((0, 1 << 62),)),
    math.comb: ((2,), (COUNTS, COUNTS)),
    math.perm: ((1, 2), (COUNTS, COUNTS)),
    math.factorial: ((1,), ((0, 20),)),
}
"""Function -> how many numbers it takes, and in which ranges these give an int."""


def of_ints(vm: Interpreter, *args: Value, function: Function, **kwargs: Value) -> Value:
    """A function of ``math`` of ints of which some change."""
    counts, limits = FUNCTIONS[function]
    found = computed(vm, function, f"math.{function.__name__}", args, limits) if len(args) in counts and not kwargs else None
    return fold(vm, function, list(args), kwargs) if found is None else found


def computed(vm: Interpreter, function: Function, name: str, args: tuple[Value, ...], limits: Limits) -> Value | None:
    """What a function of ints gives, computed before the graph; None where none of them changes, or it cannot be."""
    numbers = [number_of(each) for each in args]
    if not any(type(each) is SymbolicNumber for each in args) or not all(map(is_int, numbers)):
        return None
    return vm.recorder.numbers.applied(vm, function, f"{name}({', '.join(['{}'] * len(args))})", numbers, limits)


def remainder_of_power(vm: Interpreter, base: Value, exponent: Value, modulus: Value) -> Value:
    """``pow(base, exponent, modulus)``."""
    found = computed(vm, pow, "pow", (base, exponent, modulus), (WORD, (0, 1 << 62), (1, 1 << 62)))
    return fold(vm, pow, [base, exponent, modulus], {}) if found is None else found


def rounded_to(vm: Interpreter, number: Value, digits: Value) -> Value | None:
    """``round(number, digits)`` of an int that changes; None of other numbers."""
    return computed(vm, round, "round", (number, digits), (WORD, (-18, 18))) if type(number) is SymbolicNumber else None


for _function in FUNCTIONS:
    handles(_function)(functools.partial(of_ints, function=_function))

__all__ = ["FUNCTIONS", "remainder_of_power", "rounded_to"]
