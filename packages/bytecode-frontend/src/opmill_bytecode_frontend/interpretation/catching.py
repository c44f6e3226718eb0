"""Whether the program itself handles what an operation raises."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from ..values.base import find_in_mro

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from ..bytecode.program import ExceptionHandler
    from .frame import Frame

#: Exceptions that no kernel raises.
NOT_OF_KERNELS = (
    TypeError,
    AttributeError,
    KeyError,
    NameError,
    ImportError,
    OSError,
    StopIteration,
    SyntaxError,
    KeyboardInterrupt,
    GeneratorExit,
)
#: What no expression of an except clause holds.
ENDING = ("RERAISE", "RETURN_VALUE", "RAISE_VARARGS", "POP_TOP")
UNKNOWN = object()


def is_caught(frame: Frame | None) -> bool:
    """Whether an except clause around what runs, in its function or in one that called it, may take an exception of a kernel; or a with
    block, but those of torch's own managers. Callers stay where they are while a frame runs: they are asked once."""
    if frame is None:
        return False
    if _is_caught_in(frame):
        return True
    if frame.caught_outside is None:
        frame.caught_outside = is_caught(frame.caller)
    return frame.caught_outside


def _is_caught_in(frame: Frame) -> bool:
    """Whether the function itself does."""
    instructions = frame.prepared.instructions
    handler = instructions[max(0, frame.pc - 1)].handler
    while handler is not None:
        if _takes(frame, handler, instructions, frame.prepared.index[id(handler.target)]):
            return True
        handler = handler.target.handler
    return False


def _takes(frame: Frame, handler: ExceptionHandler, instructions: list[Instruction], at: int) -> bool:
    """Whether the handler that begins at an instruction may go on as if nothing had happened."""
    if instructions[at].opname != "PUSH_EXC_INFO":
        return False  # puts back what was handled before, and raises again
    at += 1
    first = instructions[at].opname
    if first == "WITH_EXCEPT_START":
        return not _is_torchs(frame, handler)
    if first == "POP_TOP":  # except:
        return True
    while True:
        classes, end = _classes(frame, instructions, at)
        if end is None:
            return classes is UNKNOWN
        if any(not (issubclass(type(each), type) and issubclass(each, NOT_OF_KERNELS)) for each in classes):
            return True
        target = instructions[end + 1].target
        if target is None:
            return True
        at = frame.prepared.index[id(target)]
        if instructions[at].opname in ("RERAISE", "POP_TOP"):
            return instructions[at].opname == "POP_TOP"


def _classes(frame: Frame, instructions: list[Instruction], at: int) -> tuple[Any, int | None]:
    """The classes that an except clause names, and where they are compared. Without a place: UNKNOWN for a clause that computes them, and
    nothing for the body of a finally."""
    stack: list[Any] = []
    known = True
    for k in range(at, len(instructions)):
        ins = instructions[k]
        if ins.opname == "CHECK_EXC_MATCH":
            found = stack[-1] if known and stack else UNKNOWN
            return found if issubclass(type(found), tuple) else (found,), k
        if ins.opname == "CHECK_EG_MATCH":
            return UNKNOWN, None
        if ins.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            stack.append(frame.globals.get(ins.argval, getattr(builtins, ins.argval, UNKNOWN)))
        elif ins.opname == "LOAD_ATTR" and stack:
            stack[-1] = held(stack[-1], ins.argval)
        elif ins.opname == "BUILD_TUPLE" and known and ins.argval and len(stack) >= ins.argval:
            stack[-ins.argval :] = [tuple(stack[-ins.argval :])]
        elif ins.target is not None or ins.opname in ENDING or ins.opname.startswith("STORE"):
            return (), None
        else:
            known = False
    return (), None


def held(owner: object, name: str) -> object:
    """An attribute as modules and classes hold it. Nothing else is asked: it may be the program that answers."""
    if type(owner) is types.ModuleType:
        return vars(owner).get(name, UNKNOWN)
    return find_in_mro(vars(type)["__mro__"].__get__(owner), name)[1] if issubclass(type(owner), type) else UNKNOWN


def _is_torchs(frame: Frame, handler: ExceptionHandler) -> bool:
    """Whether a with block is one of torch's own managers, whose ends let exceptions through."""
    leave = frame.stack[handler.depth - 1] if 0 < handler.depth <= len(frame.stack) else None
    owner = getattr(leave, "owner", None)
    return owner is not None and str(owner.python_type().__module__).partition(".")[0] == "torch"


__all__ = ["is_caught"]
