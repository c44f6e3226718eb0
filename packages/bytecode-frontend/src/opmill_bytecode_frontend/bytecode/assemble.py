"""From a `Program` back to a code object."""

from __future__ import annotations

from types import CodeType
from typing import Any

from .flow import stack_size
from .program import Instruction, Program
from .tables import encode_exceptions, encode_positions
from .versions import (
    BACKWARD_FORM,
    BINARY_OPERATORS,
    CACHES,
    COMPARE_OPERATORS,
    COMPARE_SHIFT,
    EXTENDED_ARG,
    FORWARD_FORM,
    HAS_CONST,
    HAS_NAME,
    HAS_VARIABLE,
    NAME_FLAG_BITS,
    OPCODES,
    PAIR_OPS,
    PSEUDO,
    VERSION,
)


def assemble(program: Program) -> CodeType:
    """Makes a code object for the running interpreter.

    Constants, names and variables that instructions use and the program's tables lack are added. Raises ValueError for what
    cannot be encoded: a jump to an instruction outside the program, an unknown opcode, a conditional jump backward on 3.12+; or
    what the interpreter takes for granted and would crash without: free variables that are not received first of all.
    """
    _check_closure(program)
    tables = _Tables(program)
    arguments = [tables.argument(instruction) for instruction in program.instructions]
    opnames, arguments, offsets = _lay_out(program.instructions, arguments)
    code = _encode(opnames, arguments)
    positions = (
        (end - start, instruction.position)
        for instruction, start, end in zip(program.instructions, offsets, [*offsets[1:], len(code) // 2], strict=True)
    )
    return CodeType(
        program.argcount,
        program.posonlyargcount,
        program.kwonlyargcount,
        len(tables.varnames),
        stack_size(program),
        program.flags,
        code,
        tuple(tables.consts),
        tuple(tables.names),
        tuple(tables.varnames),
        program.filename,
        program.name,
        program.qualname,
        program.firstlineno,
        encode_positions(positions, program.firstlineno, merge=VERSION >= (3, 12)),
        encode_exceptions(_exception_entries(program, offsets, len(code) // 2)),
        tuple(program.freevars),
        tuple(program.cellvars),
    )


def _check_closure(program: Program) -> None:
    """Whoever reads ``f_locals`` of a frame finds a cell in the slot of each free variable, or crashes the interpreter."""
    first = program.instructions[0] if program.instructions else None
    received = first.argval if first is not None and first.opname == "COPY_FREE_VARS" else 0
    if received != len(program.freevars):
        raise ValueError(f"{program.qualname} has {len(program.freevars)} free variables and begins by receiving {received}")


class _Tables:
    """Constants, names and slots of a code object under construction; turns what instructions mean into indices."""

    def __init__(self, program: Program) -> None:
        self.consts = list(program.consts)
        self.names = list(program.names)
        parameters = program.parameters
        # A local that is a cell too shares one slot; the code constructor merges the two for parameters only, so the
        # slot of any other becomes the cell's.
        self.varnames = parameters + [name for name in program.varnames[len(parameters) :] if name not in program.cellvars]
        self._const_index = {_const_key(value): index for index, value in reversed(list(enumerate(self.consts)))}
        self._name_index = {name: index for index, name in reversed(list(enumerate(self.names)))}
        known = {*self.varnames, *program.cellvars, *program.freevars}
        for instruction in program.instructions:
            for name in _variables(instruction):
                if name not in known:
                    known.add(name)
                    self.varnames.append(name)
        parameters_set = set(parameters)
        cells = [name for name in program.cellvars if name not in parameters_set]
        self.slots = [*self.varnames, *cells, *program.freevars]
        self._first_cell = len(self.varnames)
        self._slot_index: dict[str, int] = {}
        for index, name in enumerate(self.slots):
            self._slot_index.setdefault(name, index)
        self._cell_index = {name: index for index, name in enumerate(self.slots) if index >= self._first_cell}

    def argument(self, instruction: Instruction) -> int:
        opname, value = instruction.opname, instruction.argval
        if instruction.target is not None:
            return 0
        if opname in HAS_CONST:
            return self._const(instruction)
        if opname in HAS_NAME:
            bits = NAME_FLAG_BITS.get(opname, 0)
            return self._name(instruction) << bits | instruction.flag
        if opname in HAS_VARIABLE:
            return self._slot(instruction)
        if opname in PAIR_OPS:
            return self._pair(instruction)
        if opname == "COMPARE_OP":
            return COMPARE_OPERATORS.index(value) << COMPARE_SHIFT | instruction.flag
        if opname == "BINARY_OP":
            return BINARY_OPERATORS.index(value)
        return value or 0

    def _const(self, instruction: Instruction) -> int:
        index, value = instruction.index, instruction.argval
        if index is not None and index < len(self.consts) and self.consts[index] is value:
            return index
        key = _const_key(value)
        if key not in self._const_index:
            self._const_index[key] = len(self.consts)
            self.consts.append(value)
        return self._const_index[key]

    def _name(self, instruction: Instruction) -> int:
        index, name = instruction.index, instruction.argval
        if index is not None and index < len(self.names) and self.names[index] == name:
            return index
        if name not in self._name_index:
            self._name_index[name] = len(self.names)
            self.names.append(name)
        return self._name_index[name]

    def _slot(self, instruction: Instruction) -> int:
        index, name = instruction.index, instruction.argval
        if instruction.opname not in _LOCAL_OPS and name in self._cell_index:  # an argument may have the name of a free variable
            return self._cell_index[name]
        if index is not None and index < len(self.slots) and self.slots[index] == name:
            return index
        if name not in self._slot_index:
            raise ValueError(f"{instruction!r}: no variable of this name")
        return self._slot_index[name]

    def _pair(self, instruction: Instruction) -> int:
        index, (first, second) = instruction.index, instruction.argval
        if index is not None and index >> 4 < len(self.slots) and index & 15 < len(self.slots):
            if (self.slots[index >> 4], self.slots[index & 15]) == (first, second):
                return index
        high, low = self._slot_index[first], self._slot_index[second]
        if high > 15 or low > 15:
            raise ValueError(f"{instruction!r}: only the first 16 slots fit a pair; split it with split_pairs()")
        return high << 4 | low


_LOCAL_OPS = frozenset({"LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"})


def _variables(instruction: Instruction) -> tuple[str, ...]:
    if instruction.opname in _LOCAL_OPS:
        return (instruction.argval,)
    return instruction.argval if instruction.opname in PAIR_OPS else ()


def _const_key(value: object) -> int | tuple[type[object], object]:
    """Equal keys mean interchangeable constants; anything but plain scalars is interchangeable with itself only."""
    if type(value) in (int, str, bytes, bool, type(None)):
        return type(value), value
    return id(value)


def _lay_out(instructions: list[Instruction], arguments: list[int]) -> tuple[list[str], list[int], list[int]]:
    """Chooses opcodes by direction and sizes jumps until nothing moves: opcode names, arguments, start units."""
    order = {instruction: number for number, instruction in enumerate(instructions)}
    opnames = [_directed(instruction, number, order) for number, instruction in enumerate(instructions)]
    jumps = [(number, order[i.target]) for number, i in enumerate(instructions) if i.target is not None]
    caches = [CACHES.get(opname, 0) for opname in opnames]
    while True:
        sizes = [_units(argument) + cached for argument, cached in zip(arguments, caches, strict=True)]
        offsets = [0] * (len(sizes) + 1)
        for number, size in enumerate(sizes):
            offsets[number + 1] = offsets[number] + size
        stable = True
        for number, target in jumps:
            distance = abs(offsets[target] - offsets[number + 1])
            # Never shrinks below the size laid out, so that the iteration ends.
            stable &= _units(distance) <= _units(arguments[number])
            arguments[number] = distance if _units(distance) >= _units(arguments[number]) else arguments[number]
        if stable:
            break
    for number, target in jumps:
        arguments[number] = abs(offsets[target] - offsets[number + 1])
    return opnames, [_Sized(a, s - c) for a, s, c in zip(arguments, sizes, caches, strict=True)], offsets[:-1]


class _Sized(int):
    """An argument together with the units that its instruction takes without caches."""

    units: int

    def __new__(cls, value: int, units: int) -> _Sized:
        self = super().__new__(cls, value)
        self.units = units
        return self


def _directed(instruction: Instruction, number: int, order: dict[Instruction, int]) -> str:
    opname = PSEUDO.get(instruction.opname, instruction.opname)
    if instruction.target is not None:
        if instruction.target not in order:
            raise ValueError(f"{instruction!r}: jumps out of the program")
        backward = order[instruction.target] <= number
        opname = (BACKWARD_FORM if backward else FORWARD_FORM).get(opname, opname)
        if backward and "BACKWARD" not in opname:
            raise ValueError(f"{instruction!r}: cannot jump backward on this Python version")
    if opname not in OPCODES:
        raise ValueError(f"{instruction!r}: not an opcode of this Python version")
    return opname


def _units(argument: int) -> int:
    return 1 + (argument > 0xFF) + (argument > 0xFFFF) + (argument > 0xFFFFFF)


def _encode(opnames: list[str], arguments: list[Any]) -> bytes:
    code = bytearray()
    for opname, argument in zip(opnames, arguments, strict=True):
        for shift in range(argument.units - 1, 0, -1):
            code += bytes((EXTENDED_ARG, argument >> 8 * shift & 0xFF))
        code += bytes((OPCODES[opname], argument & 0xFF))
        code += bytes(2 * CACHES.get(opname, 0))
    return bytes(code)


def _exception_entries(program: Program, offsets: list[int], end: int) -> list[tuple[int, int, int, int, bool]]:
    at = dict(zip(program.instructions, offsets, strict=True))
    entries = []
    for span in program.exception_ranges():
        if span.handler not in at:
            raise ValueError(f"{span.handler!r}: handles exceptions from outside the program")
        start = at[span.start]
        stop = at[span.end] if span.end is not None else end
        entries.append((start, stop - start, at[span.handler], span.depth, span.lasti))
    return entries
