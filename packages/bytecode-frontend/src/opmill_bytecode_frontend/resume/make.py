"""Functions that continue another one from the middle."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from types import CodeType

from msgspec import Struct

from ..bytecode import (
    Emitter,
    Instruction,
    Program,
    assemble,
    copy_instructions,
    decode,
    live_at,
    pad_ranges,
    reachable,
    split_pairs,
    uses_and_kills,
)
from ..bytecode.versions import VERSION
from ..errors import Unsupported
from .states import Bound, StackKind, State, known_state, states

_HAS_DOCSTRING = 0x4000000  # 3.13
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_DROPPED_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | _HAS_DOCSTRING


class ParameterKind(Enum):
    """What the caller of a resume function passes."""

    LOCAL = "local"
    """The value of the local variable ``name``."""
    CELL = "cell"
    """The cell of ``name`` itself (`Emitter.load_closure`): nested functions go on sharing it."""
    STACK = "stack"
    """The value at ``place`` of the stack, counted from the bottom."""
    HANDLED = "handled"
    """The exception handled by the handler whose PREVIOUS is at ``place`` of the stack: the PREVIOUS of the next handler
    inside, or what `sys.exception` returns for the innermost."""
    EXCEPTION = "exception"
    """The exception to raise where the original function was."""


ASK, END = (type(f"_{name}", (), {"__repr__": lambda self, name=name: name})() for name in ("ASK", "END"))
"""What is sent to a generator that a resume function has made, and that is still where it began: it yields what it was made of, or
returns, and runs no more of the program."""
STATE = ".state"
"""The variable that holds what such a generator was made of, until it goes on: the last parameter."""

_PASSED = {StackKind.VALUE: ParameterKind.STACK, StackKind.PREVIOUS: ParameterKind.HANDLED}


class Parameter(Struct, frozen=True):
    """One positional parameter of a resume function; ``name`` is what the code object calls it."""

    kind: ParameterKind
    name: str
    place: int = -1


class Resume(Struct, frozen=True):
    """A resume function's code and how to call it: one positional argument for each parameter, in order.

    The function must be made with the original function's globals and closure (``code.co_freevars`` is a part of the
    original's, in its order: see `closure_of`). ``offsets`` maps its instructions' byte offsets to the original's.
    """

    code: CodeType
    parameters: tuple[Parameter, ...]
    stack: tuple[StackKind, ...]
    offsets: dict[int, int]

    def original_offset(self, offset: int) -> int | None:
        """Where in the original code an instruction of this one comes from; ``None`` for what restores the state."""
        return self.offsets.get(offset)


def make_resume(
    program: Program,
    at: Instruction,
    *,
    stack: Sequence[StackKind] | None = None,
    bound: Iterable[str] | None = None,
    raising: bool = False,
    keep: Iterable[str] = (),
    parent: Resume | None = None,
) -> Resume:
    """The code that goes on with ``program`` at ``at``, which has not run yet.

    ``stack`` says what is on the value stack (bottom first) and ``bound`` which variables are bound; both are found by
    analysis when not given, and must be given where they differ from path to path. Variables that are never read again are no
    parameters, but for those to ``keep``. What is under a ``try`` or ``with`` stays under it: an ``__exit__`` is an ordinary stack value,
    exceptions being handled are handled again. With ``raising``, the code does not run ``at`` but raises its last argument there, for
    instructions whose exceptions are handled in the function: the handlers then run in the resume function.
    A generator goes on at a YIELD_VALUE only: what the function then makes is a generator that yields there first. One more argument is
    what that generator gives when it is asked (``ASK``).
    ``parent`` is the Resume that ``program`` was decoded from, if any, so that ``offsets`` reach the very original.

    Raises Unsupported: FE101 coroutines, and generators elsewhere, FE102 a stack that is not known, FE103 a variable that may or may not
    be bound, FE104 ``raising`` without a handler, FE105 an instruction that belongs to the one before it.
    """
    where = f"{program.filename}:{at.position.lineno}"
    if program.flags & _COROUTINE or (program.is_generator and at.opname != "YIELD_VALUE"):
        raise Unsupported(
            "FE101",
            what=f"a graph break in the generator or coroutine {program.qualname}",
            why="its frame is suspended and resumed by others and cannot be split in two",
            hint="move the unsupported operation out of the generator",
            where=where,
        )
    if raising and at.handler is None:
        raise Unsupported("FE104", what=f"{at.opname} has no handler to raise to", why="the exception leaves the function", where=where)
    if not raising:
        _check_place(program, at, where)
    state = _state(program, at, stack, bound, where)
    target = at.handler.target if raising and at.handler is not None else at
    kinds = state.stack[: at.handler.depth] if raising and at.handler is not None else state.stack
    variables = _variables(program, target, state, where, frozenset(keep))
    return _build(program, at, target, kinds, variables, raising, parent)


def _check_place(program: Program, at: Instruction, where: str) -> None:
    """Refuses the places that exist in the code but not between two steps of the interpreter."""
    number = program.instructions.index(at)
    before = program.instructions[:number]
    started = any(instruction.opname == "RESUME" for instruction in before)
    if not started:
        why = "the function has not begun to run there"
    elif any(instruction.opname == "KW_NAMES" for instruction in before[-2:]) and at.opname in ("PRECALL", "CALL"):
        why = "the names of its keyword arguments are already on their way"
    elif before[-1].opname == "PRECALL":
        why = "specialised forms of the instruction before it make the call already"
    elif at.opname == "END_FOR" or (before[-1].opname == "END_FOR" and VERSION >= (3, 13)):
        why = "loops jump over this instruction"
    else:
        return
    raise Unsupported("FE105", what=f"a graph break before {at.opname}", why=why, hint="break one instruction earlier", where=where)


def closure_of(resume: Resume, code: CodeType, closure: tuple | None) -> tuple | None:
    """The closure for a resume function, from the closure of a function with ``code``."""
    cells = dict(zip(code.co_freevars, closure or (), strict=True))
    return tuple(cells[name] for name in resume.code.co_freevars) or None


def _state(program: Program, at: Instruction, stack: Sequence[StackKind] | None, bound: Iterable[str] | None, where: str) -> State:
    if stack is None or bound is None:
        found = states(program).get(at)
        if found is None:
            raise Unsupported("FE102", what=f"{at.opname} is never reached", why="nothing is known of the stack there", where=where)
        stack = found.stack if stack is None else stack
        state = replace(found, stack=tuple(stack)) if bound is None else known_state(stack, bound)
    else:
        state = known_state(stack, bound)
    for kind in stack:
        if kind in (StackKind.MAYBE_NULL, StackKind.PREVIOUS_COPY):
            raise Unsupported(
                "FE102",
                what=f"a graph break with {kind.value} on the stack",
                why="what must be restored there is not known before the program runs",
                where=where,
            )
    return state


def _variables(program: Program, target: Instruction, state: State, where: str, keep: frozenset[str]) -> list[str]:
    """The variables to pass, in the original order of slots: 3.11's ``super()`` looks for the first parameter in the first."""
    live = live_at(program, target) | keep
    order = dict.fromkeys([*program.varnames, *program.cellvars, *program.given_cells, *sorted(live)])
    free = set(program.freevars) - set(program.varnames) - set(program.given_cells)
    variables = [name for name in order if name in live and name not in free and state.is_bound(name) is not Bound.NO]
    for name in variables:
        if state.is_bound(name) is Bound.MAYBE:
            raise Unsupported(
                "FE103",
                what=f"a graph break where the variable {name!r} may be unbound",
                why="it is read later, and whether it is bound differs from path to path",
                hint="bind it before the break",
                where=where,
            )
    return variables


def _parameters(program: Program, variables: list[str], kinds: Sequence[StackKind], raising: bool) -> list[Parameter]:
    cells = (set(program.cellvars) - program.late_cells) | set(program.given_cells)
    parameters = [Parameter(ParameterKind.CELL if name in cells else ParameterKind.LOCAL, name) for name in variables]
    taken = set(variables)
    for place, kind in enumerate(kinds):
        if kind in _PASSED:
            parameters.append(Parameter(_PASSED[kind], _fresh(f".stack{place}", taken), place))
    if raising:
        parameters.append(Parameter(ParameterKind.EXCEPTION, _fresh(".exception", taken)))
    return parameters


def is_of_stack(name: str) -> bool:
    """Whether it is the name of a parameter for what was on the stack."""
    return name.startswith(".") and name.lstrip(".").startswith("stack")


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name = "." + name
    taken.add(name)
    return name


def _build(
    program: Program,
    at: Instruction,
    target: Instruction,
    kinds: Sequence[StackKind],
    variables: list[str],
    raising: bool,
    parent: Resume | None,
) -> Resume:
    parameters = _parameters(program, variables, kinds, raising)
    rest = reachable(program, target)
    copies = copy_instructions(instruction for instruction in program.instructions if instruction in rest)
    rest_code = Program(**{**vars(program), "instructions": list(copies.values())})
    split_pairs(rest_code)  # the slots move, and pairs reach the first 16 only
    body = rest_code.instructions
    used = {name for instruction in body for name in (*_named(instruction),)}
    code = Program(
        name=program.name,
        qualname=program.qualname,
        filename=program.filename,
        firstlineno=program.firstlineno,
        argcount=len(parameters) + program.is_generator,
        flags=program.flags & ~_DROPPED_FLAGS,
        varnames=[*(parameter.name for parameter in parameters), *([STATE] if program.is_generator else [])],
        cellvars=[name for name in program.cellvars if name in used or name in variables],
        # All free variables stay: super() looks for __class__ among them.
        freevars=list(program.freevars),
        consts=[None],  # no docstring
    )
    emitter = Emitter(at.position)
    lasti = _Lasti()
    _restore(emitter, program, code, parameters, kinds, lasti)
    if raising and at.handler is not None:
        _take(emitter, parameters[-1].name)
        # One range with the copies of what the same handler covers: the handler must be theirs, or a copy for this one.
        emitter.handler = type(at.handler)(copies[at.handler.target], at.handler.depth, at.handler.lasti)
        emitter.reraise()
        resumed = emitter.instructions[-1]
    elif program.is_generator:
        resumed = _suspended(emitter, program, at, copies, len(kinds) - 1)
    else:
        resumed = copies[target]
        if body[0] is not resumed:
            emitter.jump(resumed)
    code.instructions = emitter.instructions + body
    pad_ranges(code)
    assembled = assemble(code)
    layout = decode(assembled)
    place = {instruction: number for number, instruction in enumerate(code.instructions)}
    offset_now = [instruction.offset or 0 for instruction in layout.instructions]
    units = offset_now[place[resumed]] // 2
    consts = tuple(units if value is lasti else value for value in assembled.co_consts)
    offsets = {offset_now[place[copy]]: _origin(original, parent) for original, copy in copies.items()}
    return Resume(
        assembled.replace(co_consts=consts),
        tuple(parameters),
        tuple(kinds),
        {now: then for now, then in offsets.items() if then is not None},
    )


def _suspended(emitter: Emitter, program: Program, at: Instruction, copies: dict[Instruction, Instruction], depth: int) -> Instruction:
    """Yields what is on the stack, as ``at`` does, until the generator is to go on; ``depth``: how many values are below."""
    place = program.instructions.index(at)
    emitter.handler = copies[at].handler
    first, going_on, not_asked = emitter.emit(at.opname, at.argval), emitter.label(), emitter.label()
    emitter.emit("RESUME", program.instructions[place + 1].argval)
    emitter.copy(1)
    emitter.pop_jump_if("none", going_on)
    emitter.copy(1)
    emitter.load_const(ASK)
    emitter.is_op()
    emitter.pop_jump_if("false", not_asked)
    emitter.pop_top()
    emitter.load_fast(STATE)
    emitter.jump(first)
    emitter.place(not_asked)
    emitter.copy(1)
    emitter.load_const(END)
    emitter.is_op()
    emitter.pop_jump_if("false", going_on)
    for _ in range(depth + 1):
        emitter.store_fast(".left")
    emitter.load_const(None)
    emitter.return_value()
    emitter.place(going_on)
    emitter.delete_fast(STATE)
    emitter.jump(copies[program.instructions[place + 2]])
    return first


class _Lasti:
    """Stands among the constants for the offset where the function was resumed, until that is known."""


def _named(instruction: Instruction) -> tuple[str, ...]:
    uses, kills = uses_and_kills(instruction)
    return (*uses, *kills, instruction.argval) if instruction.opname == "STORE_CLOSURE" else (*uses, *kills)


def _origin(original: Instruction, parent: Resume | None) -> int | None:
    if original.offset is None or parent is None:
        return original.offset
    return parent.original_offset(original.offset)


def _restore(
    emitter: Emitter, program: Program, code: Program, parameters: Sequence[Parameter], kinds: Sequence[StackKind], lasti: object
) -> None:
    """Receives the parameters and puts the value stack back as it was."""
    cells = [parameter.name for parameter in parameters if parameter.kind is ParameterKind.CELL]
    given = set(program.given_cells)
    emitter.prologue(free=len(code.freevars), resume=False)
    for name in cells:
        if name in given:
            _take(emitter, name)
            emitter.store_closure(name)
            continue
        # MAKE_CELL tells the interpreter (for locals() and super()) that there is a cell; the one passed takes its place.
        emitter.load_closure(name)
        emitter.make_cell(name)
        emitter.store_closure(name)
    if code.is_generator:
        emitter.emit("RETURN_GENERATOR")
        emitter.pop_top()
    emitter.prologue()
    names = {parameter.place: parameter.name for parameter in parameters if parameter.place >= 0}
    for place, kind in enumerate(kinds):
        match kind:
            case StackKind.NULL:
                emitter.push_null()
            case StackKind.LASTI:
                emitter.load_const(lasti)
            case StackKind.PREVIOUS:
                _take(emitter, names[place])
                emitter.push_exc_info()
                emitter.pop_top()
            case _:
                _take(emitter, names[place])


def _take(emitter: Emitter, name: str) -> None:
    """Pushes a parameter that is no variable of the original function, and unbinds it: ``locals()`` must not show it."""
    emitter.load_fast(name)
    emitter.delete_fast(name)
