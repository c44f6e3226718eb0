"""What only data tell, and lengths of lists that grow, where they leave captured code: read from the graph's results, and from the lists as
the call found them."""

from __future__ import annotations

import sys

from opmill_guards.storage import length_of

from ..values.data_dependent import LateFloat, LateText, LateTruth
from ..values.growing_lists import LengthOfList
from ..values.made_texts import MadeText
from ..values.opaque import RandomNumber
from .rebuild import Rebuilder, rebuilds


@rebuilds(LateText)
def late_text(r: Rebuilder, value: LateText) -> str:
    """Ends the graph before the text was made."""
    return value.constant()


@rebuilds(LateFloat, LateTruth)
def late_value(r: Rebuilder, value: LateFloat | LateTruth) -> str:
    """A float or a truth of a tensor: read from the tensor that the graph gives."""
    if isinstance(value.tensor.scalar, RandomNumber):
        return r.expr(value.tensor.scalar)
    return r.assign(value, f"{r.expr(value.tensor)}.item()")


@rebuilds(MadeText)
def made_text(r: Rebuilder, value: MadeText) -> str:
    """A text of numbers that are there by now."""
    return r.assign(value, f"{r.constants.name(value.function)}({', '.join(map(r.expr, value.args))})")


@rebuilds(LengthOfList)
def length(r: Rebuilder, value: LengthOfList) -> str:
    """How many items there were at the beginning, and those that were appended."""
    name, longest = r.temporary("_n"), value.owner.longest
    found = f"{r.constants.name(length_of)}({r.source(value.owner.source)}) + {value.more}"
    r.prologue.append(f"{name} = {found if longest == sys.maxsize else f'{r.constants.name(min)}({found}, {longest})'}")
    return name


__all__ = ["late_text", "late_value", "length", "made_text"]
