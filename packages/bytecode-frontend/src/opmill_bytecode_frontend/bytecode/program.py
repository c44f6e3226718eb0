"""A code object as data: instructions that refer to values, variables and each other instead of indices and offsets."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from .versions import PAIR_HALVES, STORE_CLOSURE, VERSION


class Position(NamedTuple):
    """Where an instruction comes from in the source; ``None`` where the compiler says nothing. Columns are UTF-8 bytes."""

    lineno: int | None = None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


NOWHERE = Position()


class ExceptionHandler(Struct, eq=False):
    """Where an exception raised by the instructions under it goes.

    The value stack is cut to ``depth`` values, the raising instruction's offset is pushed when ``lasti`` is set, then
    the exception, and ``target`` runs next.
    """

    target: Instruction
    depth: int
    lasti: bool


class Instruction(Struct, eq=False):
    """One instruction without caches and EXTENDED_ARG; compared by identity, so that jumps can refer to it.

    ``argval`` is the constant, the name, the variable's name (a pair of names for 3.13's super-instructions), the operator
    (``"+"``, ``"+="``, ``"<"``), or the plain number; ``None`` without an argument and for jumps, whose ``target`` is set.
    ``flag`` holds the low bits that some versions pack beside a name or operator: LOAD_GLOBAL's "push NULL", LOAD_ATTR's
    "method", LOAD_SUPER_ATTR's two, COMPARE_OP's mask (3.12) and bool bit 16 (3.13).
    ``index`` remembers which constant, name or slot was meant, so that duplicates survive; a wrong one is ignored.
    ``offset`` is the byte offset in the code object that it was decoded from.
    """

    opname: str
    argval: Any = None
    flag: int = 0
    target: Instruction | None = None
    position: Position = NOWHERE
    handler: ExceptionHandler | None = None
    index: int | None = None
    offset: int | None = None

    @property
    def gives_truth(self) -> bool:
        """Whether a comparison asks its result for its truth as well, as those in front of a jump do from 3.13 on."""
        return self.opname == "COMPARE_OP" and VERSION >= (3, 13) and bool(self.flag & 16)

    def __repr__(self) -> str:
        if self.target is not None:
            return f"<{self.opname} to {self.target.opname}@{self.target.offset} line {self.position.lineno}>"
        return f"<{self.opname} {self.argval!r}{f' flag={self.flag}' if self.flag else ''} line {self.position.lineno}>"


class ExceptionRange(Struct, frozen=True):
    """The instructions ``start`` (included) to ``end`` (excluded, ``None`` for the end) that one handler covers."""

    start: Instruction
    end: Instruction | None
    handler: Instruction
    depth: int
    lasti: bool


@dataclass(eq=False)
class Program:
    """A decoded code object; edit the instructions freely and `assemble` it again.

    ``varnames`` begins with the parameters. Local names that instructions use and it lacks are added by `assemble`.
    ``stacksize`` is informative: assembling computes it anew.
    """

    name: str
    qualname: str
    filename: str
    firstlineno: int
    argcount: int = 0
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    flags: int = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
    varnames: list[str] = field(default_factory=list)
    cellvars: list[str] = field(default_factory=list)
    freevars: list[str] = field(default_factory=list)
    consts: list[object] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    stacksize: int = 0
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters in slot order: positional, keyword-only, ``*args``, ``**kwargs``."""
        return self.varnames[: self.parameter_count]

    @property
    def parameter_count(self) -> int:
        """How many slots the parameters take, ``*args`` and ``**kwargs`` counted."""
        star = bool(self.flags & inspect.CO_VARARGS) + bool(self.flags & inspect.CO_VARKEYWORDS)
        return self.argcount + self.kwonlyargcount + star

    @property
    def is_generator(self) -> bool:
        """Whether calling it makes a generator, a coroutine or an asynchronous generator."""
        return bool(self.flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))

    @property
    def late_cells(self) -> set[str]:
        """Cells that comprehensions make for themselves, of variables whose names mean plain locals elsewhere (from 3.12 on)."""
        made: dict[str, list[bool]] = {}
        begun = False
        for instruction in self.instructions if self.cellvars else ():
            begun |= instruction.opname == "RESUME"
            if instruction.opname == "MAKE_CELL":
                made.setdefault(instruction.argval, []).append(begun)
        return {name for name, late in made.items() if all(late)}

    @property
    def given_cells(self) -> list[str]:
        """Free variables whose cells are arguments: those of a resume function of a function made in captured code, which has no closure
        yet. The function begins by putting them in the place of its closure's. All of them, where no closure is copied."""
        begins = next((i for i, each in enumerate(self.instructions) if each.opname == "RESUME"), len(self.instructions))
        prologue = self.instructions[:begins]
        stored = {each.argval for each in prologue if each.opname == STORE_CLOSURE}
        copies = any(each.opname == "COPY_FREE_VARS" for each in self.instructions)
        return [name for name in self.freevars if name in stored or not copies]

    def exception_ranges(self) -> Iterator[ExceptionRange]:
        """The exception table, as maximal runs of instructions with one handler."""
        start: Instruction | None = None
        current: ExceptionHandler | None = None
        for instruction in [*self.instructions, None]:
            handler = instruction.handler if instruction is not None else None
            if handler is current:
                continue
            if current is not None and start is not None:
                yield ExceptionRange(start, instruction, current.target, current.depth, current.lasti)
            start, current = instruction, handler

    def __str__(self) -> str:
        numbers = {id(instruction): number for number, instruction in enumerate(self.instructions)}
        lines = [f"{self.qualname}({', '.join(self.parameters)})  # {self.filename}:{self.firstlineno}"]
        for number, instruction in enumerate(self.instructions):
            argument = "" if instruction.argval is None and instruction.opname != "LOAD_CONST" else f"{instruction.argval!r}"
            if instruction.target is not None:
                argument = f"-> {numbers.get(id(instruction.target), '?')}"
            flag = f" flag={instruction.flag}" if instruction.flag else ""
            handler = instruction.handler
            guarded = f"  [{numbers.get(id(handler.target), '?')} depth {handler.depth}{' lasti' * handler.lasti}]" if handler else ""
            lines.append(f"{number:5} {instruction.opname:28} {argument}{flag}  # {instruction.position.lineno}{guarded}")
        return "\n".join(lines)


def copy_instructions(instructions: Iterable[Instruction]) -> dict[Instruction, Instruction]:
    """Copies instructions and the links among them: original -> copy, in order. Links to others are kept as they are."""
    copies = {instruction: replace(instruction) for instruction in instructions}
    handlers: dict[ExceptionHandler, ExceptionHandler] = {}
    for copy in copies.values():
        if copy.target is not None:
            copy.target = copies.get(copy.target, copy.target)
        if copy.handler is not None:
            handler = copy.handler
            if handler not in handlers:
                handlers[handler] = replace(handler, target=copies.get(handler.target, handler.target))
            copy.handler = handlers[handler]
    return copies


def split_pairs(program: Program) -> None:
    """Replaces 3.13's super-instructions by the two that each stands for, in place."""
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        instructions.append(instruction)
        if isinstance(instruction.argval, tuple) and instruction.opname in PAIR_HALVES:
            (first, second), (name, other) = PAIR_HALVES[instruction.opname], instruction.argval
            instruction.opname, instruction.argval, instruction.index = first, name, None
            instructions.append(replace(instruction, opname=second, argval=other))
    program.instructions = instructions


def pad_ranges(program: Program) -> None:
    """Starts the range of every exception handler with a NOP, in place.

    3.13 looks an exception that leaves a called Python function up under the instruction before the call, so a call that is
    the first instruction of its range is not covered. The compiler never makes such ranges; cutting programs apart does.
    """
    instructions: list[Instruction] = []
    before: ExceptionHandler | None = None
    for instruction in program.instructions:
        if instruction.handler is not None and instruction.handler is not before and instruction.opname not in _CALLS_NOTHING:
            instructions.append(Instruction("NOP", position=instruction.position, handler=instruction.handler))
        instructions.append(instruction)
        before = instruction.handler
    program.instructions = instructions


_CALLS_NOTHING = frozenset({"NOP", "RESUME", "PUSH_EXC_INFO", "POP_TOP", "LOAD_FAST", "LOAD_CONST", "STORE_FAST", "LOAD_DEREF", "END_FOR"})
