"""Operators of one tensor whose other operands are floats that are not assumed: each as operators that take tensors without dimensions in
their place, and compute the same from them as torch does from Python's floats."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.floating import FloatNumber, as_float
from ..values.tensor import TensorValue
from .open_activations import ROWS
from .open_scalars import Given, Rule, changes, in_place, scalar
from .operands import is_plain

if TYPE_CHECKING:
    from .recorder import Recorder


def between(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """clamp(x, a, b): a bound is rounded to the type of x, and one that is NaN makes all of it NaN, whichever form it has."""
    low, high = (scalar(recorder, given.get(name), x) for name in ("min", "max"))
    return None if low is None or high is None else recorder.call_function(recorder.vm, torch.clamp, [x, low, high], {})


def from_below(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """clamp_min(x, a)"""
    return between(recorder, x, {"min": given["bound"]})


def from_above(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """clamp_max(x, b)"""
    return between(recorder, x, {"max": given["bound"]})


def leaky(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x > 0 ? x : x * slope, which is what ``prelu`` computes."""
    slope = None if in_place(given) else scalar(recorder, given.get("negative_slope"), x)
    return None if slope is None else recorder.call_function(recorder.vm, torch.prelu, [x, slope], {})


def replaced_below(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x <= threshold ? value : x"""
    limit, value = (None if in_place(given) else scalar(recorder, given.get(name), x) for name in ("threshold", "value"))
    if limit is None or value is None:
        return None
    return recorder.call_function(
        recorder.vm, torch.where, [recorder.call_function(recorder.vm, operator.le, [x, limit], {}), value, x], {}
    )


SQUARES = (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5)
"""Exponents for which torch has a way of its own to compute a power."""


def to_the_power(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x ** number"""
    number = given["exponent"]
    if not isinstance(number, FloatNumber) or not all(number.decide("__ne__", known) for known in SQUARES):
        return None
    exponent = scalar(recorder, number, x)
    return None if exponent is None else recorder.call_function(recorder.vm, torch.pow, [x, exponent], {})


def power_of(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """number ** x, which is contiguous whatever x is."""
    base = scalar(recorder, given["exponent"], x)
    if base is None:
        return None
    dense = x if x.fake.is_contiguous() else recorder.call_method(recorder.vm, "contiguous", [x], {})
    return recorder.call_function(recorder.vm, torch.pow, [base, dense], {})


ONE = ConstantValue(1)


def is_ordinary(number: Value) -> bool:
    """Whether a factor is finite, and none for which torch leaves out what it stands before, as it does for 0."""
    if isinstance(number, FloatNumber):
        return number.decide("__ne__", 0.0) and number.says(math.isfinite)
    return type(number) is ConstantValue and type(number.value) in (int, float) and number.value != 0


def product(function: Callable[..., torch.Tensor], summed: bool = False) -> Rule:
    """beta * x + alpha * function(a, b); ``summed``: of what it gives, the sum along the first dimension."""

    def rule(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
        vm, beta = recorder.vm, given.get("beta", ONE)
        left, right = given["left"], given["right"]
        if not (x.fake.is_contiguous() or x.fake.dim() == 1) or not all(is_ordinary(number) for number in (beta, given.get("alpha", ONE))):
            return None
        if any(type(t) is not TensorValue or t.fake.dtype is not x.fake.dtype or not is_plain(t) for t in (left, right)):
            return None
        made = recorder.call_function(vm, function, [left, right], {})
        made = recorder.call_method(vm, "sum", [made, ConstantValue(0)], {}) if summed else made
        made = recorder.call_function(vm, torch.mul, [made, given.get("alpha", ONE)], {})
        return recorder.call_function(vm, torch.add, [recorder.call_function(vm, torch.mul, [x, beta], {}), made], {})

    return rule


# The names of what comes behind the tensor, and the rule; by the functions and methods that mean it.
CLAMPED, BOUND, SCALED = ("min", "max"), ("bound",), ("left", "right")
RULES: dict[object, tuple[tuple[str, ...], Rule]] = {
    **ROWS,
    **dict.fromkeys(("clamp", "clip", torch.clamp, torch.clip), (CLAMPED, between)),
    **dict.fromkeys(("clamp_min", torch.clamp_min), (BOUND, from_below)),
    **dict.fromkeys(("clamp_max", torch.clamp_max), (BOUND, from_above)),
    **dict.fromkeys((F.leaky_relu, torch._C._nn.leaky_relu), (("negative_slope", "inplace"), leaky)),
    **dict.fromkeys((F.threshold, torch.threshold), (("threshold", "value", "inplace"), replaced_below)),
    **dict.fromkeys(("pow", torch.pow, operator.pow), (("exponent",), to_the_power)),
    **dict.fromkeys(("addmm", torch.addmm), (SCALED, product(torch.mm))),
    **dict.fromkeys(("baddbmm", torch.baddbmm), (SCALED, product(torch.bmm))),
    **dict.fromkeys(("addbmm", torch.addbmm), (SCALED, product(torch.bmm, summed=True))),
    **dict.fromkeys(("addmv", torch.addmv), (SCALED, product(torch.mv))),
    **dict.fromkeys(("addr", torch.addr), (SCALED, product(torch.outer))),
}
KEYWORDS = {
    "assume_unique",
    "invert",
    "test_elements",
    "maxnorm",
    "ord",
    "keepdim",
    "p",
    "eps",
    "source",
    "data",
    "lambd",
    "min_val",
    "max_val",
    "other",
    "rounding_mode",
    "fill_value",
    "size",
    "dim",
    "index",
    "negative_slope",
    "threshold",
    "value",
    "inplace",
    "min",
    "max",
    "alpha",
    "beta",
    "exponent",
    "input",
}
WIDE = (torch.float32, torch.float64)
"""Types in which torch computes what a tensor of such a type gives."""


def opened(recorder: Recorder, target: object, args: Sequence[Value], kwargs: Given) -> Value | None:
    """What an operator gives for floats that are not assumed; None where these have to be assumed, or none is there."""
    found = RULES.get(target) if isinstance(target, Hashable) else None  # functions of C++ libraries need not be
    if found is None or not KEYWORDS.issuperset(kwargs):
        return None
    args, kwargs = [as_float(recorder.vm, a) for a in args], {name: as_float(recorder.vm, a) for name, a in kwargs.items()}
    if not any(map(changes, (*args, *kwargs.values()))):
        return None
    names, rule = found
    if rule is to_the_power and len(args) == 2 and changes(args[0]):  # the base: what torch makes of a number there is such a tensor
        rule, args = power_of, args[::-1]
    given = {**dict(zip(("input", *names), args)), **kwargs}
    x = given.pop("input", None)
    if type(x) is not TensorValue or len(args) > len(names) + 1 or x.fake.dtype not in WIDE or not x.fake.dim():
        return None
    open_ = [each for each in given.values() if changes(each)]
    return rule(recorder, x, given) if all(recorder.scalars.takes(x, each) for each in open_) else None


__all__ = ["RULES", "WIDE", "changes", "opened"]
