"""Activations, fillings and comparisons of one tensor with floats that are not assumed, by operators that take tensors for them. Each gives
what torch gives, and has its gradient, also where an operand stands at the edge between two cases."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.floating import FloatNumber
from ..values.sequence import TupleValue
from ..values.tensor import TensorValue
from .open_scalars import Given, Rule, in_place, scalar

if TYPE_CHECKING:
    from .recorder import Recorder

ZERO, ONE = ConstantValue(0.0), ConstantValue(1.0)


def call(recorder: Recorder, function: object, *args: Value, **kwargs: Value) -> Value:
    """What an operator gives."""
    return recorder.call_function(recorder.vm, function, list(args), kwargs)


def scalars(recorder: Recorder, x: TensorValue, given: Given, **defaults: Value) -> list[Value] | None:
    """The tensors that stand for these operands; None where one cannot be, or the operator writes to its tensor."""
    found = [scalar(recorder, given.get(name, default), x) for name, default in defaults.items()]
    return None if in_place(given) or any(one is None for one in found) else [one for one in found if one is not None]


def is_finite(number: Value | None) -> bool:
    """Whether a number is finite, which is assumed from here on of one that changes; of one that data tell nobody knows."""
    if isinstance(number, FloatNumber):
        return number.says(math.isfinite)
    return number is None or (type(number) is ConstantValue and type(number.value) in (int, float) and math.isfinite(number.value))


def tame(given: Given, *names: str) -> bool:
    """Whether operands are finite: what torch computes in the case that is not taken would else be no number, and so would gradients."""
    return all(is_finite(given.get(name)) for name in names)


def is_positive(number: Value | None) -> bool:
    """Whether a number is greater than 0, and finite."""
    return isinstance(number, FloatNumber) and number.decide("__gt__", 0.0) and is_finite(number)


def in_order(low: Value | None, high: Value | None) -> bool:
    """Whether one number is not greater than another, which is assumed from here on; None is -1 or 1."""
    left, right = (each.value if isinstance(each, ConstantValue) else each for each in (low or ConstantValue(-1.0), high or ONE))
    if isinstance(left, FloatNumber):
        return left.decide("__le__", right)
    return right.decide("__ge__", left) if isinstance(right, FloatNumber) else False


def elu(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x > 0 ? x : alpha * (exp(x) - 1); both the number and the exponential are rounded by themselves, as in torch."""
    numbers = scalars(recorder, x, given, alpha=ONE) if tame(given, "alpha") else None
    if numbers is None:
        return None
    return call(
        recorder, torch.where, call(recorder, operator.gt, x, ZERO), x, call(recorder, operator.mul, call(recorder, F.elu, x), *numbers)
    )


def celu(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x > 0 ? x : alpha * (exp(x / alpha) - 1), by the reciprocal of alpha as in torch."""
    alpha = given.get("alpha")
    if in_place(given) or not isinstance(alpha, FloatNumber) or not is_positive(alpha):
        return None
    below = alpha.special(recorder.vm, "__rtruediv__", [ONE])
    numbers = scalars(recorder, x, {"alpha": alpha, "below": below} if below is not None else {}, alpha=ONE, below=ONE)
    if numbers is None:
        return None
    inner = call(recorder, operator.mul, x, numbers[1])
    least = call(recorder, operator.mul, call(recorder, F.elu, inner), numbers[0])
    return call(recorder, torch.where, call(recorder, operator.gt, x, ZERO), x, least)


def softplus(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x * beta > threshold ? x : log(1 + exp(x * beta)) / beta"""
    beta, threshold = given.get("beta", ONE), given.get("threshold", ConstantValue(20))
    if isinstance(beta, FloatNumber) and not is_positive(beta):
        return None
    if isinstance(threshold, FloatNumber) and not threshold.decide("__le__", AS_IT_IS):
        return None
    numbers = scalars(recorder, x, {"beta": beta, "threshold": threshold}, beta=ONE, threshold=ONE)
    if numbers is None:
        return None
    least = ConstantValue(AS_IT_IS) if isinstance(threshold, FloatNumber) else threshold
    inner = call(recorder, operator.mul, x, numbers[0])
    soft = call(recorder, operator.truediv, call(recorder, F.softplus, inner, ONE, least), numbers[0])
    return call(recorder, torch.where, call(recorder, operator.gt, inner, numbers[1]), x, soft)


AS_IT_IS = 20.0
"""From here on log(1 + exp(x)) is x."""


def hardtanh(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x <= low ? low : x >= high ? high : x; at both ends there is no gradient, which clamp has."""
    low, high = given.get("min_val"), given.get("max_val")
    numbers = scalars(recorder, x, given, min_val=ConstantValue(-1.0), max_val=ONE) if tame(given, "min_val", "max_val") else None
    if numbers is None or not in_order(low, high):
        return None
    above = call(recorder, torch.where, call(recorder, operator.ge, x, numbers[1]), numbers[1], x)
    return call(recorder, torch.where, call(recorder, operator.le, x, numbers[0]), numbers[0], above)


def within(recorder: Recorder, x: TensorValue, limit: Value) -> Value:
    """-limit <= x <= limit"""
    least = call(recorder, operator.neg, limit)
    return call(recorder, operator.and_, call(recorder, operator.ge, x, least), call(recorder, operator.le, x, limit))


def hardshrink(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """-limit <= x <= limit ? 0 : x"""
    numbers = scalars(recorder, x, given, lambd=ConstantValue(0.5)) if tame(given, "lambd") else None
    return None if numbers is None else call(recorder, torch.where, within(recorder, x, *numbers), ZERO, x)


def softshrink(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """-limit <= x <= limit ? 0 : x > 0 ? x - limit : x + limit, for limits that torch takes."""
    limit = given.get("lambd")
    if not isinstance(limit, FloatNumber) or not limit.decide("__ge__", 0.0) or not is_finite(limit):
        return None
    numbers = scalars(recorder, x, given, lambd=ONE)
    if numbers is None:
        return None
    less, more = (call(recorder, operation, x, *numbers) for operation in (operator.sub, operator.add))
    shrunk = call(recorder, torch.where, call(recorder, operator.gt, x, ZERO), less, more)
    return call(recorder, torch.where, within(recorder, x, *numbers), ZERO, shrunk)


def beside(function: Callable[..., torch.Tensor], *names: str, positive: bool = False) -> Rule:
    """``function(x, number, ...)``, which takes tensors in place of these; ``positive``: where these are."""

    def rule(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
        if positive and not all(is_positive(given.get(name)) for name in names):
            return None
        numbers = scalars(recorder, x, given, **dict.fromkeys(names, ZERO))
        rest = {name: value for name, value in given.items() if name not in names}
        return None if numbers is None or len(rest) > 1 else call(recorder, function, x, *numbers, **rest)

    return rule


def writing(name: str, *names: str) -> Rule:
    """The method of that name, which writes to its tensor; what is not said is None."""

    def rule(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
        numbers = scalars(recorder, x, given, **dict.fromkeys(names, ConstantValue(None)))
        return None if numbers is None else recorder.call_method(recorder.vm, name, [x, *numbers], {})

    return rule


def filled(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """A new tensor of the form of ``x``, or of its kind and of a ``size``, with the number in each place."""
    vm, size = recorder.vm, given.get("size")
    made = call(recorder, torch.empty_like, x) if size is None else recorder.call_method(vm, "new_empty", [x, size], {})
    if type(made) is not TensorValue or not made.fake.dim():
        return None
    return recorder.call_method(vm, "fill_", [made, given["fill_value"]], {})


def put_by_index(name: str) -> Rule:
    """A method that puts one number at places along a dimension, which takes a tensor for it: one for each place where it scatters."""

    def rule(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
        numbers, index = scalars(recorder, x, given, value=ZERO), given.get("index")
        if numbers is None or type(index) is not TensorValue or set(given) != {"dim", "index", "value"}:
            return None
        put = [recorder.call_method(recorder.vm, "expand_as", [*numbers, index], {})] if name.startswith("scatter") else numbers
        return recorder.call_method(recorder.vm, name, [x, given["dim"], index, *put], {})

    return rule


def renorm(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """x * (norm > most ? most / (norm + 1e-7) : 1), the norm being that of each part along a dimension."""
    most, power, dim = given.get("maxnorm"), given.get("p"), given.get("dim")
    if not isinstance(most, FloatNumber) or not most.decide("__ge__", 0.0) or not is_finite(most) or in_place(given):
        return None
    if type(power) is not ConstantValue or type(dim) is not ConstantValue or not -x.fake.dim() <= dim.value < x.fake.dim():
        return None
    if type(power.value) not in (int, float) or power.value <= 0 or x.fake.dim() < 2 or not x.fake.is_contiguous():
        return None
    numbers = scalars(recorder, x, given, maxnorm=ONE)
    if numbers is None:
        return None
    rest = TupleValue([ConstantValue(d) for d in range(x.fake.dim()) if d != dim.value % x.fake.dim()])
    norm = call(recorder, torch.linalg.vector_norm, x, power, rest, ConstantValue(True))
    factor = call(recorder, operator.truediv, *numbers, call(recorder, operator.add, norm, ConstantValue(1e-7)))
    return call(recorder, operator.mul, x, call(recorder, torch.where, call(recorder, operator.gt, norm, *numbers), factor, ONE))


def norm(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """The sum of abs(x) ** p, to the power of 1 / p. That of nothing but zeros is 0, and has no gradient."""
    vm, power, dims = recorder.vm, given.get("ord"), given.get("dim", ConstantValue(None))
    if not isinstance(power, FloatNumber) or not power.decide("__gt__", 1.0) or not power.decide("__lt__", 100.0) or "out" in given:
        return None
    numbers = scalars(recorder, x, {"power": power, "root": power.arithmetic("__rtruediv__", 1)}, power=ONE, root=ONE)
    if numbers is None:
        return None
    if isinstance(dims, ConstantValue) and dims.value is None:
        dims = TupleValue([ConstantValue(d) for d in range(x.fake.dim())])
    powers = call(recorder, torch.pow, call(recorder, torch.abs, x), numbers[0])
    total = recorder.call_method(vm, "sum", [powers, dims, given.get("keepdim", ConstantValue(False))], {})
    nothing = call(recorder, operator.eq, total, ZERO)
    return call(
        recorder, torch.where, nothing, ZERO, call(recorder, torch.pow, call(recorder, torch.where, nothing, ONE, total), numbers[1])
    )


def norm_along(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """The norm along one dimension; of two it would be that of matrices."""
    dim = given.get("dim")
    return norm(recorder, x, given) if isinstance(dim, ConstantValue) and type(dim.value) is int else None


def norm_of_it(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """The method ``norm``."""
    return norm(recorder, x, {{"p": "ord"}.get(name, name): value for name, value in given.items()})


def distance(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """The norm of a difference."""
    other, power = given.get("other"), given.get("p")
    if type(other) is not TensorValue or other.fake.dtype is not x.fake.dtype or power is None or not other.fake.dim():
        return None
    difference = call(recorder, operator.sub, x, other)
    return norm(recorder, difference, {"ord": power}) if type(difference) is TensorValue else None


def logit(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """The logit of x, which is kept between eps and 1 - eps."""
    eps = given.get("eps")
    if not isinstance(eps, FloatNumber) or not eps.decide("__gt__", 0.0) or not eps.decide("__le__", 0.5):
        return None
    numbers = scalars(recorder, x, {"low": eps, "high": eps.arithmetic("__rsub__", 1)}, low=ZERO, high=ONE)
    return None if numbers is None else call(recorder, torch.logit, call(recorder, torch.clamp, x, *numbers))


def added_by_index(name: str) -> Rule:
    """A method that adds a number times a tensor at places along a dimension."""

    def rule(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
        source = given.get("source")
        if set(given) != {"dim", "index", "source", "alpha"} or type(source) is not TensorValue or source.fake.dtype is not x.fake.dtype:
            return None
        scaled = call(recorder, operator.mul, source, given["alpha"])
        return recorder.call_method(recorder.vm, name, [x, given["dim"], given["index"], scaled], {})

    return rule


def is_that(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """Which items are the number, or with ``invert`` which are not, in rows."""
    inverted, number = given.get("invert", ConstantValue(False)), given.get("test_elements")
    if not isinstance(inverted, ConstantValue) or number is None:
        return None
    made = call(recorder, operator.ne if inverted.value else operator.eq, x, number)
    return made if x.fake.is_contiguous() else recorder.call_method(recorder.vm, "contiguous", [made], {})


def of_its_type(recorder: Recorder, x: TensorValue, given: Given) -> Value | None:
    """A tensor of the type of ``x`` that holds the number."""
    numbers = scalars(recorder, x, given, data=ZERO) if set(given) == {"data"} else None
    return None if numbers is None else recorder.call_method(recorder.vm, "clone", numbers, {})


DIVIDED = ("other", "rounding_mode")
ADDED = ("dim", "index", "source", "alpha")
ROWS: dict[object, tuple[tuple[str, ...], Rule]] = {
    **dict.fromkeys((F.elu, torch._C._nn.elu), (("alpha", "inplace"), elu)),
    **dict.fromkeys((F.celu, torch.celu), (("alpha", "inplace"), celu)),
    F.softplus: (("beta", "threshold"), softplus),
    **dict.fromkeys((F.hardtanh, torch._C._nn.hardtanh), (("min_val", "max_val", "inplace"), hardtanh)),
    **dict.fromkeys((F.hardshrink, torch.hardshrink), (("lambd",), hardshrink)),
    F.softshrink: (("lambd",), softshrink),
    **dict.fromkeys((torch.div, torch.divide, "div", "divide"), (DIVIDED, beside(torch.div, "other"))),
    **dict.fromkeys((torch.copysign, "copysign"), (("other",), beside(torch.copysign, "other"))),
    **dict.fromkeys((torch.xlogy, torch.special.xlogy, "xlogy"), (("other",), beside(torch.xlogy, "other", positive=True))),
    **dict.fromkeys((torch.true_divide, "true_divide"), (("other",), beside(torch.div, "other"))),
    **dict.fromkeys((torch.special.xlog1py,), (("other",), beside(torch.special.xlog1py, "other", positive=True))),
    **dict.fromkeys((torch.special.zeta,), (("other",), beside(torch.special.zeta, "other", positive=True))),
    **dict.fromkeys((torch.renorm, "renorm"), (("p", "dim", "maxnorm"), renorm)),
    torch.linalg.vector_norm: (("ord", "dim", "keepdim"), norm),
    torch.linalg.norm: (("ord", "dim", "keepdim"), norm_along),
    "norm": (("p", "dim", "keepdim"), norm_of_it),
    **dict.fromkeys((torch.dist, "dist"), (("other", "p"), distance)),
    **dict.fromkeys((torch.logit, torch.special.logit, "logit"), (("eps",), logit)),
    **dict.fromkeys(("index_add", torch.index_add), (ADDED, added_by_index("index_add"))),
    "index_add_": (ADDED, added_by_index("index_add_")),
    "new_tensor": (("data",), of_its_type),
    torch.isin: (("test_elements",), is_that),
    torch.full_like: (("fill_value",), filled),
    "new_full": (("size", "fill_value"), filled),
    **dict.fromkeys(("clamp_", "clip_"), (("min", "max"), writing("clamp_", "min", "max"))),
    "clamp_min_": (("min",), writing("clamp_", "min")),
    "clamp_max_": (("max",), writing("clamp_", "min", "max")),
    **dict.fromkeys(("index_fill", torch.index_fill), (("dim", "index", "value"), put_by_index("index_fill"))),
    "index_fill_": (("dim", "index", "value"), put_by_index("index_fill_")),
    **dict.fromkeys(("scatter", torch.scatter), (("dim", "index", "value"), put_by_index("scatter"))),
    "scatter_": (("dim", "index", "value"), put_by_index("scatter_")),
}

__all__ = ["ROWS"]
