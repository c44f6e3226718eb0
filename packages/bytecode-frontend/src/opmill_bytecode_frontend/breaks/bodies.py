"""What a frame runs, as far as the functions that go on with it need that."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ..bytecode import Instruction, Program
from ..effects.lifetimes import is_mortal, is_suspended
from ..errors import Unsupported
from ..interpretation.frame import Frame
from ..resume import Parameter, ParameterKind, Resume, StackKind, State, closure_of, make_resume
from ..values.base import MISSING, Lazy, Value
from ..values.functions import CellValue
from ..values.iterators import ExternalIterator, GeneratorValue, PythonIterator
from ..values.sequence import SequenceValue
from .looked_at import is_looked_at

HANDLER_KINDS = (StackKind.PREVIOUS, StackKind.PREVIOUS_COPY, StackKind.LASTI)


class Body(Struct, frozen=True):
    """The function that a frame runs. One made in captured code has no closure yet: its resume functions are given the cells
    (``Program.given_cells``)."""

    program: Program
    code: types.CodeType
    globals: dict[str, object]
    closure: tuple[object, ...] | None
    name: str

    @property
    def key(self) -> object:
        return self.code, tuple(map(id, self.closure or ())), id(self.globals)  # the resume function keeps the cells that it reads

    def resume(self, resume: Resume) -> types.FunctionType:
        given = tuple(types.CellType() for _ in resume.code.co_freevars) or None  # the arguments' cells come in their place
        closure = closure_of(resume, self.code, self.closure) if self.closure is not None else given
        return types.FunctionType(resume.code, self.globals, self.name, None, closure)


def body_of(frame: Frame) -> Body:
    """What resume functions of this frame are made of. Raises Unsupported for a method whose class is made in captured code."""
    function, program = frame.function, frame.prepared.program
    assert function is not None
    if function.obj is not None:
        return Body(program, function.code, function.globals, function.obj.__closure__ or (), function.obj.__name__)
    if "__class__" in program.freevars:
        raise Unsupported(
            "FE075", "a graph break in a method of a class made in captured code", "super() looks for its class in the closure"
        )
    without = [each for each in program.instructions if each.opname != "COPY_FREE_VARS"]
    return Body(Program(**{**vars(program), "instructions": without}), function.code, function.globals, None, function.name)


class Going(Struct, frozen=True):
    """How a frame goes on at an instruction: the resume function and the kinds of what stands on the stack there."""

    body: Body
    resume: Resume
    kinds: list[StackKind]

    def handler_inside(self, place: int) -> int | None:
        """The place of the next PREVIOUS above one."""
        return next((i for i in range(place + 1, len(self.kinds)) if self.kinds[i] is StackKind.PREVIOUS), None)


def going_on(
    frame: Frame,
    target: Instruction,
    stack: Sequence[object],
    bound: Mapping[str, object],
    raising: bool = False,
    assigned: Iterable[str] = (),
) -> Going:
    """The resume function of a frame that goes on at ``target`` with this stack; ``bound``: names of its bound variables; ``assigned``:
    those that what runs before it binds, to objects that may tell when they die."""
    body = body_of(frame)
    if frame.aside or any(name in frame.cells for name in body.program.late_cells):
        why = (
            "its variable has the name of one that a nested function shares, "
            "and which of them is meant is not known before the program runs"
        )
        raise Unsupported("FE102", "a graph break inside a comprehension", why, "give the variable a name of its own")
    kinds = stack_kinds(frame.prepared.states.get(target), stack)
    variables = frame.locals | {name: cell.content for name, cell in frame.cells.items() if isinstance(cell, CellValue)}
    keep = frozenset(name for name, value in variables.items() if holds_generator(value) or holds_mortal_object(value))
    keep |= frozenset(assigned)
    if is_looked_at(body.code, body.globals):
        why = "the code around a graph has variables of its own"
        hint = "read variables of callers outside of compiled functions"
        raise Unsupported("FE010", "a graph break where what is called may read the function's variables", why, hint, whole=True)
    key = (body.closure is None, frame.prepared.index[id(target)], raising, tuple(kinds), frozenset(bound), keep)
    resume = frame.prepared.resumes.get(key)
    if resume is None:
        resume = frame.prepared.resumes[key] = make_resume(body.program, target, stack=kinds, bound=bound, raising=raising, keep=keep)
    return Going(body, resume, kinds)


def holds_generator(value: object) -> bool:
    """Whether a variable holds a generator that may be suspended, or an iterator over one: when the variable goes its blocks end and what
    its variables hold dies, which must not be sooner."""
    if isinstance(value, GeneratorValue):
        return not value.finished
    if isinstance(value, PythonIterator):
        return value.parts is not None and any(map(holds_generator, value.parts()))
    if isinstance(value, SequenceValue):
        return any(map(holds_generator, value.looked_at()))
    return isinstance(value, (Lazy, ExternalIterator)) and (
        is_suspended(value.obj) or (type(value.obj) is types.GeneratorType and value.obj.gi_frame is not None)
    )


def holds_mortal_object(value: object) -> bool:
    """Whether a variable holds an object of before that tells when it dies."""
    obj = getattr(value, "obj", None)
    return obj is not None and is_mortal(obj)


def stack_kinds(state: State | None, stack: Sequence[object]) -> list[StackKind]:
    """Kinds of the real stack. What exception handlers keep there is known by analysis, all else by looking."""
    known = state.stack if state is not None else ()
    kinds = [StackKind.NULL if v is MISSING else StackKind.VALUE for v in stack]
    return [k if k in HANDLER_KINDS else found for k, found in zip([*known, *kinds[len(known) :]], kinds)]


def suspended(frame: Frame, handled: Value | None) -> tuple[types.FunctionType, list[object]]:
    """The function that makes a generator which yields once (anything) and then is where the suspended generator of ``frame`` is,
    and the tracked arguments of that function."""
    if handled is not None:
        raise Unsupported(
            "FE070", "a generator that handles an exception leaves the captured code", "what it handles is known at capture only"
        )
    at = frame.prepared.instructions[frame.pc - 1]
    stack = [*frame.stack, None]  # None: what is yielded
    going = going_on(frame, at, stack, dict.fromkeys([*frame.locals, *frame.cells]))
    given = {
        ParameterKind.LOCAL: lambda p: frame.locals[p.name],
        ParameterKind.CELL: lambda p: frame.cells[p.name],
        ParameterKind.STACK: lambda p: stack[p.place],
    }
    function = going.body.resume(going.resume)
    assert frame.function is not None
    function.__qualname__ = frame.function.qualname
    return function, [given[p.kind](p) for p in going.resume.parameters]


__all__ = ["Body", "Going", "Parameter", "body_of", "going_on", "suspended"]
