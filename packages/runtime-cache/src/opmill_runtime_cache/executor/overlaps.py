"""What calls of operators may not overlap in memory.

An operator that is given where to write (``out=``) mostly writes while it still reads: sizes, indices or factors would change under it.
torch checks this for some of its operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..plan.model import Arg, Call
from ..plan.verify import slots_in
from .routes import schema_of

_ADDED_TO = frozenset(["aten::addmm", "aten::baddbmm", "aten::addmv", "aten::addbmm", "aten::addr"])
"""Operators that read the tensor which they add to before they write: it may be the one that they write."""


def _given(step: Call, overload: Any) -> Iterator[tuple[Any, Arg]]:
    """Arguments of the schema with what the call gives for them."""
    for number, argument in enumerate(schema_of(overload).arguments):
        arg = step.args[number] if number < len(step.args) else step.kwargs.get(argument.name)
        if arg is not None:
            yield argument, arg


def written_by(step: Call, overload: Any) -> list[int]:
    """The slots that the operator writes, by its schema."""
    return [slot for argument, arg in _given(step, overload) if argument.is_written for slot in slots_in(arg)]


def apart(step: Call, overload: Any) -> Iterator[tuple[int, int, int]]:
    """Slots that an operator writes as its ``out=``, with every other slot of the call, and 1 where both may be the same tensor: each
    element is read before it is written, by operators of single points and of what a product is added to."""
    if overload is None:
        return
    given = list(_given(step, overload))
    written = [slot for argument, arg in given if argument.is_out for slot in slots_in(arg)]
    by_points = torch.Tag.pointwise in overload.tags
    first = set(slots_in(step.args[0])) if step.args and step.op.partition(".")[0] in _ADDED_TO else set()
    factors = {slot for arg in step.args[1:] for slot in slots_in(arg)}
    others = dict.fromkeys(slot for argument, arg in given if not argument.is_out for slot in slots_in(arg))
    for place, slot in enumerate(written):
        for other in others:
            yield slot, other, int(by_points or (other in first and other not in factors))
        for other in written[place + 1 :]:
            yield slot, other, 0


__all__ = ["apart", "written_by"]
