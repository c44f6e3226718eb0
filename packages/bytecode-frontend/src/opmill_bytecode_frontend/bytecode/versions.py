"""Facts about the running interpreter's bytecode, gathered from ``dis`` into plain tables (Python 3.11 to 3.13)."""

import dis
import opcode
import sys

VERSION: tuple[int, int] = sys.version_info[:2]

OPCODES: dict[str, int] = {name: number for name, number in dis.opmap.items() if number < 256}
OPNAMES: dict[int, str] = {number: name for name, number in OPCODES.items()}
EXTENDED_ARG: int = dis.EXTENDED_ARG
CACHE: int = OPCODES["CACHE"]


def _caches() -> dict[str, int]:
    entries = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(entries, dict):  # 3.13: by name
        return dict(entries)
    return {OPNAMES[number]: count for number, count in enumerate(entries) if count and number in OPNAMES}


CACHES: dict[str, int] = _caches()
"""Inline cache units that follow an instruction, by name."""


def _names(numbers: list[int]) -> frozenset[str]:
    return frozenset(OPNAMES[number] for number in numbers if number in OPNAMES)


HAS_CONST = _names(dis.hasconst)
HAS_NAME = _names(dis.hasname)
PAIR_HALVES: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
PAIR_OPS = frozenset(PAIR_HALVES)
"""3.13 super-instructions: two local variables of four bits each."""
HAS_VARIABLE = (_names(dis.haslocal) | _names(dis.hasfree)) - PAIR_OPS
HAS_JUMP = _names(dis.hasjrel)

# Low bits of the argument of these carry flags, the rest is the index of a name.
NAME_FLAG_BITS: dict[str, int] = {"LOAD_GLOBAL": 1}
if VERSION >= (3, 12):
    NAME_FLAG_BITS |= {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}

# COMPARE_OP: the operator sits above these bits, which tell the specialised forms which outcomes are true.
COMPARE_SHIFT: int = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
COMPARE_MASKS: dict[str, int] = {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12} if COMPARE_SHIFT else {}
COMPARE_OPERATORS: tuple[str, ...] = tuple(dis.cmp_op)
BINARY_OPERATORS: tuple[str, ...] = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]

# 3.11 has one conditional jump for each direction; a program names them without it.
NEUTRAL_JUMPS: dict[str, str] = {
    f"POP_JUMP_{direction}_IF_{condition}": f"POP_JUMP_IF_{condition}"
    for direction in ("FORWARD", "BACKWARD")
    for condition in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    if f"POP_JUMP_{direction}_IF_{condition}" in OPCODES
}
FORWARD_FORM: dict[str, str] = {neutral: name for name, neutral in NEUTRAL_JUMPS.items() if "FORWARD" in name}
BACKWARD_FORM: dict[str, str] = {neutral: name for name, neutral in NEUTRAL_JUMPS.items() if "BACKWARD" in name}
FORWARD_FORM |= {"JUMP": "JUMP_FORWARD", "JUMP_BACKWARD": "JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_FORWARD"}
BACKWARD_FORM |= {"JUMP": "JUMP_BACKWARD", "JUMP_FORWARD": "JUMP_BACKWARD"}

# Pseudo-instructions of a program: they touch the slot of a cell or free variable itself, not what it holds.
LOAD_CLOSURE = "LOAD_CLOSURE"
STORE_CLOSURE = "STORE_CLOSURE"
PSEUDO: dict[str, str] = {STORE_CLOSURE: "STORE_FAST"} | ({} if LOAD_CLOSURE in OPCODES else {LOAD_CLOSURE: "LOAD_FAST"})
HAS_VARIABLE |= set(PSEUDO)

TERMINAL = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})
JUMP_ALWAYS = frozenset({"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})

TAKES_NUMBER = frozenset(name for name, number in OPCODES.items() if number in getattr(dis, "hasarg", ()) or number >= dis.HAVE_ARGUMENT)
"""Instructions whose argument means something."""
