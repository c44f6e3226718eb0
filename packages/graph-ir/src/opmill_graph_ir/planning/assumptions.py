"""What a compiled graph assumes of symbolic sizes, as data: kept with its plan, and assumed again where the plan is used again."""

from __future__ import annotations

from typing import Literal

import msgspec

from opmill_fake_tensors.symbols import Relation, Sizes


class Assumed(msgspec.Struct, frozen=True, array_like=True):
    """``expression kind 0`` holds; ``operator`` and ``where`` asked for it."""

    expression: str
    kind: Literal["==", "!=", ">="]
    operator: str = ""
    where: str = ""


def assumptions_of(sizes: Sizes | None) -> tuple[Assumed, ...]:
    """Everything decided so far. What is demanded of sizes that only data tell is in the plan."""
    if sizes is None:
        return ()
    return tuple(Assumed(str(d.relation.expr), d.relation.kind, d.operator, d.where) for d in sizes.decisions)


def _relation(assumed: Assumed) -> Relation:
    from ..loops.text import parse_index

    return Relation(parse_index(assumed.expression), assumed.kind)


def fits(sizes: Sizes | None, assumed: tuple[Assumed, ...]) -> bool:
    """Whether it all holds for the sizes of another capture."""
    hints = {} if sizes is None else {name: symbol.hint for name, symbol in sizes.symbols.items() if symbol.hint is not None}
    return all(r.expr.symbols <= hints.keys() and r.holds(hints) for r in map(_relation, assumed))


def assume(sizes: Sizes | None, assumed: tuple[Assumed, ...]) -> None:
    """Decides in another capture what fits it."""
    if sizes is None:
        return
    where, operator = sizes.where, sizes.operator
    try:
        for each in assumed:
            sizes.operator, sizes.where = each.operator, each.where.__str__
            sizes.decide(_relation(each))
    finally:
        sizes.where, sizes.operator = where, operator
