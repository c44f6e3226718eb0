"""Floats that change from call to call: expressions over the arguments, computed by Python before the graph runs."""

from __future__ import annotations

import math
import operator
import re
from typing import Callable, Hashable

import torch

from opmill_guards.guard import Equals, SizeRelation
from opmill_guards.source import Source

from .base import COMPARISONS, MISSING, Machine, Value
from .constant import ConstantValue
from .number import Sourced, SymbolicNumber, assumed_outcome
from .sequence import TupleValue

ARITHMETIC: dict[str, tuple[str, Callable[[object, object], object]]] = {
    "__add__": ("+", operator.add), "__sub__": ("-", operator.sub), "__mul__": ("*", operator.mul), "__truediv__": ("/", operator.truediv),
    "__floordiv__": ("//", operator.floordiv), "__mod__": ("%", operator.mod),
}  # fmt: skip
REFLECTED = {f"__r{name[2:]}": name for name in ARITHMETIC}
UNARY: dict[str, tuple[str, Callable[[float], float]]] = {"__neg__": ("-", operator.neg), "__abs__": ("abs", abs)}
POWERS = ("__pow__", "__rpow__")
ITSELF = ("__pos__", "__float__")
WHOLE: dict[str, tuple[str, Callable[[float], int]]] = {
    "__int__": ("math.trunc", math.trunc), "__trunc__": ("math.trunc", math.trunc), "__floor__": ("math.floor", math.floor),
    "__ceil__": ("math.ceil", math.ceil), "__round__": ("round", round),
}  # fmt: skip
"""What gives an int: one that is not assumed either."""
ANSWERED = frozenset({*WHOLE, *UNARY, *ITSELF, *COMPARISONS, *ARITHMETIC, *REFLECTED, *POWERS, "__divmod__"})
"""Methods that are answered without assuming the value."""
OF_DATA = "of data"
"""What ``symbolic`` is of numbers that only data tell."""
OF_MATH = re.compile(r"math\.(\w+)\(")
LARGEST = 64
"""Operations in one expression; of longer ones (a sum over a loop) the values are assumed."""


def written(text: str, names: list[str], named: Callable[[object], str] | None = None) -> str:
    """An expression, where its sources have these names; ``named`` names functions of ``math``."""
    text = text if named is None else OF_MATH.sub(lambda found: f"{named(getattr(math, found[1]))}(", text)
    return text.format(*names)


class FloatNumber(Value):
    """``text``: Python over ``{0}``, ``{1}``, ..., the values of ``sources`` (each with its value now). What needs its value assumes those;
    a comparison assumes no more than its outcome."""

    symbolic = told_later = True

    def __init__(self, vm: Machine, value: float, text: str, sources: dict[Source, float], operations: int = 0) -> None:
        self.vm = vm
        self.value = value
        self.text = text
        self.sources = sources
        self.operations = operations

    def __repr__(self) -> str:
        return f"Float({written(self.text, [str(source) for source in self.sources])})"

    def python_type(self) -> type:
        return float

    def as_told(self) -> float:
        return self.value

    def constant(self) -> float:
        for source, value in self.sources.items():
            self.vm.guard(Equals(source, value))
        return self.value

    def real(self) -> object:
        return MISSING

    def describe(self) -> str:
        return f"the number {self!r}"

    def fills(self, dtype: torch.dtype) -> None:
        """It is written into a tensor of this type, which raises where the type's largest number is smaller."""
        if dtype is torch.float64:
            return
        if not (self.decide("__le__", torch.finfo(dtype).max) and self.decide("__ge__", -torch.finfo(dtype).max)):
            self.constant()

    def truth(self, vm: Machine) -> bool:
        return self.decide("__ne__", 0.0)

    def key(self, vm: Machine) -> Hashable:
        if math.isnan(self.value):
            vm.unsupported("FE028", "a NaN as a key", "which one it is decides, and differs from call to call", "use math.isnan")
        return self.constant()

    # ---- operations ------------------------------------------------------------------------------------------------

    def joined(self, other: object, template: str) -> tuple[str, dict[Source, float]]:
        """An expression of this one (``{left}``) and of another or a number (``{right}``), over the sources of both."""
        sources = dict(self.sources)
        if not isinstance(other, FloatNumber):
            return template.format(left=self.text, right=f"({other!r})"), sources
        sources.update(other.sources)
        places = [f"{{{list(sources).index(source)}}}" for source in other.sources]
        return template.format(left=self.text, right=other.text.format(*places)), sources

    def decide(self, method: str, other: object) -> bool:
        """The outcome of a comparison, which is assumed from here on."""
        theirs: Sourced = (other.value, other.text, other.sources) if isinstance(other, FloatNumber) else (other, f"({other!r})", {})
        return assumed_outcome(self.vm, method, (self.value, self.text, self.sources), theirs)

    def computed(self, function: Callable[[object, object], object], other: object, template: str, swapped: bool = False) -> Value:
        theirs = other.value if isinstance(other, FloatNumber) else other
        operations = self.operations + 1 + (other.operations if isinstance(other, FloatNumber) else 0)
        mine = self.value
        try:
            value = function(theirs, mine) if swapped else function(mine, theirs)
        except (ArithmeticError, ValueError) as exc:
            self.all_assumed(other)
            self.vm.throw_real(exc)
        if type(value) is not float or operations > LARGEST:
            self.all_assumed(other)
            return self.vm.fresh(value)
        text, sources = self.joined(other, template)
        return FloatNumber(self.vm, value, text, sources, operations)

    def applied(self, function: Callable[[float], float]) -> FloatNumber:
        """A function of ``math`` of it that is known to give a float."""
        return FloatNumber(self.vm, function(self.value), f"math.{function.__name__}({self.text})", self.sources, self.operations + 1)

    def whole(self, name: str, function: Callable[[float], int]) -> Value:
        """A function of it that gives an int."""
        try:
            value = function(self.value)
        except (ArithmeticError, ValueError) as exc:
            self.constant()
            self.vm.throw_real(exc)
        if self.operations >= LARGEST:
            return ConstantValue(function(self.constant()))
        return self.vm.recorder.computed_input(value, f"{name}({self.text})", self.sources)

    def says(self, function: Callable[[float], bool]) -> bool:
        """What a function of ``math`` says of it, which is assumed from here on."""
        outcome = function(self.value)
        relation = f"math.{function.__name__}({self.text})".format(*(f"s{i}" for i in range(len(self.sources))))
        self.vm.relations.append(SizeRelation(relation if outcome else f"not {relation}", tuple(self.sources)))
        return outcome

    def all_assumed(self, other: object) -> None:
        self.constant()
        if isinstance(other, FloatNumber):
            other.constant()

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if not hasattr(float, name):
            return None
        if name == "__bool__":
            return ConstantValue(self.truth(vm))
        if name in ITSELF:
            return self
        if name in UNARY:
            symbol, function = UNARY[name]
            return FloatNumber(vm, function(self.value), f"({symbol}({self.text}))", self.sources, self.operations + 1)
        if name in COMPARISONS or name in ARITHMETIC or name in REFLECTED:
            other = operand(vm, args[0])
            if other is None:  # of numbers those that no guard writes down: infinity, complex ones, sizes of tensors
                return self.as_constant(vm, name, args) if is_known_number(args[0]) else ConstantValue(NotImplemented)
            return ConstantValue(self.decide(name, other)) if name in COMPARISONS else self.arithmetic(name, other)
        if name in WHOLE and not args:
            return self.whole(*WHOLE[name])
        if name == "__round__" and type(args[0]) is ConstantValue and type(args[0].value) is int and self.operations < LARGEST:
            places = args[0].value
            return FloatNumber(vm, round(self.value, places), f"round({self.text}, {places})", self.sources, self.operations + 1)
        if name == "__divmod__" and (other := operand(vm, args[0])) is not None:
            return TupleValue([self.arithmetic("__floordiv__", other), self.arithmetic("__mod__", other)])
        if name in POWERS and len(args) == 1 and (other := operand(vm, args[0])) is not None:
            return self.power(other, swapped=name == "__rpow__")
        return self.as_constant(vm, name, args)

    def arithmetic(self, name: str, other: object) -> Value:
        swapped = name in REFLECTED
        name = REFLECTED.get(name, name)
        symbol, function = ARITHMETIC[name]
        below = self if swapped else other
        if symbol in ("/", "//", "%") and isinstance(below, FloatNumber):
            below.decide("__ne__", 0.0)  # division by zero raises where it stands, not before
        if isinstance(other, int) and abs(other) >= 1 << 53:
            self.constant()
        return self.computed(function, other, f"({{right}} {symbol} {{left}})" if swapped else f"({{left}} {symbol} {{right}})", swapped)

    def power(self, other: object, swapped: bool = False) -> Value:
        """A power whose result is known to be a float: other bases give complex numbers, or raise; ints give ints."""
        base, exponent = (other, self) if swapped else (self, other)
        first, second = value_of(base), value_of(exponent)
        whole = type(first) is int and type(second) is int
        if not tame_power(base, exponent) or (whole and not bounded(exponent, -1e6, -1.0)):
            self.all_assumed(other)
            found = ConstantValue(first).special(self.vm, "__pow__", [ConstantValue(second)])
            assert found is not None
            return found
        return self.computed(operator.pow, other, "({right} ** {left})" if swapped else "({left} ** {right})", swapped)

    def as_constant(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        plain = [ConstantValue(a.constant()) if a.symbolic else a for a in args]
        return ConstantValue(self.constant()).special(vm, name, plain)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if not hasattr(float, name):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "conjugate":
            return self
        if name in ANSWERED:
            result = self.special(vm, name, args)
            assert result is not None
            return result
        return ConstantValue(self.constant()).method(vm, name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "real":
            return self
        if name == "__class__" or callable(getattr(float, name, None)):
            return super().getattr(vm, name)
        if not hasattr(float, name):  # which no value has
            return ConstantValue(0.0).getattr(vm, name)
        return ConstantValue(self.constant()).getattr(vm, name)


def float_of(vm: Machine, value: float, source: Source) -> FloatNumber:
    """The tracked value of a float found at ``source`` that is not assumed."""
    return FloatNumber(vm, value, "{0}", {source: value})


def bounded(number: object, low: float, high: float) -> bool:
    """Whether a number is in this range, ends included; of one that changes that is assumed from here on."""
    if isinstance(number, FloatNumber):
        return number.decide("__ge__", low) and number.decide("__le__", high)
    assert isinstance(number, (int, float)), number
    return low <= number <= high


def as_float(vm: Machine, value: Value) -> Value:
    """A float that is computed from ints among the arguments as one that changes, from numbers that only data tell as one that the graph
    computes; other values as they are."""
    if type(value) is not SymbolicNumber or type(value.number) is not torch.SymFloat:
        return value
    found = operand(vm, value)
    if isinstance(found, FloatNumber):
        return found
    late: Value | None = vm.recorder.scalars.double_of_data(value.number) if found is None else None
    return value if late is None else late


def value_of(number: object) -> int | float:
    """What a number is now."""
    value = number.value if isinstance(number, FloatNumber) else number
    assert isinstance(value, (int, float)), value
    return value


WIDTHS = ((1e30, 8.0), (1e4, 64.0), (3.0, 600.0))
"""Of powers of which both numbers change: what is the most for the base and its reciprocal, and for the exponent."""


def tame_power(base: object, exponent: object) -> bool:
    """Whether a base and an exponent are in ranges in which the power is a float, as ``abs(exponent * log(base)) < 700`` is there, which is
    assumed of those that change."""
    first, second = value_of(base), value_of(exponent)
    if not isinstance(exponent, FloatNumber):
        high = math.exp(min(600 / max(abs(second), 1), 600))
        low = -high if second >= 0 and second == int(second) else 0.0 if second > 0 else 1 / high
        return bounded(base, low, high)
    if not isinstance(base, FloatNumber):
        return 1e-300 < first < 1e300 and bounded(exponent, -(most := 700 / max(abs(math.log(first)), 1e-10)), most)
    fitting = [(wide, most) for wide, most in WIDTHS if 1 / wide <= first <= wide and abs(second) <= most]
    return any(bounded(base, 1 / wide, wide) and bounded(exponent, -most, most) for wide, most in fitting[:1])


def is_known_number(value: Value) -> bool:
    """Whether it is a number that may be assumed."""
    known = type(value) is ConstantValue or (value.symbolic and value.symbolic is not OF_DATA)
    return bool(known) and issubclass(value.python_type(), (int, float, complex))


def operand(vm: Machine, value: Value) -> FloatNumber | float | None:
    """The other operand of an operator: an expression, or a number that can be written down; None for all else."""
    if isinstance(value, FloatNumber):
        return value
    if isinstance(value, SymbolicNumber) and (found := vm.recorder.numbers.sourced(value.number)) is not None:
        number, text, sources = found
        if not sources:
            return number
        return FloatNumber(vm, number, text, sources)
    if isinstance(value, SymbolicNumber) and isinstance(value.number, torch.SymFloat) and not value.number.node.has_hint():
        return None
    if value.symbolic is OF_DATA or (not value.symbolic and type(value) is not ConstantValue):
        return None
    plain = value.constant()
    return plain if type(plain) in (int, float, bool) and (type(plain) is not float or math.isfinite(plain)) else None
