"""From a code object to a `Program`."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

from .program import ExceptionHandler, Instruction, Position, Program
from .tables import decode_exceptions
from .versions import (
    BINARY_OPERATORS,
    CACHE,
    CACHES,
    COMPARE_OPERATORS,
    COMPARE_SHIFT,
    EXTENDED_ARG,
    HAS_CONST,
    HAS_JUMP,
    HAS_NAME,
    HAS_VARIABLE,
    LOAD_CLOSURE,
    NAME_FLAG_BITS,
    NEUTRAL_JUMPS,
    OPNAMES,
    PAIR_OPS,
    STORE_CLOSURE,
    TAKES_NUMBER,
)


def decode(code: CodeType) -> Program:
    """Decodes ``code``; nested code objects stay constants. Specialised and instrumented forms are seen as compiled."""
    program = Program(
        name=code.co_name,
        qualname=code.co_qualname,
        filename=code.co_filename,
        firstlineno=code.co_firstlineno,
        argcount=code.co_argcount,
        posonlyargcount=code.co_posonlyargcount,
        kwonlyargcount=code.co_kwonlyargcount,
        flags=code.co_flags,
        varnames=list(code.co_varnames),
        cellvars=list(code.co_cellvars),
        freevars=list(code.co_freevars),
        consts=list(code.co_consts),
        names=list(code.co_names),
        stacksize=code.co_stacksize,
    )
    variables = slot_names(code)
    positions = [*code.co_positions()]
    by_unit: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []
    for start, unit, opname, argument in _units(code.co_code):
        instruction = Instruction(opname, position=Position(*positions[unit]), offset=start * 2)
        after = unit + 1 + CACHES.get(opname, 0)
        if opname in HAS_JUMP:
            jumps.append((instruction, after - argument if "BACKWARD" in opname else after + argument))
            instruction.opname = NEUTRAL_JUMPS.get(opname, opname)
        else:
            _resolve(instruction, argument, program, variables)
        by_unit[start] = instruction
    program.instructions = list(by_unit.values())
    for instruction, target in jumps:
        instruction.target = by_unit[target]
    _attach_handlers(code.co_exceptiontable, by_unit)
    return program


def slot_names(code: CodeType) -> list[str]:
    """The names of the frame's slots: locals (parameters that are cells among them), other cells, free variables."""
    merged = set(code.co_varnames)
    cells = [name for name in code.co_cellvars if name not in merged]
    return [*code.co_varnames, *cells, *code.co_freevars]


def _units(code: bytes) -> Iterator[tuple[int, int, str, int]]:
    """(unit where the instruction with its prefixes starts, unit of its opcode, name, argument), caches left out."""
    start, argument, unit = None, 0, 0
    while unit * 2 < len(code):
        number, low = code[unit * 2], code[unit * 2 + 1]
        argument = argument << 8 | low
        if start is None:
            start = unit
        if number == EXTENDED_ARG:
            unit += 1
            continue
        opname = OPNAMES[number]
        if number != CACHE:
            yield start, unit, opname, argument
        start, argument = None, 0
        unit += 1 + CACHES.get(opname, 0)


def _resolve(instruction: Instruction, argument: int, program: Program, variables: list[str]) -> None:
    opname = instruction.opname
    if opname in HAS_CONST:
        instruction.argval, instruction.index = program.consts[argument], argument
    elif opname in HAS_NAME:
        bits = NAME_FLAG_BITS.get(opname, 0)
        instruction.flag = argument & (1 << bits) - 1
        instruction.argval, instruction.index = program.names[argument >> bits], argument >> bits
    elif opname in HAS_VARIABLE:
        instruction.argval, instruction.index = variables[argument], argument
        if opname in _CLOSURE_FORMS and _is_cell(argument, program):
            instruction.opname = _CLOSURE_FORMS[opname]
    elif opname in PAIR_OPS:
        first, second = argument >> 4, argument & 15
        instruction.argval, instruction.index = (variables[first], variables[second]), argument
    else:
        instruction.argval, instruction.flag = _plain(opname, argument)


_CLOSURE_FORMS = {"LOAD_FAST": LOAD_CLOSURE, "STORE_FAST": STORE_CLOSURE}


def _is_cell(slot: int, program: Program) -> bool:
    """Whether a slot holds a cell that the function makes (a parameter or a comprehension's variable too) or received."""
    if slot >= len(program.varnames):
        return True
    return program.varnames[slot] in program.cellvars


def _plain(opname: str, argument: int) -> tuple[object, int]:
    if opname == "COMPARE_OP":
        return COMPARE_OPERATORS[argument >> COMPARE_SHIFT], argument & (1 << COMPARE_SHIFT) - 1
    if opname == "BINARY_OP":
        return BINARY_OPERATORS[argument], 0
    return argument or (0 if opname in TAKES_NUMBER else None), 0


def _attach_handlers(table: bytes, by_unit: dict[int, Instruction]) -> None:
    handlers: dict[tuple[int, int, bool], ExceptionHandler] = {}
    entries = list(decode_exceptions(table))
    if not entries:
        return
    spans = iter(entries)
    start, length, target, depth, lasti = next(spans)
    for unit, instruction in by_unit.items():
        while unit >= start + length:
            following = next(spans, None)
            if following is None:
                return
            start, length, target, depth, lasti = following
        if unit >= start:
            key = (target, depth, lasti)
            if key not in handlers:
                handlers[key] = ExceptionHandler(by_unit[target], depth, lasti)
            instruction.handler = handlers[key]
