"""Control flow of a program: successors, reachability, the depth of the value stack."""

from __future__ import annotations

import dis
from collections.abc import Iterator

from .program import Instruction, Program
from .versions import HAS_CONST, HAS_JUMP, HAS_NAME, HAS_VARIABLE, JUMP_ALWAYS, NAME_FLAG_BITS, OPCODES, PAIR_OPS, PSEUDO, TERMINAL


def stack_effect(instruction: Instruction, *, jump: bool = False) -> int:
    """How many values ``instruction`` adds to the stack (negative: takes from it), when it jumps or when it falls through."""
    opname = PSEUDO.get(instruction.opname, instruction.opname)
    if opname == "RETURN_GENERATOR":
        return 1  # what is sent first; 3.11 and 3.12 do not count it
    if opname == "PRECALL":
        return 0  # 3.11 counts the arguments here, but CALL takes them
    if opname == "CALL":
        return -1 - instruction.argval
    if opname in HAS_JUMP or instruction.target is not None:
        return dis.stack_effect(_number(opname), 0, jump=jump)
    if opname in HAS_NAME:
        return dis.stack_effect(OPCODES[opname], instruction.flag if opname in NAME_FLAG_BITS else 0, jump=jump)
    if opname in HAS_CONST or opname in HAS_VARIABLE or opname in PAIR_OPS or opname in ("COMPARE_OP", "BINARY_OP"):
        return dis.stack_effect(OPCODES[opname], 0, jump=jump)
    number = OPCODES[opname]
    takes_argument = number >= dis.HAVE_ARGUMENT
    return dis.stack_effect(number, (instruction.argval or 0) if takes_argument else None, jump=jump)


def _number(opname: str) -> int:
    if opname.startswith("POP_JUMP") and opname not in OPCODES:  # 3.11 has a form for each direction
        return OPCODES[opname.replace("POP_JUMP_", "POP_JUMP_FORWARD_")]
    return OPCODES["JUMP_FORWARD" if opname == "JUMP" else opname]


def falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction in order can run after this one."""
    return instruction.opname not in TERMINAL and instruction.opname not in JUMP_ALWAYS


def successors(program: Program) -> dict[Instruction, list[Instruction]]:
    """For each instruction those that may run next without an exception."""
    result: dict[Instruction, list[Instruction]] = {}
    following = iter([*program.instructions[1:], None])
    for instruction, after in zip(program.instructions, following, strict=True):
        result[instruction] = [instruction.target] if instruction.target is not None else []
        if falls_through(instruction) and after is not None:
            result[instruction].append(after)
    return result


def reachable(program: Program, start: Instruction) -> set[Instruction]:
    """Every instruction that may run once ``start`` does, exception handlers included."""
    edges = successors(program)
    seen: set[Instruction] = set()
    pending = [start]
    while pending:
        instruction = pending.pop()
        if instruction in seen:
            continue
        seen.add(instruction)
        pending += edges[instruction]
        if instruction.handler is not None:
            pending.append(instruction.handler.target)
    return seen


def stack_depths(program: Program) -> dict[Instruction, int]:
    """Depth of the value stack before each reachable instruction (the largest, where paths disagree in dead ends)."""
    depths: dict[Instruction, int] = {}
    after = dict(zip(program.instructions, program.instructions[1:], strict=False))
    pending: list[tuple[Instruction, int]] = [(program.instructions[0], 0)] if program.instructions else []
    while pending:
        instruction, depth = pending.pop()
        if instruction in depths and depths[instruction] >= depth:
            continue
        depths[instruction] = depth
        pending += _steps(instruction, depth, after)
    return depths


def _steps(instruction: Instruction, depth: int, after: dict[Instruction, Instruction]) -> Iterator[tuple[Instruction, int]]:
    handler = instruction.handler
    if handler is not None:
        yield handler.target, handler.depth + handler.lasti + 1
    if instruction.target is not None:
        yield instruction.target, depth + stack_effect(instruction, jump=True)
    if falls_through(instruction) and instruction in after:
        yield after[instruction], depth + stack_effect(instruction)


def stack_size(program: Program) -> int:
    """The room that the value stack of ``program`` needs."""
    size = 1
    for instruction, depth in stack_depths(program).items():
        size = max(size, depth, depth + stack_effect(instruction))
        if instruction.target is not None:
            size = max(size, depth + stack_effect(instruction, jump=True))
    return size
