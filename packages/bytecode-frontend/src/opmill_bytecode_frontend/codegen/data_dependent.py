"""What only data tell, where it leaves captured code: read from the graph's results."""

from __future__ import annotations

from ..values.data_dependent import LateFloat, LateText, LateTruth
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


__all__ = ["late_text", "late_value", "made_text"]
