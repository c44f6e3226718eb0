"""``assert`` and ``if ...: raise`` on what only data tell: the program goes on as if they passed, and the graph checks when it runs that
they do."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors.symbols import Relation

from ..graph.failing import may_run_again
from .base import Machine
from .constant import ConstantValue

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from ..interpretation.frame import Frame


SKIPPED = ("NOP", "CACHE", "PRECALL", "PUSH_NULL")
JUMPS = {"POP_JUMP_IF_TRUE": True, "POP_JUMP_IF_FALSE": False}


def may_demand(vm: Machine) -> bool:
    """Whether the graph may check something here. Not in a graph inside of the graph; not where somebody would catch the error; and not
    where an object was changed before, which the plain program leaves changed when it raises."""
    frame: Frame | None = vm.frame
    if frame is None or vm.attempts or not vm.recorder.counts or vm.recorder.regions or vm.effects:
        return False
    while frame is not None:
        if frame.prepared.instructions[max(frame.pc - 1, 0)].handler is not None:
            return False
        frame = frame.caller
    return True


def raising(vm: Machine) -> tuple[bool, str, str] | None:
    """Where the instruction being run branches on a truth, and one way does nothing but raise a builtin exception: the truth that leads
    there, the name of the exception and its text. None elsewhere, and where the program itself must make that text but could not run again
    to do so."""
    frame: Frame = vm.frame
    instructions = frame.prepared.instructions
    at = frame.pc - 1
    here = instructions[at]
    if here.opname == "TO_BOOL" or here.gives_truth:
        at += 1
    jump = instructions[at]
    if jump.opname not in JUMPS:
        return None
    on_jump = JUMPS[jump.opname]
    for truth, start in ((on_jump, frame.prepared.index[id(jump.target)]), (not on_jump, at + 1)):
        if (found := raised(after_stores(instructions[start:]), frame.globals)) is not None:
            name, text = found
            if text is None and not may_run_again(vm.recorder.graph, vm.recorder.outside()):
                return None
            return truth, name, text or ""
    return None


def raised(instructions: Sequence[Instruction], names: dict[str, object]) -> tuple[str, str | None] | None:
    """Name and text of the builtin exception that these instructions raise at once, and nothing else; without a text where they make it."""
    steps = [ins for ins in instructions[:12] if ins.opname not in SKIPPED]
    match [(ins.opname, ins.argval) for ins in steps[:4]]:
        case [("LOAD_ASSERTION_ERROR", _), ("RAISE_VARARGS", 1), *_]:
            return "AssertionError", ""
        case [("LOAD_ASSERTION_ERROR", _), ("LOAD_CONST", str(text)), ("CALL", 0), ("RAISE_VARARGS", 1)]:
            return "AssertionError", text
        case [("LOAD_GLOBAL", name), ("LOAD_CONST", str(text)), ("CALL", 1), ("RAISE_VARARGS", 1)] if is_exception(name, names):
            return name, text
        case [("LOAD_GLOBAL", name), ("RAISE_VARARGS", 1), *_] if is_exception(name, names):
            return name, ""
        case [("LOAD_GLOBAL", name), *_] if is_exception(name, names) and goes_straight(instructions):
            return name, None  # the program makes its own text when it runs again, uncaptured
    return None


STRAIGHT = (
    "LOAD_",
    "FORMAT_",
    "CONVERT_",
    "BUILD_",
    "BINARY_",
    "UNARY_",
    "CALL",
    "PRECALL",
    "KW_NAMES",
    "PUSH_",
    "NOP",
    "CACHE",
    "COPY",
    "SWAP",
    "RESUME",
    "STORE_FAST",
)
"""Prefixes of instructions behind which the next one runs."""


def goes_straight(instructions: Sequence[Instruction]) -> bool:
    """Whether these end in a raise whatever happens, and store nothing before but in variables of the function."""
    end = next((ins for ins in instructions if not ins.opname.startswith(STRAIGHT)), None)
    return end is not None and end.opname == "RAISE_VARARGS" and end.argval == 1


def after_stores(instructions: Sequence[Instruction]) -> Sequence[Instruction]:
    """What comes before a raise, behind the last variable that is stored: what a message tells may be computed first."""
    for at, ins in enumerate(instructions):
        if not ins.opname.startswith(STRAIGHT):
            stores = [k for k, each in enumerate(instructions[:at]) if each.opname == "STORE_FAST"]
            return instructions[stores[-1] + 1 :] if stores else instructions
    return instructions


def is_exception(name: str, names: Mapping[str, object]) -> bool:
    """Whether the name means a builtin exception. A name that is rebound later is seen when the program raises."""
    found = getattr(builtins, name, None) if name not in names else None
    return isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, (StopIteration, StopAsyncIteration))


def demanded_of(vm: Machine, mask: Any, way: tuple[bool, str, str]) -> bool:
    """As :func:`demanded`, of the truth of a tensor of one element."""
    number = mask.method(vm, "to", [ConstantValue(torch.int64)], {}).method(vm, "item", [], {})
    holds = number.number != 0
    known: bool | None = holds if isinstance(holds, bool) else holds.node.known()  # it may have been demanded before
    return demanded(vm, holds.node.condition, way) if known is None else known


def demanded(vm: Machine, relation: Relation, way: tuple[bool, str, str]) -> bool:
    """Demands the outcome of ``relation`` that does not raise, and gives it. ``way``: what :func:`raising` found."""
    truth, error, text = way
    vm.recorder.demand(vm, relation.negated() if truth else relation, text, error)
    return not truth
