"""What is known of every operator that has a record, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from opmill_fake_tensors.operator import Operator, describe
from opmill_fake_tensors.rules import rules

from ..overloads import overload
from .pairs import PAIR_ROWS
from .records import OperatorRecord, all_records

COLUMNS = ("operator", "family", "kind", "shapes by", "backward", "layout", "complex", "gradient", "memory")


def facts() -> Iterator[tuple[str, ...]]:
    """A row for each operator, sorted by name, with the cells that ``COLUMNS`` names."""
    for name, record in sorted(all_records().items()):
        found = overload(name)
        yield (
            name.removeprefix("aten::"),
            record.family,
            record.kind,
            "own rule" if name.partition(".")[0] in rules() else "torch",
            {"cheap": "computed again", "dear": "saved (dear)", "never": "saved"}[record.recompute],
            "any" if record.any_layout else "",
            record.complex or ("pairs" if name in PAIR_ROWS else ""),
            record.gradient,
            _memory(record, None if found is None else describe(found)),
        )


def _memory(record: OperatorRecord, op: Operator | None) -> str:
    """What results share with operands, and where they lie."""
    if record.shares or (op is not None and op.gives_views):
        return "view"
    if record.out:
        return "given by the plan"
    return "its own" if record.own_memory else ""


__all__ = ["COLUMNS", "facts", "overload"]
