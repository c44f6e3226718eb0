"""What stands on the value stack and which variables are bound before each instruction, found without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class State:
    """The frame before an instruction: stack from the bottom up, and each variable's `Bound` (absent: NO)."""

    stack: tuple[StackKind, ...]
    bound: dict[str, Bound]

    def is_bound(self, name: str) -> Bound:
        """Whether the slot of ``name`` is filled."""
        return self.bound.get(name, Bound.NO)


_TO_BOUND = {StackKind.NULL: Bound.NO, StackKind.MAYBE_NULL: Bound.MAYBE}
_TO_KIND = {Bound.YES: StackKind.VALUE, Bound.NO: StackKind.NULL, Bound.MAYBE: StackKind.MAYBE_NULL}


def states(program: Program) -> dict[Instruction, State]:
    """The state before every reachable instruction, joined over all paths."""
    start = State((), dict.fromkeys([*program.parameters, *program.freevars], Bound.YES))
    found: dict[Instruction, State] = {}
    following = dict(zip(program.instructions, program.instructions[1:], strict=False))
    pending = [(program.instructions[0], start)]
    while pending:
        instruction, arriving = pending.pop()
        known = found.get(instruction)
        state = arriving if known is None else _join(known, arriving)
        if state == known:
            continue
        found[instruction] = state
        pending += _steps(instruction, state, following)
    return found


def _join(one: State, other: State) -> State:
    stack = tuple(_join_kinds(a, b) for a, b in zip(one.stack, other.stack, strict=False))
    names = one.bound.keys() | other.bound.keys()
    bound = {name: a if (a := one.is_bound(name)) is other.is_bound(name) else Bound.MAYBE for name in names}
    return State(stack, bound)


def _join_kinds(one: StackKind, other: StackKind) -> StackKind:
    if one is other:
        return one
    nulls = {StackKind.NULL, StackKind.MAYBE_NULL}
    return StackKind.MAYBE_NULL if one in nulls or other in nulls else StackKind.VALUE


def _steps(instruction: Instruction, state: State, following: dict[Instruction, Instruction]) -> Iterator[tuple[Instruction, State]]:
    handler = instruction.handler
    bound = _bind(instruction, state)
    if handler is not None:
        extra = (StackKind.LASTI, StackKind.VALUE) if handler.lasti else (StackKind.VALUE,)
        # The instruction may raise before or after it binds.
        joined = _join(State((), state.bound), State((), bound)).bound
        yield handler.target, State(state.stack[: handler.depth] + extra, joined)
    if instruction.target is not None:
        yield instruction.target, State(_push(instruction, state, jump=True), bound)
    if falls_through(instruction) and instruction in following:
        yield following[instruction], State(_push(instruction, state, jump=False), bound)


def _bind(instruction: Instruction, state: State) -> dict[str, Bound]:
    opname, name, stack = instruction.opname, instruction.argval, state.stack
    match opname:
        case "STORE_FAST" | "STORE_CLOSURE":
            return {**state.bound, name: _TO_BOUND.get(stack[-1], Bound.YES)}
        case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
            return {**state.bound, name: Bound.NO}
        case "MAKE_CELL":
            return {**state.bound, name: Bound.YES}
        case "STORE_FAST_LOAD_FAST":
            return {**state.bound, name[0]: _TO_BOUND.get(stack[-1], Bound.YES)}
        case "STORE_FAST_STORE_FAST":
            first = {name[0]: _TO_BOUND.get(stack[-1], Bound.YES)}
            return {**state.bound, **first, name[1]: _TO_BOUND.get(stack[-2], Bound.YES)}
    return state.bound


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
