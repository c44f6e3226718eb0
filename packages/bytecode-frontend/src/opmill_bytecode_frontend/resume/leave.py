"""Leaving a function for its resume function."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CodeType, FunctionType

from ..bytecode import Emitter, Instruction, Program, assemble, copy_instructions, decode, pad_ranges, reachable, split_pairs
from .make import Parameter, ParameterKind, Resume, closure_of, make_resume
from .states import StackKind


def emit_leave(emitter: Emitter, resume: Resume, function: object, exception: str | None = None) -> None:
    """Emits: take the value stack off, call ``function`` (made from ``resume``) with the state, return what it returns.

    ``resume.stack`` must be what is on the real stack, the variables must be in their slots, and ``exception`` names the local
    that holds the exception where the resume function raises one. Exceptions being handled are handed over: they are no longer
    handled here when the resume function begins, which handles them again.
    """
    places = [f".leave{place}" for place in range(len(resume.stack))]
    for name in reversed(places):
        emitter.store_fast(name)  # stores NULL as well
    outer = emitter.handler
    emitter.handler = None  # what is under a try or with now raises in the resume function
    previous = [name for name, kind in zip(places, resume.stack, strict=True) if kind is StackKind.PREVIOUS]
    handled = dict(zip(previous, [*previous[1:], ".leave_handled"], strict=False))
    if previous:
        emitter.load_callable(sys.exception)
        emitter.call(0)
        emitter.store_fast(".leave_handled")
        emitter.load_fast(previous[0])
        emitter.pop_except()
    emitter.load_callable(function)
    for parameter in resume.parameters:
        _load(emitter, parameter, places, handled, exception)
    emitter.call(len(resume.parameters))
    emitter.return_value()
    emitter.handler = outer


def _load(emitter: Emitter, parameter: Parameter, places: Sequence[str], handled: dict[str, str], exception: str | None) -> None:
    match parameter.kind:
        case ParameterKind.LOCAL:
            emitter.load_fast(parameter.name)
        case ParameterKind.CELL:
            emitter.load_closure(parameter.name)
        case ParameterKind.STACK:
            emitter.load_fast(places[parameter.place])
        case ParameterKind.HANDLED:
            emitter.load_fast(handled[places[parameter.place]])
        case ParameterKind.EXCEPTION:
            if exception is None:
                raise ValueError("this resume function raises: name the local that holds the exception")
            emitter.load_fast(exception)


def split(function: FunctionType, at: int) -> tuple[FunctionType, Resume]:
    """Splits a function before the instruction at byte offset ``at``: (one that runs up to it and then calls the rest, the rest).

    Both behave as the original together. Raises Unsupported as `make_resume` does, and ValueError for no such offset.
    """
    program = decode(function.__code__)
    here = next((instruction for instruction in program.instructions if instruction.offset == at), None)
    if here is None:
        raise ValueError(f"no instruction at offset {at}")
    resume = make_resume(program, here)
    closure = closure_of(resume, function.__code__, function.__closure__)
    rest = FunctionType(resume.code, function.__globals__, function.__name__, None, closure)
    code = leave_at(program, here, resume, rest)
    first = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    first.__kwdefaults__ = function.__kwdefaults__
    return first, resume


def leave_at(program: Program, at: Instruction, resume: Resume, function: object) -> CodeType:
    """The code of ``program`` that calls ``function`` (made from ``resume``) instead of running ``at``."""
    copies = copy_instructions(program.instructions)
    instructions = list(copies.values())
    here = copies[at]
    emitter = Emitter(at.position)
    emit_leave(emitter, resume, function)
    [first, *others] = emitter.instructions
    # `here` itself becomes the first instruction of the leave, so that every jump to it arrives there.
    here.opname, here.argval, here.flag, here.index = first.opname, first.argval, first.flag, None
    here.target, here.handler = first.target, first.handler
    place = instructions.index(here)
    instructions[place + 1 : place + 1] = others
    changed = Program(**{**vars(program), "instructions": instructions})
    split_pairs(changed)
    kept = reachable(changed, instructions[0])
    changed.instructions = [instruction for instruction in changed.instructions if instruction in kept]
    pad_ranges(changed)
    return assemble(changed)
