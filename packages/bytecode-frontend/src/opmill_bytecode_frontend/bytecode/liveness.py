"""Which local variables a program may still read before each instruction."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

from .flow import reachable, successors
from .program import Instruction, Program
from .versions import HAS_VARIABLE

# Functions that may read every variable of the frame that calls them.
_READS_FRAMES = ("f_locals",)
_READS_ALL = frozenset({"locals", "vars", "dir", "eval", "exec"})
_WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
# Cells outlive the store: somebody else may read them, so a store needs the cell.
_READS_NOTHING = frozenset({"STORE_FAST", "STORE_CLOSURE"})


def uses_and_kills(instruction: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables an instruction reads (or needs the cell of), and the local ones that it overwrites or deletes."""
    opname, value = instruction.opname, instruction.argval
    if opname in HAS_VARIABLE:
        uses = () if opname in _READS_NOTHING else (value,)
        return uses, ((value,) if opname in _WRITES else ())
    if opname == "LOAD_FAST_LOAD_FAST":
        return value, ()
    if opname == "STORE_FAST_LOAD_FAST":
        return ((value[1],) if value[0] != value[1] else ()), (value[0],)
    if opname == "STORE_FAST_STORE_FAST":
        return (), value
    return (), ()


def liveness(program: Program) -> dict[Instruction, frozenset[str]]:
    """The variables (locals, cells, free ones) that may be read from each instruction on, exceptions included.

    All count as live where ``locals()`` and its kin may still be called, and the first parameter where ``super()`` may, which
    looks for it in the frame.
    """
    names, live = _live_sets(program)
    return {instruction: _named(names, live[instruction]) for instruction in program.instructions}


def live_at(program: Program, at: Instruction) -> frozenset[str]:
    """`liveness` at one instruction, looking only at what runs from there on."""
    rest = reachable(program, at)
    part = Program(**{**vars(program), "instructions": [i for i in program.instructions if i in rest]})
    names, live = _live_sets(part)
    return _named(names, live[at])


def _named(names: dict[str, int], mask: int) -> frozenset[str]:
    return frozenset(name for name, bit in names.items() if mask & bit)


def _live_sets(program: Program) -> tuple[dict[str, int], dict[Instruction, int]]:
    """The bit of each variable, and the set of live ones before each instruction."""
    names: dict[str, int] = {}

    def mask(variables: Iterable[str]) -> int:
        return functools.reduce(operator.or_, (names.setdefault(name, 1 << len(names)) for name in variables), 0)

    edges = successors(program)
    special = _hidden_uses(program)
    facts = []
    for instruction in reversed(program.instructions):
        uses, kills = uses_and_kills(instruction)
        handler = instruction.handler.target if instruction.handler is not None else None
        reads = mask(uses) | mask(special.get(instruction, ()))
        facts.append((instruction, edges[instruction], handler, reads, ~mask(kills)))
    live: dict[Instruction, int] = dict.fromkeys(program.instructions, 0)
    changed = True
    while changed:
        changed = False
        for instruction, following, handler, reads, kept in facts:
            after = 0
            for successor in following:
                after |= live[successor]
            before = after & kept | reads
            if handler is not None:
                before |= live[handler]
            if before != live[instruction]:
                live[instruction] = before
                changed = True
    return names, live


def reads_names(instruction: Instruction) -> bool:
    """Whether a builtin function is loaded that reads all variables of its caller, or the variables of a frame are read."""
    names = _READS_ALL if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else _READS_FRAMES
    return instruction.argval in names and instruction.opname.startswith("LOAD_")


def _hidden_uses(program: Program) -> dict[Instruction, frozenset[str]]:
    everything = frozenset([*program.varnames, *program.cellvars, *program.freevars])
    first = frozenset(program.varnames[:1]) if "__class__" in program.freevars else frozenset()
    result: dict[Instruction, frozenset[str]] = {}
    for instruction in program.instructions:
        opname, value = instruction.opname, instruction.argval
        if reads_names(instruction):
            result[instruction] = everything
        elif (opname in ("CALL", "PRECALL") and value == 0) or (opname == "LOAD_SUPER_ATTR" and not instruction.flag & 2):
            result[instruction] = first
    return result
