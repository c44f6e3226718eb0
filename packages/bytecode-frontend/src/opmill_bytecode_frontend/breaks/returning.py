"""How an instruction goes on once a frame that it called has ended: what a graph break inside of that frame does afterwards.

An opcode handler tells its frame which function it is about to call, and how what that function returns becomes the instruction's result
(``Frame.expects``). Where nothing is told, the graph cannot end inside the callee, and the instruction is run natively as a whole."""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import TYPE_CHECKING, Any, Callable

from msgspec import Struct

from ..values.base import MISSING, Value
from ..values.iterators import STOP
from ..values.objects import ObjectValue, find_in_mro

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from ..codegen.rebuild import Rebuilder
    from ..codegen.stubs import Expressions
    from ..interpretation.frame import Frame


class Native(Struct):
    """An instruction, or what is left of it, as Python statements; ``results`` are pushed (None is a NULL). A branch gives ``condition``
    instead: (expression, results when it jumps, results when it falls through)."""

    statements: list[str]
    pops: int
    results: list[str | None] = []
    condition: tuple[str, list[str | None], list[str | None]] | None = None
    target: Instruction | None = None
    """Where a branch goes if not to the instruction's own target."""
    ends: bool = False
    """Whether nothing comes after the statements: they raise."""
    offers: bool = False
    """Whether the functions that the statements call are offered to be captured."""


Returned = Callable[["Frame", "Instruction", "Expressions", str], Native]
"""(the frame that called, its instruction, the expressions there, the expression that runs the callee to its end) -> the rest of the
instruction."""


def method_of(value: Value, name: str) -> object:
    """The Python function that the data model calls for ``name`` on an object of a class written in Python, or None."""
    found = find_in_mro(value.cls.__mro__, name)[1] if isinstance(value, ObjectValue) else None
    return found if type(found) is types.FunctionType else None


def pushed(frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
    """The result is pushed as it is."""
    result = r.temporary("_r")
    return Native([f"{result} = {called}"], 0, [result])


def dropped(frame: Frame, ins: Instruction, r: object, called: str) -> Native:
    """The result is of no interest."""
    return Native([called], 0)


def contained(frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
    """``__contains__`` has ended: the truth of what it gave is pushed, or the contrary."""
    result = r.temporary("_r")
    return Native([f"{result} = {'not ' if ins.argval else ''}bool({called})"], 0, [result])


class Finished(Struct, frozen=True):
    """The method ``name`` that a builtin function asks has ended: the builtin does with its result what it does with any."""

    builtin: object
    name: str
    owner: Value

    def text(self, r: Rebuilder, called: str) -> str:
        owner = self.owner.python_type().__name__
        return f"{r.constants.name(finish_by)}({r.constants.name(self.builtin)}, {self.name!r}, {owner!r}, {called})"

    def __call__(self, frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
        result = r.temporary("_r")
        return Native([f"{result} = {self.text(r, called)}"], 0, [result])


class Branched(Finished, frozen=True):
    """The truth of an object is known: an instruction jumps or does not; it may want the object itself to stay."""

    def __call__(self, frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
        test = f"{'' if 'TRUE' in ins.opname else 'not '}{self.text(r, called)}"
        stays = ins.opname.endswith("OR_POP")
        return Native([], int(stays), condition=(test, [r.expr(self.owner)] if stays else [], []))


#: Builtin functions that ask one method of their argument and look at its result; the first one that there is counts.
ASKING: dict[object, tuple[str, ...]] = {
    len: ("__len__",),
    bool: ("__bool__", "__len__"),
    abs: ("__abs__",),
    str: ("__str__", "__repr__"),
    repr: ("__repr__",),
    hash: ("__hash__",),
    iter: ("__iter__",),
    next: ("__next__",),
    reversed: ("__reversed__",),
    int: ("__int__",),
    float: ("__float__",),
    complex: ("__complex__",),
    operator.index: ("__index__",),
    format: ("__format__", "__str__", "__repr__"),
    operator.truth: ("__bool__", "__len__"),
    operator.not_: ("__bool__", "__len__"),
}
ASKERS = frozenset(map(type, ASKING))


def asks(function: object) -> bool:
    """Whether it is one of these builtin functions (and not something that has no hash, or one of its own)."""
    return type(function) in ASKERS and function in ASKING


def asked(builtin: object, owner: Value) -> tuple[object, Any]:
    """The method in Python that a builtin function asks of an object, and what comes after it: for ``Frame.expects``."""
    mro = owner.cls.__mro__ if isinstance(owner, ObjectValue) else ()
    for name in ASKING[builtin]:
        found = find_in_mro(mro, name)[1]
        if type(found) is types.FunctionType:
            return found, Finished(builtin, name, owner)
        if found not in (MISSING, object.__str__, object.__format__):  # which ask the next one
            break
    return None, None


@functools.cache
def answering(name: str, kind: str) -> type:
    """A class whose method ``name`` gives what its objects hold."""
    return type(kind, (), {"__init__": lambda self, result: setattr(self, "result", result), name: lambda self, *spec: self.result})


def finish_by(builtin: Any, name: str, kind: str, result: object) -> object:
    """What ``builtin`` makes of the result of method ``name`` of an object of a class called ``kind``."""
    return builtin(answering(name, kind)(result))


class Made(Struct, frozen=True):
    """``__init__`` has ended: the object is pushed."""

    made: Value

    def __call__(self, frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
        return Native([f"{r.constants.name(check_init)}({called})"], 0, [r.expr(self.made)])


def check_init(result: object) -> None:
    """What a class does with the result of ``__init__``."""
    if result is not None:
        raise TypeError(f"__init__() should return None, not {type(result).__name__!r}")


class Attribute(Struct, frozen=True):
    """A getter has ended: its result is pushed, beside the NULL that calls want."""

    null: bool | None
    """Whether a NULL is pushed before (True) or after (False) it; None: none is."""

    def __call__(self, frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
        result = r.temporary("_r")
        results: dict[bool | None, list[str | None]] = {None: [result], True: [None, result], False: [result, None]}
        return Native([f"{result} = {called}"], 0, results[self.null])


class Operated(Struct, frozen=True):
    """The method of an operator has ended: where it gave NotImplemented the ``others`` follow, (of the left operand?, name)."""

    op: str
    left: Value
    right: Value
    others: tuple[tuple[bool, str], ...]

    def __call__(self, frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
        result = r.temporary("_r")
        parts = f"{self.op!r}, {r.expr(self.left)}, {r.expr(self.right)}, {self.others!r}"
        return Native(
            [f"{result} = {called}", f"if {result} is NotImplemented: {result} = {r.constants.name(operate)}({parts})"], 0, [result]
        )


def operate(op: str, left: object, right: object, others: tuple[tuple[bool, str], ...]) -> bool:
    """What an operator does when the first method that it tried gave NotImplemented."""
    if op in IN_PLACE:
        return IN_PLACE[op](left, right)
    for is_left, name in others:
        owner, other = (left, right) if is_left else (right, left)
        method = getattr(type(owner), name, None)
        if method is not None and (result := method(owner, other)) is not NotImplemented:
            return result
    if op in ("==", "!="):
        return (left is right) == (op == "==")
    kinds = f"{type(left).__name__!r} and {type(right).__name__!r}"
    if op in ("<", "<=", ">", ">="):
        raise TypeError(f"{op!r} not supported between instances of {kinds}")
    raise TypeError(f"unsupported operand type(s) for {'** or pow()' if op == '**' else op}: {kinds}")


IN_PLACE: dict[str, Any] = {
    "+=": operator.add,
    "-=": operator.sub,
    "*=": operator.mul,
    "/=": operator.truediv,
    "//=": operator.floordiv,
    "%=": operator.mod,
    "**=": operator.pow,
    "@=": operator.matmul,
    "<<=": operator.lshift,
    ">>=": operator.rshift,
    "&=": operator.and_,
    "|=": operator.or_,
    "^=": operator.xor,
}


def iterated(frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
    """``__iter__`` has ended: what it gave is an iterator."""
    result = r.temporary("_r")
    return Native([f"{result} = {called}", f"{r.constants.name(check_iterator)}({result})"], 0, [result])


def check_iterator(result: object) -> None:
    """What ``iter`` does with the result of ``__iter__``."""
    if not hasattr(type(result), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type {type(result).__name__!r}")


def stepped(frame: Frame, ins: Instruction, r: Rebuilder, called: str) -> Native:
    """``__next__`` has ended, with an item or with StopIteration."""
    item, end = r.temporary("_r"), r.constants.name(STOP)
    lines = ["try:", f"    {item} = {called}", "except StopIteration:", f"    {item} = {end}"]
    return turn(frame, ins, r, lines, item, end)


def turn(frame: Frame, ins: Instruction, r: Expressions, statements: list[str], item: str, end: str) -> Native:
    """The branch of FOR_ITER: the iterator stays on the stack under the item, or the loop ends."""
    # From 3.12 on the loop's end is reached past instructions that take the iterator off: it is never passed on.
    skipped = {12: 1, 13: 2}.get(sys.version_info[1], 0)
    instructions = frame.prepared.instructions
    after = instructions[frame.prepared.index[id(ins.target)] + skipped]
    return Native(statements, 1, condition=(f"{item} is {end}", [], [r.expr(frame.stack[-1]), item]), target=after)


__all__ = [
    "MISSING",
    "Attribute",
    "Branched",
    "Finished",
    "Made",
    "Native",
    "Operated",
    "Returned",
    "asked",
    "contained",
    "dropped",
    "iterated",
    "method_of",
    "operate",
    "pushed",
    "stepped",
    "turn",
]
