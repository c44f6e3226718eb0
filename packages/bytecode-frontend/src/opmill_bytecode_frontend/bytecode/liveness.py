"""Which local variables a program may still read before each instruction."""

from __future__ import annotations

from .flow import reachable, successors
from .program import Instruction, Program
from .versions import HAS_VARIABLE

# Functions that may read every variable of the frame that calls them.
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
    edges = successors(program)
    special = _hidden_uses(program)
    live: dict[Instruction, frozenset[str]] = {instruction: frozenset() for instruction in program.instructions}
    facts = {instruction: tuple(map(frozenset, uses_and_kills(instruction))) for instruction in program.instructions}
    changed = True
    while changed:
        changed = False
        for instruction in reversed(program.instructions):
            after: frozenset[str] = frozenset().union(*(live[successor] for successor in edges[instruction]))
            uses, kills = facts[instruction]
            before = (after - kills) | uses | special.get(instruction, frozenset())
            if instruction.handler is not None:
                before |= live[instruction.handler.target]
            if before != live[instruction]:
                live[instruction] = before
                changed = True
    return live


def live_at(program: Program, at: Instruction) -> frozenset[str]:
    """`liveness` at one instruction, looking only at what runs from there on."""
    rest = reachable(program, at)
    part = Program(**{**vars(program), "instructions": [i for i in program.instructions if i in rest]})
    return liveness(part)[at]


def _hidden_uses(program: Program) -> dict[Instruction, frozenset[str]]:
    everything = frozenset([*program.varnames, *program.cellvars, *program.freevars])
    first = frozenset(program.varnames[:1]) if "__class__" in program.freevars else frozenset()
    result: dict[Instruction, frozenset[str]] = {}
    for instruction in program.instructions:
        opname, value = instruction.opname, instruction.argval
        if opname in ("LOAD_GLOBAL", "LOAD_NAME") and value in _READS_ALL:
            result[instruction] = everything
        elif (opname in ("CALL", "PRECALL") and value == 0) or (opname == "LOAD_SUPER_ATTR" and not instruction.flag & 2):
            result[instruction] = first
    return result
