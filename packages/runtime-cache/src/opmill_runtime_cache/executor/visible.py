"""From which step of a plan on a second run would be seen: something outside of the plan was written, or told to others."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import BindError
from ..plan.model import Alloc, Call, Launch, Plan, TensorInput, View
from ..plan.verify import slots_in
from .names import operator_of
from .overlaps import written_by

_TELLING = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "opmill_exchange")


def first_visible(plan: Plan) -> int:
    """The number of the first such step; that of all steps where there is none."""
    outside = {item.slot for item in plan.inputs if type(item) is TensorInput} | {item.slot for item in plan.constants}
    for number, step in enumerate(plan.steps):
        if type(step) is Alloc:
            outside.discard(step.slot)
        elif type(step) is View:
            (outside.add if step.base in outside else outside.discard)(step.slot)
        elif type(step) is Launch:
            if any(step.slots[position] in outside for position in step.writes):
                return number
        elif type(step) is Call:
            overload = None if step.bodies else _operator(step)
            if overload is not None and (_tells(overload) or any(slot in outside for slot in written_by(step, overload))):
                return number
            given = any(slot in outside for arg in (*step.args, *step.kwargs.values()) for slot in slots_in(arg))
            shows = given and overload is not None and any(r.alias_info is not None for r in overload._schema.returns)
            for slot in step.results:
                if slot is not None:
                    (outside.add if shows else outside.discard)(slot)
    return len(plan.steps)


def _operator(step: Call) -> torch._ops.OpOverload | None:
    try:
        found: Any = operator_of(step.op)
    except BindError:
        return None
    return found if isinstance(found, torch._ops.OpOverload) else None


def _tells(overload: torch._ops.OpOverload) -> bool:
    """Whether it does something that nobody reads from a result. Numbers may be drawn again, and checks made."""
    return overload.namespace in _TELLING or (overload.namespace not in ("aten", "prims") and not overload._schema.returns)


__all__ = ["first_visible"]
