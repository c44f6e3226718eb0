"""What stands inside ``torch.SymInt``, ``SymFloat`` and ``SymBool``: torch computes with it by calling methods by name.

The protocol is torch's (``c10::SymNodeImpl`` and its Python half). Truth is decided by the sizes of the captured call and recorded in the
environment; ``int()`` fixes the value."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import DataDependent
from . import layouts
from .facts import Relation
from .index import Index, floordiv, index, mod
from .ragged import compared, times
from .real import Operand, Real, rounded_down, rounded_up
from .sizes import Sizes
from .thresholds import Turn, turn


class Node:
    """Shared by the three kinds. ``sizes`` is the environment that its symbols belong to."""

    __slots__ = ("sizes",)
    sizes: Sizes

    def is_int(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def clone(self) -> Node:
        return self

    def wrap_int(self, value: int) -> SizeNode:
        known = self.sizes.numbers.get(value)
        if known is None or type(value) is bool:
            known = self.sizes.numbers[int(value)] = SizeNode(self.sizes, index(int(value)))
        return known

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(self.sizes, value)

    def wrap_bool(self, value: bool) -> TruthNode:
        return TruthNode(self.sizes, value)

    def str(self) -> builtins.str:
        return builtins.str(self)

    _graph_repr = __repr__ = str


class TruthNode(Node):
    """A condition on sizes: known, or a relation that is decided when somebody needs to know."""

    __slots__ = ("condition",)

    def __init__(self, sizes: Sizes, condition: bool | Relation) -> None:
        self.sizes, self.condition = sizes, condition

    def __str__(self) -> str:
        return str(self.condition)

    def is_bool(self) -> bool:
        return True

    def has_hint(self) -> bool:
        return isinstance(self.condition, bool) or self.sizes.has_hint(self.condition.expr)

    @property
    def hint(self) -> bool | None:
        if isinstance(self.condition, bool):
            return self.condition
        if not self.has_hint():
            return None
        return self.condition.holds({name: s.hint or 0 for name, s in self.sizes.symbols.items()})

    def known(self) -> bool | None:
        return self.condition if isinstance(self.condition, bool) else self.sizes.known(self.condition)

    def is_constant(self) -> bool:
        return isinstance(self.condition, bool)

    def maybe_as_bool(self) -> bool | None:
        return self.condition if isinstance(self.condition, bool) else None

    def bool_(self) -> bool:
        return self.condition if isinstance(self.condition, bool) else self.sizes.decide(self.condition)

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.bool_()

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        if isinstance(self.condition, bool) or self.has_hint():
            return self.bool_()
        typical = self.sizes.typical(self.condition)
        return self.bool_() if typical is None else typical

    def demand(self) -> bool:
        """Whether it holds; where only data tell, it is taken to, and checked when the program runs."""
        return self.condition if isinstance(self.condition, bool) else self.sizes.expect(self.condition)

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        """Torch's kernels and its autograd expect more than what eager demands: that a size is not 1, say. So this demands equality
        alone."""
        return self.demand() if isinstance(self.condition, Relation) and self.condition.kind == "==" else self.bool_()

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.known() is True

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        return self.bool_() if self.has_hint() else self.known() is True

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        return self.bool_() if self.has_hint() else self.known() is not False

    def sym_not(self) -> TruthNode:
        return TruthNode(self.sizes, not self.condition if isinstance(self.condition, bool) else self.condition.negated())

    def sym_and(self, other: TruthNode) -> TruthNode:
        return self._joined(other, True)

    def sym_or(self, other: TruthNode) -> TruthNode:
        return self._joined(other, False)

    def _joined(self, other: TruthNode, going_on: bool) -> TruthNode:
        """What the first alone does not tell (it is ``going_on``), the second does; nobody, where only data tell of the first."""
        known = self.bool_() if self.has_hint() else self.known()
        if known is None:
            if other.known() is (not going_on):
                return other
            return Undecided(self.sizes, (self, other), all if going_on else any)
        return other if known is going_on else self

    def sym_ite(self, then: Node, otherwise: Node) -> Node:
        return then if self.bool_() else otherwise

    def eq(self, other: TruthNode) -> TruthNode:
        return self.wrap_bool(self.bool_() == other.bool_())

    def ne(self, other: TruthNode) -> TruthNode:
        return self.wrap_bool(self.bool_() != other.bool_())

    def sym_float(self) -> FloatNode:
        return self.wrap_float(float(self.bool_()))

    def int_(self) -> int:
        return int(self.bool_())

    and_ = bitwise_and = sym_and
    or_ = bitwise_or = sym_or


class Undecided(TruthNode):
    """Conditions joined of which only data tell. Whether it holds whatever they are can be asked, no more."""

    __slots__ = ("join", "parts")

    def __init__(self, sizes: Sizes, parts: tuple[TruthNode, ...], join: Callable[..., bool]) -> None:
        super().__init__(sizes, False)
        self.parts, self.join = parts, join

    def __str__(self) -> str:
        return f"{self.join.__name__}({', '.join(map(str, self.parts))})"

    def has_hint(self) -> bool:
        return False

    def known(self) -> bool | None:
        found = [p.known() for p in self.parts]
        sure, possible = (self.join(x is True for x in found), self.join(x is not False for x in found))
        return sure if sure == possible else None

    def is_constant(self) -> bool:
        return False

    def maybe_as_bool(self) -> bool | None:
        return None

    def bool_(self) -> bool:
        known = self.known()
        if known is None:
            raise DataDependent(self.sizes.operator or "size", f"it asks whether {self}, of which only data tell")
        return known

    def guard_size_oblivious(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.join(p.guard_size_oblivious() for p in self.parts)

    def demand(self) -> bool:
        return self.bool_() if self.join is any else all(p.demand() for p in self.parts)

    def sym_not(self) -> TruthNode:
        return Undecided(self.sizes, tuple(p.sym_not() for p in self.parts), any if self.join is all else all)


class SizeNode(Node):
    """An integer expression over size symbols."""

    __slots__ = ("_expr",)

    def __init__(self, sizes: Sizes, expr: Index) -> None:
        self.sizes, self._expr = sizes, expr

    def __str__(self) -> str:
        return str(self.expr)

    @property
    def expr(self) -> Index:
        """In terms of symbols that no decision has tied to others."""
        return self.sizes.simplify(self._expr) if self.sizes.tied else self._expr

    @property
    def hint(self) -> int | None:
        return self.sizes.hint(self._expr) if self.has_hint() else None

    def is_int(self) -> bool:
        return True

    def has_hint(self) -> bool:
        return self.sizes.has_hint(self._expr)

    def is_constant(self) -> bool:
        return self._expr.constant is not None  # as it was made: torch replaces such a number by an int at once, and no other later

    def maybe_as_int(self) -> int | None:
        return self.expr.constant

    def int_(self) -> int:
        return self.sizes.value(self._expr)

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.sizes.value(self._expr)

    # ---- arithmetic ------------------------------------------------------------------------------------------------

    def _make(self, expr: Index) -> SizeNode:
        return SizeNode(self.sizes, expr)

    def add(self, other: SizeNode) -> SizeNode:
        return self._make(self.expr + other.expr)

    def sub(self, other: SizeNode) -> SizeNode:
        return self._make(self.expr - other.expr)

    def mul(self, other: Any) -> Any:
        return times(other, self) if other.is_nested_int() else self._make(self.expr * other.expr)

    def neg(self) -> SizeNode:
        return self._make(-self.expr)

    def pos(self) -> SizeNode:
        return self

    def abs(self) -> SizeNode:
        return self if self._at_least(index(0)) else self.neg()

    def sym_sum(self, args: Sequence[SizeNode]) -> SizeNode:
        total = index(0)
        for node in args:
            total = total + node.expr
        return self._make(total)

    def int_floordiv(self, other: SizeNode) -> SizeNode:
        return self._divided(other, floordiv)

    def mod(self, other: SizeNode) -> SizeNode:
        return self._divided(other, mod)

    floordiv = int_floordiv

    def _divided(self, other: SizeNode, function: Callable[[Index, Index], Index]) -> SizeNode:
        a, b = self.expr, other.expr
        if b.constant == 1:
            return self._make(function(a, b))
        if any((low := self.sizes.bounds(index(name))[0]) is None or low < 0 for name in a.symbols | b.symbols):
            if (by := b.constant) is not None and by > 0 and (found := self.sizes.rounded_down(a, by, function is mod)) is not None:
                return self._make(found)
            raise DataDependent(self.sizes.operator or "size", f"it divides {a} by {b}, which data may make negative")
        if self.sizes.decide(Relation(b, "==")):
            raise ZeroDivisionError("integer division or modulo by zero" if function is floordiv else "integer modulo by zero")
        if self.sizes.decide(Relation(b - 1, ">=")):
            return self._make(function(a, b))
        result = function(-a, -b)
        return self._make(-result if function is mod else result)

    def pow_by_natural(self, other: SizeNode) -> SizeNode:
        exponent = other.int_()
        if exponent > 8:
            return self.wrap_int(self.int_() ** exponent)
        result = index(1)
        for _ in range(exponent):
            result = result * self.expr
        return self._make(result)

    def lshift(self, other: SizeNode) -> SizeNode:
        return self._make(self.expr * (1 << other.int_()))

    def rshift(self, other: SizeNode) -> SizeNode:
        return self._make(floordiv(self.expr, 1 << other.int_()))

    def bitwise_and(self, other: SizeNode) -> SizeNode:
        return self.wrap_int(self.int_() & other.int_())

    def bitwise_or(self, other: SizeNode) -> SizeNode:
        return self.wrap_int(self.int_() | other.int_())

    def bitwise_xor(self, other: SizeNode) -> SizeNode:
        return self.wrap_int(self.int_() ^ other.int_())

    and_, or_ = bitwise_and, bitwise_or

    def sym_min(self, other: SizeNode) -> SizeNode:
        if (derived := self._of_data("min", other)) is not None:
            return derived
        return other if self._at_least(other.expr) else self

    def sym_max(self, other: SizeNode) -> SizeNode:
        if (derived := self._of_data("max", other)) is not None:
            return derived
        return self if self._at_least(other.expr) else other

    def _of_data(self, name: builtins.str, other: SizeNode) -> SizeNode | None:
        """The least or largest of both where only data tell which it is."""
        difference = self.expr - other.expr
        if self.sizes.has_hint(difference) or self.sizes.known(Relation(difference, ">=")) is not None:
            return None
        lows = [self.sizes.bounds(n.expr)[0] for n in (self, other)]
        found = self.sizes.derived(f"{name}({self.expr}, {other.expr})", low=min(-(1 << 63) if low is None else low for low in lows))
        self.sizes.extremes.update(dict.fromkeys(found.symbols, (name, self.expr, other.expr)))
        for each in (self, other):
            self.sizes.learn(Relation((each.expr - found) * (1 if name == "min" else -1), ">="))
        return self._make(found)

    def _at_least(self, other: Index) -> bool:
        return self.sizes.decide(Relation(self.expr - other, ">="))

    def sym_float(self) -> FloatNode:
        return FloatNode(self.sizes, Real("float", (self.expr,)))

    def int_truediv(self, other: SizeNode) -> FloatNode:
        if self.sizes.decide(Relation(other.expr, "==")):
            raise ZeroDivisionError("division by zero")
        return FloatNode(self.sizes, Real("truediv", (self.expr, other.expr)))

    truediv = int_truediv

    def sym_int(self) -> SizeNode:
        return self

    ceil = floor = trunc = sym_int

    def round(self, ndigits: int | None = None) -> SizeNode:
        return self

    def is_integer(self) -> TruthNode:
        return self.wrap_bool(True)

    # ---- comparison ------------------------------------------------------------------------------------------------

    def _compared(self, other: Any, kind: str) -> TruthNode:
        if other.is_nested_int():
            return self.wrap_bool(compared(kind))
        key = kind, self.expr, other.expr
        known = self.sizes.compared.get(key)
        if known is None:
            relation = _RELATIONS[kind](*key[1:])
            known = self.sizes.known(relation)
            if known is None:
                return TruthNode(self.sizes, relation)
            self.sizes.compared[key] = known
        return TruthNode(self.sizes, known)

    def eq(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "eq")

    def ne(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "ne")

    def ge(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "ge")

    def le(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "le")

    def gt(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "gt")

    def lt(self, other: SizeNode) -> TruthNode:
        return self._compared(other, "lt")


_RELATIONS: dict[str, Callable[[Index, Index], Relation]] = {
    "eq": lambda a, b: Relation(a - b, "=="),
    "ne": lambda a, b: Relation(a - b, "!="),
    "ge": lambda a, b: Relation(a - b, ">="),
    "le": lambda a, b: Relation(b - a, ">="),
    "gt": lambda a, b: Relation(a - b - 1, ">="),
    "lt": lambda a, b: Relation(b - a - 1, ">="),
}


class FloatNode(Node):
    """A float computed from sizes. What needs its value assumes the sizes it was computed from."""

    __slots__ = ("value",)

    def __init__(self, sizes: Sizes, value: Real | float) -> None:
        self.sizes, self.value = sizes, value

    def __str__(self) -> str:
        return str(self.value)

    @property
    def hint(self) -> float | None:
        if isinstance(self.value, Real):
            return self.value.evaluate({name: self.sizes.hint(name) for name in self.value.symbols}) if self.has_hint() else None
        return self.value

    @property
    def expr(self) -> Index:
        """Where code of torch's looks for symbols of its own, as DTensor does before it compares what layouts cost: there are none."""
        return index(0)

    def is_float(self) -> bool:
        return True

    def has_hint(self) -> bool:
        return not isinstance(self.value, Real) or all(self.sizes.symbols[name].hint is not None for name in self.value.symbols)

    def is_constant(self) -> bool:
        return False  # torch unwraps constant integers and truths only

    def maybe_as_float(self) -> float | None:
        if isinstance(self.value, Real):
            found = {name: self.sizes.simplify(index(name)).constant for name in self.value.symbols}
            known = {name: value for name, value in found.items() if value is not None}
            return self.value.evaluate(known) if len(known) == len(found) else None
        return self.value

    def guard_float(self, file: str = "", line: int = 0) -> float:
        if isinstance(self.value, Real):
            return float(self.value.evaluate({name: self.sizes.value(index(name)) for name in self.value.symbols}))
        return self.value

    def int_(self) -> int:
        return int(self.guard_float())

    def _apply(self, op: str, *others: FloatNode) -> FloatNode:
        return FloatNode(self.sizes, Real(op, (self.value, *(o.value for o in others))))

    def _rounded(self, exact: Callable[[Real], Index | None], plain: Callable[[float], int]) -> SizeNode:
        found = exact(self.value) if isinstance(self.value, Real) else None
        return SizeNode(self.sizes, found) if found is not None else self.wrap_int(plain(self.guard_float()))

    def floor(self) -> SizeNode:
        return self._rounded(rounded_down, math.floor)

    def ceil(self) -> SizeNode:
        return self._rounded(rounded_up, math.ceil)

    def trunc(self) -> SizeNode:
        downwards = self._never_negative() and (self.hint is None or self.hint >= 0)
        return self._rounded(rounded_down if downwards else lambda _: None, math.trunc)

    sym_int = trunc

    def _never_negative(self) -> bool:
        low = rounded_down(self.value) if isinstance(self.value, Real) else None
        return low is not None and self.sizes.known(Relation(low, ">=")) is True

    def round(self, ndigits: int | None = None) -> Node:
        result = round(self.guard_float(), ndigits)
        return self.wrap_int(int(result)) if ndigits is None else self.wrap_float(result)

    def is_integer(self) -> TruthNode:
        return self.wrap_bool(self.guard_float().is_integer())

    def sym_float(self) -> FloatNode:
        return self

    def pos(self) -> FloatNode:
        return self


def _float_method(op: str) -> Callable[..., FloatNode]:
    return lambda self, *others: self._apply(op, *others)


def _float_comparison(name: str) -> Callable[[FloatNode, FloatNode], TruthNode]:
    def compare(self: FloatNode, other: FloatNode) -> TruthNode:
        if name in ("ge", "lt") and other.value == 0 and self._never_negative():  # what torch asks of the base of a power
            return self.wrap_bool(name == "ge")
        found = turn(name, self.value, other.value, lambda size: self.sizes.bounds(size)[0])
        if isinstance(found, Turn):
            return self.wrap_bool(self.sizes.decide(Relation(found.size - found.least, ">=")) is found.above)
        if found is not None:
            return self.wrap_bool(found)
        return self.wrap_bool(getattr(self.guard_float(), f"__{name}__")(other.guard_float()))

    return compare


_OPERATIONS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "mod": "mod",
    "neg": "neg",
    "abs": "abs",
    "float_pow": "pow",
    "pow": "pow",
    "float_truediv": "truediv",
    "truediv": "truediv",
    "floordiv": "floordiv",
    "int_floordiv": "floordiv",
    **{f"sym_{f}": f for f in "sqrt cos cosh sin sinh tan tanh asin acos atan log2".split()},
}
for _name, _op in _OPERATIONS.items():
    setattr(FloatNode, _name, _float_method(_op))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(FloatNode, _name, _float_comparison(_name))
FloatNode.sym_min = lambda self, other: other if self.guard_float() > other.guard_float() else self  # type: ignore[attr-defined]
FloatNode.sym_max = lambda self, other: self if self.guard_float() > other.guard_float() else other  # type: ignore[attr-defined]


def _layout_question(answer: Callable[[Sequence[Any], Sequence[Any]], bool]) -> Any:
    def method(self: SizeNode, sizes: Sequence[SizeNode], strides: Sequence[SizeNode]) -> TruthNode:
        return self.wrap_bool(answer([sym_int(self.sizes, n.expr) for n in sizes], [sym_int(self.sizes, n.expr) for n in strides]))

    return method


for _name, _answer in layouts.QUESTIONS.items():
    setattr(SizeNode, _name, _layout_question(_answer))
SizeNode.is_non_overlapping_and_dense_indicator = (  # type: ignore[attr-defined]
    lambda self, sizes, strides: self.wrap_int(self.is_non_overlapping_and_dense(sizes, strides).bool_())
)


# ---- between Python's integers and expressions ---------------------------------------------------------------------


def sym_int(sizes: Sizes, expr: Index) -> Any:
    """The expression as an ``int`` where it is constant, as a ``torch.SymInt`` otherwise."""
    constant = sizes.simplify(expr).constant
    return torch.SymInt(SizeNode(sizes, expr)) if constant is None else constant


def is_symbolic(value: Any) -> bool:
    """Whether it is an integer of an environment of ours."""
    return type(value) is torch.SymInt and type(value.node) is SizeNode


def index_of(value: Any) -> Index:
    """An ``int`` or a ``torch.SymInt`` of ours as an expression. Raises TypeError for others."""
    if isinstance(value, int):
        return index(int(value))
    if is_symbolic(value):
        return value.node.expr  # type: ignore[no-any-return]
    raise TypeError(f"{value!r} is no integer of a size environment")


def sizes_of(value: Any) -> Sizes | None:
    """The environment of a ``SymInt``, ``SymFloat`` or ``SymBool`` of ours."""
    node = getattr(value, "node", None)
    return node.sizes if isinstance(node, Node) else None


__all__ = ["DataDependent", "FloatNode", "Node", "Operand", "SizeNode", "TruthNode", "index_of", "is_symbolic", "sizes_of", "sym_int"]
