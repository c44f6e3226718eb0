"""Lines of the user's source in messages, marked as Python's own tracebacks mark them."""

from __future__ import annotations

import dis
import os
import re
import traceback
import types
from collections.abc import Sequence

from ..interpretation.owners import TORCH, underneath

Span = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, column behind the last."""

_DISPATCH = {os.path.join(TORCH, "nn", "modules", "module.py")}
"""Files whose frames only pass calls on: ``Module._call_impl``. Nobody looks for the cause of anything there."""


def excerpt(stack: Sequence[tuple[str, int, str]], spans: Sequence[Span | None]) -> list[str]:
    """Lines of a traceback through ``stack``, (file, line, function), innermost first: the outermost call comes first, as in Python's, and
    carets mark the expression at its ``span`` in each frame. Of a library that the program calls, the innermost frame is shown alone. Empty
    for a single frame whose source cannot be read."""
    frames = []
    users = next((number for number, (file, _, _) in enumerate(stack) if not underneath(file)), 0)
    for number, (file, line, function) in enumerate(stack):
        if number and (file in _DISPATCH or number < users):
            continue
        first, last, start, end = (spans[number] if number < len(spans) else None) or (None, None, None, None)
        known = first is not None and start is not None
        frames.append(
            traceback.FrameSummary(
                file,
                first if known else line,
                function,
                end_lineno=last if known else None,
                colno=start if known else None,
                end_colno=end if known else None,
            )
        )
    if len(frames) == 1 and not frames[0].line:
        return []
    return "".join(traceback.StackSummary.from_list(list(reversed(frames))).format()).rstrip().splitlines()


def first_read(code: types.CodeType, name: str) -> tuple[str, int, str, Span] | None:
    """Where code, or a function inside of it, first reads a variable, an attribute or a key of this name: file, line, function, columns."""
    positions = list(code.co_positions())
    for instruction in dis.get_instructions(code):
        at = positions[instruction.offset // 2]
        if instruction.argval == name and instruction.opname.startswith("LOAD") and at[0] is not None:
            return code.co_filename, at[0], code.co_name, at
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and (found := first_read(constant, name)) is not None:
            return found
    return None


_PLAINER = (
    (re.compile(r"\.cell_contents\b"), ""),  # a variable of the function around
    (re.compile(r"\.__dict__\['(\w+)'\]"), r".\1"),  # an attribute
    (re.compile(r"(?<!\w)\.stack\d+"), "a value of the unfinished statement"),  # what a resume function is handed
)


def plainly(text: str) -> str:
    """What guards say of where a value comes from, as the program itself would write it."""
    for pattern, plain in _PLAINER:
        text = pattern.sub(plain, text)
    return text


__all__ = ["Span", "excerpt", "first_read", "plainly"]
