"""Ints and floats computed from sizes that are not assumed: expressions over size symbols."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Hashable

import torch

from opmill_fake_tensors.symbols import Relation
from opmill_guards.guard import SizeRelation
from opmill_guards.source import Source

from .assertions import demanded, may_demand, raising
from .base import COMPARISONS, MISSING, Machine, Value
from .constant import ConstantValue
from .sequence import TupleValue

UNARY: dict[str, Callable[[Any], object]] = {
    "__neg__": operator.neg,
    "__pos__": operator.pos,
    "__abs__": abs,
    "__index__": lambda n: n,
    "__int__": lambda n: n if is_int(n) else math.trunc(n),
    "__float__": torch.sym_float,
    "__floor__": math.floor,
    "__ceil__": math.ceil,
    "__trunc__": math.trunc,
    "__invert__": lambda n: -n - 1,
}
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
BINARY: dict[str, Callable[[object, object], object]] = {
    **{f"__{name}__": getattr(operator, name) for name in ARITHMETIC},
    **{name: getattr(operator, name) for name in COMPARISONS},
}
REFLECTED = {f"__r{name}__": f"__{name}__" for name in ARITHMETIC}
FLOATS_EXACTLY = frozenset(f"__{name}__" for name in ("add", "sub", "mul", "truediv", "pow"))
"""Operations whose symbolic form computes with floats what Python computes."""


ROUNDING = ("__int__", "__trunc__", "__floor__", "__ceil__", "__round__")
WHOLE = {"__pow__": "**", "__lshift__": "<<", "__rshift__": ">>", "__and__": "&", "__or__": "|", "__xor__": "^"}
"""Operations of ints of which sizes have no expressions: computed before the graph."""
WHOLE_REFLECTED = {f"__r{name[2:]}": name for name in WHOLE}


OF_BITS = ("bit_length", "bit_count")
"""Methods of ints that are computed before the graph."""
#: A number in this call, Python that computes it from ``{0}``, ``{1}``, ..., and the sources of these with their values.
Sourced = tuple[Any, str, dict[Source, Any]]


def is_int(number: object) -> bool:
    """Whether a number is an integer, symbolic or not."""
    return isinstance(number, (int, torch.SymInt))


#: What these give one after the other.
DIVMOD = {"__divmod__": ("__floordiv__", "__mod__"), "__rdivmod__": ("__rfloordiv__", "__rmod__")}


class SymbolicNumber(Value):
    """``number``: a ``torch.SymInt`` or ``torch.SymFloat``. What needs its value assumes it; the environment of sizes records that."""

    symbolic = told_later = True

    def __init__(self, number: Any, source: Source | None = None, obj: object = None) -> None:
        self.number = number
        self.source = source
        self.obj = obj
        self.node: Any = None
        self.computed: Sourced | None = None
        """What it is, where it is computed before the graph, from numbers that are no ints."""

    def __repr__(self) -> str:
        return f"Number({self.number})"

    def python_type(self) -> type:
        return int if type(self.number) is torch.SymInt else float

    def as_told(self) -> object:
        return 12 if type(self.number) is torch.SymInt else 1.5

    def constant(self) -> object:
        return int(self.number) if type(self.number) is torch.SymInt else self.number.node.guard_float()

    def real(self) -> object:
        return MISSING

    def describe(self) -> str:
        return f"the number {self.source or self.number}"

    def truth(self, vm: Machine) -> bool:
        return vm.truth(vm.fresh(self.number != 0))

    def key(self, vm: Machine) -> Hashable:
        return self.constant()

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if not hasattr(self.python_type(), name):
            return None
        if name == "__bool__":
            return ConstantValue(self.truth(vm))
        if name in ROUNDING and not args and (rounded := vm.recorder.numbers.rounded(vm, name, self.number)) is not None:
            return rounded
        if name in UNARY and not args and (name != "__invert__" or is_int(self.number)):
            return self._computed(vm, name, UNARY[name], self.number)
        operation = REFLECTED.get(name, name)
        if (exact := WHOLE_REFLECTED.get(name, name)) in WHOLE and (mine := operand(args[0])) is not None:
            pair = (mine, self.number) if name in WHOLE_REFLECTED else (self.number, mine)
            if (known := vm.recorder.numbers.whole(vm, exact, *pair)) is not None:
                return known
        if operation not in BINARY and name not in DIVMOD:
            return self._as_constant(vm, name, args)
        other = operand(args[0])
        if other is None:
            return ConstantValue(NotImplemented)
        mine = self.number
        if operation == "__pow__" and (found := vm.recorder.numbers.power(vm, *((other, mine) if name in REFLECTED else (mine, other)))):
            return found
        if name in DIVMOD:
            whole = is_int(mine) and is_int(other)  # of others Python's texts are their own
            parts = [self.special(vm, part, args) for part in DIVMOD[name]] if whole else []
            return TupleValue(parts) if whole else self._as_constant(vm, name, args)
        if (
            operation in COMPARISONS
            and not (is_int(mine) and is_int(other))
            and (outcome := compared(vm, operation, mine, other)) is not None
        ):
            return ConstantValue(outcome)
        if not (is_int(mine) and is_int(other)) and operation not in FLOATS_EXACTLY:
            mine, other = self.constant(), args[0].constant()  # by the operator: neither number's own method knows the other kind
        pair = (other, mine) if name in REFLECTED else (mine, other)
        if operation == "__truediv__":
            check_divisor(vm, *pair)
        return self._computed(vm, name, BINARY[operation], *pair)

    def _computed(self, vm: Machine, name: str, function: Callable[..., object], *operands: object) -> Value:
        try:
            return vm.fresh(function(*operands))
        except (ZeroDivisionError, OverflowError, ValueError) as exc:
            vm.throw_real(exc)

    def _as_constant(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        plain = [ConstantValue(a.constant()) if isinstance(a, SymbolicNumber) else a for a in args]
        return ConstantValue(self.constant()).special(vm, name, plain)

    def find_method(self, name: str) -> Callable[..., Any] | None:
        if not hasattr(self.python_type(), name):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in BINARY or name in REFLECTED or name in UNARY or name in DIVMOD:
            result = self.special(vm, name, args)
            assert result is not None
            return result
        if name in OF_BITS and not args and not kwargs and is_int(self.number):
            known = vm.recorder.numbers.applied(vm, getattr(int, name), f"{{}}.{name}()", [self.number])
            if known is not None:
                return known
        return ConstantValue(self.constant()).method(vm, name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name in ("real", "numerator") and is_int(self.number):
            return self
        if name == "__class__" or callable(getattr(self.python_type(), name, None)):
            return super().getattr(vm, name)
        kind = self.python_type()
        return ConstantValue(self.constant() if hasattr(kind, name) else kind()).getattr(vm, name)


class UndecidedTruth(Value):
    """A condition on sizes that only data tell: it may leave the capture, and ``torch._check`` may demand it."""

    def __init__(self, number: torch.SymBool) -> None:
        self.number = number

    def python_type(self) -> type:
        return bool

    def describe(self) -> str:
        return f"the condition {self.number}"

    def real(self) -> object:
        return MISSING

    def truth(self, vm: Machine) -> bool:
        if may_demand(vm) and (way := raising(vm)) is not None:
            return demanded(vm, self.number.node.condition, way)
        names = sorted(self.number.node.condition.expr.symbols)
        symbols = vm.recorder.numbers.sizes.symbols
        origins = "; ".join(f"{name} is {symbols[name].origin}" for name in names if symbols[name].hint is None)
        hint = "torch._check(condition) demands it and goes on; torch.where chooses without deciding"
        vm.unsupported("FE037", f"a decision on {self.number}", f"only data tell: {origins}", hint)

    def key(self, vm: Machine) -> Hashable:
        return self.truth(vm)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        self.truth(vm)
        return None

    def find_method(self, name: str) -> Callable[..., Any] | None:
        return (lambda vm, *args, **kwargs: self.truth(vm)) if hasattr(bool, name) else None


def check_divisor(vm: Machine, dividend: object, divisor: object) -> None:
    """Division by zero raises: where only data tell what the divisor is, the graph checks that it is none."""
    if not isinstance(divisor, (torch.SymInt, torch.SymFloat)) or divisor.node.has_hint():
        return
    whole = vm.recorder.numbers.float_of(divisor) if isinstance(divisor, torch.SymFloat) else divisor
    if whole is None:
        late = vm.recorder.scalars.double_of_data(torch.sym_float(divisor))
        vm.fresh(divisor).constant() if late is None else late.check_divisor(vm, late.tensor)
        return
    holds = whole != 0
    known = holds if isinstance(holds, bool) else holds.node.known()
    if known is None and not may_demand(vm):
        UndecidedTruth(holds).truth(vm)
    if known is None:
        both = is_int(dividend) and is_int(divisor)
        demanded(vm, holds.node.condition, (False, "ZeroDivisionError", "division by zero" if both else "float division by zero"))


def extreme_of_data(one: Value, other: Value, op: str) -> Value | None:
    """The smaller (``<``) or larger of two integers, where only data tell which it is; None of others."""
    if any(number.python_type() is not int for number in (one, other)):
        return None
    left, right = operand(one), operand(other)
    if not is_int(left) or not is_int(right) or not (isinstance(left, torch.SymInt) or isinstance(right, torch.SymInt)):
        return None
    decided = BINARY["__lt__"](left, right)
    if not isinstance(decided, torch.SymBool) or decided.node.has_hint() or decided.node.known() is not None:
        return None
    return symbolic_number((torch.sym_min if op == "<" else torch.sym_max)(left, right))


def compared(vm: Machine, operation: str, left: object, right: object) -> bool | None:
    """The outcome of a comparison with floats, which is all that is assumed from here on; None where it cannot be assumed alone."""
    mine, other = (vm.recorder.numbers.sourced(number) for number in (left, right))
    return None if mine is None or other is None else assumed_outcome(vm, operation, mine, other)


def assumed_outcome(vm: Machine, method: str, left: Sourced, right: Sourced) -> bool:
    """The outcome of a comparison, which is assumed from here on, and nothing else of the numbers."""
    outcome = bool(getattr(operator, method)(left[0], right[0]))
    known = list({**left[2], **right[2]})
    texts = [text.format(*(f"s{known.index(source)}" for source in sources)) for _, text, sources in (left, right)]
    relation = f"{texts[0]} {COMPARISONS[method]} {texts[1]}"
    if known:  # else what was assumed before tells
        vm.relations.append(SizeRelation(relation if outcome else f"not ({relation})", tuple(known)))
    return outcome


def operand(value: Value) -> object:
    """The number that a value is, symbolic or not; None for what is no real number."""
    if isinstance(value, SymbolicNumber):
        return value.number
    if type(value) is ConstantValue and type(value.value) in (int, float, bool):
        return int(value.value) if type(value.value) is bool else value.value
    return None


def symbolic_number(found: Any) -> Value:
    """The tracked value of what torch computed from sizes: a truth is decided, a number that is known a constant."""
    if type(found) is torch.SymBool:
        if not found.node.has_hint() and found.node.known() is None and isinstance(found.node.condition, Relation):
            return UndecidedTruth(found)
        return ConstantValue(bool(found))
    known = found.node.maybe_as_int() if type(found) is torch.SymInt else found.node.maybe_as_float()
    return SymbolicNumber(found) if known is None else ConstantValue(known)
