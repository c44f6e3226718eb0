"""Python's operators over tracked values: which method of which operand is tried, and what comes after it."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TypeGuard, cast

from ..breaks.returning import Operated, method_of
from ..effects.reads import note_attribute
from ..entry.limits import check_growth
from ..values.base import MISSING, NUMBERS_KNOWN, Machine, Value, class_has, name_in_c, number_in, written_in_python
from ..values.constant import ConstantValue, is_nan
from ..values.objects import ObjectValue, find_in_mro
from ..values.overriding import OverridingTensor
from ..values.sequence import demanded_index
from ..values.tensor import TensorValue
from .context_variables import ContextVariable as ContextVariable  # which says how they are tracked
from .identity import refuse_nan
from .tensor_inputs import graph_input as graph_input  # likewise

if TYPE_CHECKING:
    from ..effects.changes import Effects
    from .frame import Frame
    from .machine import Interpreter


BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
}
#: Where the right operand is of an unknown value it is asked as well.
NUMBERS = (bool, int, float, complex)
REPEATED = (list, tuple, str, bytes, bytearray, collections.deque)
COMPARE = {
    "<": ("__lt__", "__gt__"),
    "<=": ("__le__", "__ge__"),
    "==": ("__eq__", "__eq__"),
    "!=": ("__ne__", "__ne__"),
    ">": ("__gt__", "__lt__"),
    ">=": ("__ge__", "__le__"),
}


def overrides(cls: type, base: type, name: str) -> bool:
    """Whether a subclass has a method of its own for ``name``."""
    return base in cls.__mro__ and find_in_mro(cls.__mro__, name)[1] is not find_in_mro(base.__mro__, name)[1]


def not_implemented(value: Value | None) -> bool:
    """Whether a method was not there, or gave ``NotImplemented``."""
    return value is None or (type(value) is ConstantValue and value.value is NotImplemented)


def known_to(owner: Value, other: Value) -> Value:
    """The other operand as the method of a number sees it: of an object of a class derived from the numbers that it knows, the number,
    whatever methods the class has."""
    known = NUMBERS_KNOWN.get(owner.python_type(), ())
    return number_in(other) if issubclass(other.python_type(), known) else other


def answered(value: Value | None) -> TypeGuard[Value]:
    """Whether a method was there and did not leave the question to another."""
    return not not_implemented(value)


class Operators:
    """The part of the interpreter that runs operators."""

    frame: Frame

    effects: Effects
    steps: int
    check_at: int

    def throw(self, cls: type[BaseException], *args: object) -> NoReturn:
        raise NotImplementedError

    def getattr(self, value: Value, name: str) -> Value:
        found = value.getattr(cast(Machine, self), name)
        if self.effects.reads is not None:
            note_attribute(self.effects.reads, value, name, found)
        return found

    def setattr(self, value: Value, name: str, new: Value) -> None:
        value.setattr(cast(Machine, self), name, new)

    def truth(self, value: Value) -> bool:
        raise NotImplementedError

    def is_same(self, left: Value, right: Value) -> bool:
        raise NotImplementedError

    def refuse_deletion(self, owner: Value, key: Value) -> NoReturn:
        """An index is looked for in a sequence, other keys in a mapping: each says no in words of its own."""
        cls = owner.python_type()
        by_index = hasattr(key.python_type(), "__index__") and (written_in_python(cls) or hasattr(cls, "__len__"))
        words = "doesn't" if by_index else "does not"
        self.throw(TypeError, f"{name_in_c(cls)!r} object {words} support item deletion")

    def unary(self, name: str, value: Value) -> Value:
        vm = cast(Machine, self)
        result = value.special(vm, name, [])
        if result is None or not_implemented(result):
            symbol = {"__neg__": "unary -", "__pos__": "unary +", "__invert__": "unary ~", "__abs__": "abs()"}[name]
            self.throw(TypeError, f"bad operand type for {symbol}: {name_in_c(value.python_type())!r}")
        return result

    def expect(self, owner: Value, name: str, goes_on: object) -> None:
        """The instruction being run calls a method of the data model next: see ``Frame.expects``."""
        if self.frame is not None:
            self.frame.expects(method_of(owner, name), goes_on)

    def expect_operator(self, op: str, left: Value, right: Value, tries: Sequence[tuple[Value, str, Value]], number: int) -> None:
        """As ``expect``, for try ``number`` of an operator."""
        owner, name, _other = tries[number]
        self.expect(owner, name, Operated(op, left, right, tuple((o is left, n) for o, n, _ in tries[number + 1 :])))

    def binary(self, op: str, left: Value, right: Value, direct: bool = False) -> Value:
        """``left op right`` with Python's rules of in-place, plain and reflected methods. ``direct``: it is the whole of an instruction."""
        vm = cast(Machine, self)
        inplace = op.endswith("=")
        name = BINARY[op.rstrip("=")]
        if inplace:
            if direct:
                self.expect_operator(op, left, right, [(left, f"__i{name}__", right)], 0)
            result = left.special(vm, f"__i{name}__", [right])
            if answered(result):
                return result
        lt, rt = left.python_type(), right.python_type()
        tries = [(left, f"__{name}__", right), (right, f"__r{name}__", left)]
        if lt is rt and lt not in NUMBERS:
            tries.pop()
        elif overrides(rt, lt, f"__r{name}__") or (
            isinstance(right, TensorValue)
            and method_of(left, f"__{name}__") is None
            and not isinstance(left, (TensorValue, OverridingTensor))
        ):
            tries.reverse()
        for number, (owner, method, other) in enumerate(tries):
            if direct:
                self.expect_operator(op.rstrip("="), left, right, tries, number)
            result = owner.special(vm, method, [known_to(owner, other)])
            if answered(result):
                return result
        for sequence in (list, tuple, str, collections.deque):
            if name == "add" and issubclass(lt, sequence):
                self.throw(TypeError, f'can only concatenate {sequence.__name__} (not "{name_in_c(rt)}") to {sequence.__name__}')
        if name == "add" and issubclass(lt, (bytes, bytearray)):
            self.throw(TypeError, f"can't concat {name_in_c(rt)} to {name_in_c(lt)}")
        for repeated, by in ((left, right), (right, left)) if name == "mul" else ():
            if issubclass(repeated.python_type(), REPEATED):
                if class_has(vm, by, "__index__") and isinstance(by, ObjectValue):
                    return self.binary("*", repeated, demanded_index(vm, by))
                self.throw(TypeError, f"can't multiply sequence by non-int of type {by.python_type().__name__!r}")
        self.throw(
            TypeError, f"unsupported operand type(s) for {'** or pow()' if op == '**' else op}: {name_in_c(lt)!r} and {name_in_c(rt)!r}"
        )

    def equal(self, left: Value, right: Value) -> bool:
        """Whether containers take two items for the same: identical or equal."""
        if left is right:
            return True
        if is_nan(left) and is_nan(right):
            return self.is_same(left, right)
        if left.symbolic or right.symbolic:
            refuse_nan(cast(Machine, self), left, right)
        a, b = left.real(), right.real()
        return (a is not MISSING and a is b) or self.truth(self.compare("==", left, right))

    def differs(self, owner: Value, other: Value) -> Value:
        """``object.__ne__``: the contrary of what ``__eq__`` says."""
        equal = owner.special(cast(Machine, self), "__eq__", [other])
        return ConstantValue(not self.truth(equal) if answered(equal) else NotImplemented)

    def compare(self, op: str, left: Value, right: Value, direct: bool = False) -> Value:
        vm = cast(Machine, self)
        if not direct:  # a builtin compares, which may sort a million things in one instruction
            self.steps += 1
            if self.steps > self.check_at and self.frame is not None:
                self.check_at = check_growth(cast("Interpreter", self), self.frame, called=True)
        name, reflected = COMPARE[op]
        lt, rt = left.python_type(), right.python_type()
        tries = [(left, name, right), (right, reflected, left)]
        if lt is not rt and lt in rt.__mro__:
            tries.reverse()
        for number, (owner, method, other) in enumerate(tries):
            if direct:
                self.expect_operator(op, left, right, tries, number)
            result = owner.special(vm, method, [known_to(owner, other)])
            if result is None and op == "!=":
                result = self.differs(owner, other)
            if answered(result):
                return result
        if op in ("==", "!="):
            return ConstantValue(self.is_same(left, right) == (op == "=="))
        self.throw(TypeError, f"{op!r} not supported between instances of {name_in_c(lt)!r} and {name_in_c(rt)!r}")
