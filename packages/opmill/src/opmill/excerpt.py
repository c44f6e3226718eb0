"""Lines of the user's source in messages, marked as Python's own tracebacks mark them."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

Span = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, column behind the last."""

_DISPATCH = {str(Path(torch.__file__).parent / "nn" / "modules" / "module.py")}
"""Files whose frames only pass calls on: ``Module._call_impl``. Nobody looks for the cause of anything there."""


def excerpt(stack: Sequence[tuple[str, int, str]], span: Span | None) -> list[str]:
    """Lines of a traceback through ``stack``, (file, line, function), innermost first: the outermost call comes first, as in Python's, and
    carets mark the expression at ``span``, in the innermost frame. Empty for a single frame whose source cannot be read."""
    frames = []
    for number, (file, line, function) in enumerate(stack):
        if file in _DISPATCH and number:
            continue
        first, last, start, end = span if span is not None and number == 0 else (None, None, None, None)
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
