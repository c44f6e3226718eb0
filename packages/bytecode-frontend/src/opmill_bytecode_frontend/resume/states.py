"""What stands on the value stack and which variables are bound before each instruction, found without running it."""

from __future__ import annotations

import functools
import heapq
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ..bytecode import Instruction, Program, falls_through, stack_effect
from ..bytecode.versions import VERSION


class StackKind(Enum):
    """What a place of the value stack holds. A resume function gets an argument for each VALUE and PREVIOUS."""

    VALUE = "value"
    NULL = "null"
    MAYBE_NULL = "maybe null"
    """VALUE or NULL, known at run time only: what LOAD_METHOD leaves, or a variable that a comprehension saves."""
    PREVIOUS = "previously handled exception"
    """Pushed by PUSH_EXC_INFO when a handler is entered and taken by POP_EXCEPT when it is left. The resume function is given
    what the handler handles, and enters it again."""
    PREVIOUS_COPY = "copy of previously handled exception"
    LASTI = "offset of a raising instruction"


class Bound(Enum):
    """Whether a variable's slot holds anything."""

    YES = "bound"
    NO = "unbound"
    MAYBE = "bound on some paths"


class Names:
    """The places of variables in the bit sets of one program's states, given in the order of asking."""

    def __init__(self) -> None:
        self.bits: dict[str, int] = {}

    def bit(self, name: str) -> int:
        return self.bits.setdefault(name, 1 << len(self.bits))

    def mask(self, names: Iterable[str]) -> int:
        return functools.reduce(operator.or_, map(self.bit, names), 0)


@dataclass(frozen=True, slots=True)
class State:
    """The frame before an instruction: stack from the bottom up; bit sets of the variables that are bound on some path and on every
    path."""

    stack: tuple[StackKind, ...]
    some: int
    every: int
    names: Names = field(compare=False)

    def is_bound(self, name: str) -> Bound:
        """Whether the slot of ``name`` is filled."""
        bit = self.names.bits.get(name, 0)
        if not self.some & bit:
            return Bound.NO
        return Bound.YES if self.every & bit else Bound.MAYBE


def known_state(stack: Iterable[StackKind], bound: Iterable[str]) -> State:
    """The state with just these variables bound."""
    names = Names()
    mask = names.mask(bound)
    return State(tuple(stack), mask, mask, names)


_TO_KIND = {Bound.YES: StackKind.VALUE, Bound.NO: StackKind.NULL, Bound.MAYBE: StackKind.MAYBE_NULL}


def states(program: Program) -> dict[Instruction, State]:
    """The state before every reachable instruction, joined over all paths. Instructions are looked at in order, so that what a loop does
    not change is looked at twice."""
    names = Names()
    entry = names.mask([*program.parameters, *program.freevars])
    number = {instruction: place for place, instruction in enumerate(program.instructions)}
    found: list[State | None] = [None] * len(number)
    found[0] = State((), entry, entry, names)
    pending = [0]
    while pending:
        place = heapq.heappop(pending)
        if pending and pending[0] == place:
            continue
        state = found[place]
        assert state is not None
        for target, arriving in _steps(program.instructions, place, state):
            reached = target if isinstance(target, int) else number[target]
            if reached == len(found):
                continue
            known = found[reached]
            state = arriving if known is None else _join(known, arriving)
            if state != known:
                found[reached] = state
                heapq.heappush(pending, reached)
    return {instruction: state for instruction, state in zip(program.instructions, found) if state is not None}


def _join(one: State, other: State) -> State:
    stack = one.stack if one.stack == other.stack else tuple(_join_kinds(a, b) for a, b in zip(one.stack, other.stack, strict=False))
    return State(stack, one.some | other.some, one.every & other.every, one.names)


def _join_kinds(one: StackKind, other: StackKind) -> StackKind:
    if one is other:
        return one
    nulls = {StackKind.NULL, StackKind.MAYBE_NULL}
    return StackKind.MAYBE_NULL if one in nulls or other in nulls else StackKind.VALUE


def _steps(instructions: list[Instruction], place: int, state: State) -> Iterator[tuple[Instruction | int, State]]:
    """What may run next, an instruction or the number of one, and the state there."""
    instruction = instructions[place]
    handler = instruction.handler
    after = _bind(instruction, state)
    if handler is not None:
        extra = (StackKind.LASTI, StackKind.VALUE) if handler.lasti else (StackKind.VALUE,)
        # The instruction may raise before or after it binds.
        yield handler.target, State(state.stack[: handler.depth] + extra, state.some | after.some, state.every & after.every, state.names)
    if instruction.target is not None:
        yield instruction.target, State(_push(instruction, state, jump=True), after.some, after.every, state.names)
    if falls_through(instruction):
        yield place + 1, State(_push(instruction, state, jump=False), after.some, after.every, state.names)


def _bind(instruction: Instruction, state: State) -> State:
    """The variables after an instruction; the stack is that of before."""
    opname, name, stack = instruction.opname, instruction.argval, state.stack
    match opname:
        case "STORE_FAST" | "STORE_CLOSURE":
            return _stored(state, name, stack[-1])
        case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
            return _stored(state, name, StackKind.NULL)
        case "MAKE_CELL":
            return _stored(state, name, StackKind.VALUE)
        case "STORE_FAST_LOAD_FAST":
            return _stored(state, name[0], stack[-1])
        case "STORE_FAST_STORE_FAST":
            return _stored(_stored(state, name[0], stack[-1]), name[1], stack[-2])
    return state


def _stored(state: State, name: str, kind: StackKind) -> State:
    bit = state.names.bit(name)
    some = state.some & ~bit if kind is StackKind.NULL else state.some | bit
    every = state.every & ~bit if kind in (StackKind.NULL, StackKind.MAYBE_NULL) else state.every | bit
    return State(state.stack, some, every, state.names)


_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_VALUE = StackKind.VALUE


def _push(instruction: Instruction, state: State, *, jump: bool) -> tuple[StackKind, ...]:
    opname, stack, flag = instruction.opname, list(state.stack), instruction.flag
    effect = stack_effect(instruction, jump=jump)
    match opname:
        case "SWAP":
            stack[-1], stack[-instruction.argval] = stack[-instruction.argval], stack[-1]
        case "COPY":
            kind = stack[-instruction.argval]
            stack.append(StackKind.PREVIOUS_COPY if kind is StackKind.PREVIOUS else kind)
        case "PUSH_NULL":
            stack.append(StackKind.NULL)
        case "LOAD_GLOBAL" if flag & 1:
            stack += [_VALUE, StackKind.NULL] if VERSION >= (3, 13) else [StackKind.NULL, _VALUE]
        case "LOAD_METHOD" | "LOAD_ATTR" | "LOAD_SUPER_ATTR" if flag & 1 or opname == "LOAD_METHOD":
            del stack[len(stack) + effect - 2 :]
            stack += [_VALUE, StackKind.MAYBE_NULL] if VERSION >= (3, 13) else [StackKind.MAYBE_NULL, _VALUE]
        case "LOAD_FAST_AND_CLEAR":
            stack.append(_TO_KIND[state.is_bound(instruction.argval)])
        case "PUSH_EXC_INFO":
            stack[-1:] = [StackKind.PREVIOUS, _VALUE]
        case "POP_EXCEPT" if stack[-1] is StackKind.PREVIOUS_COPY:
            _unhandle(stack)
        case _ if effect >= 0:
            stack += [_VALUE] * effect
        case _:
            del stack[effect:]
            if opname in _CALLS:
                stack[-1] = _VALUE
    return tuple(stack)


def _unhandle(stack: list[StackKind]) -> None:
    """A copy of what was handled before has been restored: what is still below is a plain value now."""
    stack.pop()
    for place in range(len(stack) - 1, -1, -1):
        if stack[place] is StackKind.PREVIOUS:
            stack[place] = _VALUE
            return
