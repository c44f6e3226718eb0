"""What captures assume of sizes, as sympy writes it: between what they lie, and what holds of them, by the program's names for them. sympy
is imported only where a size varies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opmill_fake_tensors.symbols import Index, index, to_sympy
from opmill_graph_ir.loops.text import parse_index
from opmill_guards.guard import SizeRelation

_RELATIONS = {ast.Eq: "Eq", ast.NotEq: "Ne", ast.GtE: "Ge", ast.Gt: "Gt", ast.LtE: "Le", ast.Lt: "Lt"}
Range = tuple[int, int | None]
Compared = tuple[str, Index, Index]


def constraints(relations: Sequence[SizeRelation]) -> list[str]:
    """A line for each size that has limits, then one for each relation that these do not say already, with who relies on it."""
    read = [(relation, _compared(relation)) for relation in relations]
    ranges: dict[str, Range] = {}
    for _, compared in read:
        if compared is not None and (limit := _limit(*compared)) is not None:
            name, low, high = limit
            known_low, known_high = ranges.get(name, (0, None))
            ranges[name] = max(known_low, low), min((h for h in (known_high, high) if h is not None), default=None)
    lines = [f"{low} <= {name}" + ("" if high is None else f" <= {high}") for name, (low, high) in ranges.items()]
    return [*lines, *dict.fromkeys(_others(read, ranges))]


def size_text(expression: str) -> str:
    """A size of a plan as sympy writes it; as it is where sympy has no word for it."""
    try:
        return str(to_sympy(parse_index(expression)))
    except (SyntaxError, ValueError, AssertionError, KeyError):
        return expression


def _others(read: Iterable[tuple[SizeRelation, Compared | None]], ranges: dict[str, Range]) -> Iterator[str]:
    for relation, compared in read:
        reason = f"   ({relation.reason})" if relation.reason else ""
        if compared is None:
            yield _named(relation) + reason
        elif _limit(*compared) is None:
            found = _sympy(compared, ranges)
            if found is not True:
                yield f"{found}{reason}"


def _sympy(compared: Compared, ranges: dict[str, Range]) -> Any:
    """The relation under what is known of its sizes; True where that says it already."""
    import sympy

    kind, left, right = compared
    found = getattr(sympy, kind)(to_sympy(left, ranges), to_sympy(right, ranges))
    return True if found is sympy.true else found


def _limit(kind: str, left: Index, right: Index) -> tuple[str, int, int | None] | None:
    """The size, and between what it lies, of a relation that says that alone."""
    if len(left.symbols) != 1 or left != index(name := next(iter(left.symbols))) or (bound := right.constant) is None:
        return None
    match kind:
        case "Ge":
            return name, bound, None
        case "Gt":
            return name, bound + 1, None
        case "Le":
            return name, 0, bound
        case "Lt":
            return name, 0, bound - 1
        case _:
            return None


def _compared(relation: SizeRelation) -> Compared | None:
    """What a relation compares, with sources for names; None where it is no comparison of whole numbers."""
    try:
        node = ast.parse(relation.expression, mode="eval").body
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _RELATIONS:
            return None
        names = {f"s{k}": index(str(source)) for k, source in enumerate(relation.sources)}
        left, right = (parse_index(ast.unparse(side)).substitute(names) for side in (node.left, node.comparators[0]))
    except (SyntaxError, ValueError, AssertionError, KeyError):
        return None
    return _RELATIONS[type(node.ops[0])], left, right


def _named(relation: SizeRelation) -> str:
    """The expression with the sources in it."""
    names = {f"s{k}": str(source) for k, source in enumerate(relation.sources)}
    return re.sub(r"\bs\d+\b", lambda found: names.get(found[0], found[0]), relation.expression)


__all__ = ["constraints", "size_text"]
