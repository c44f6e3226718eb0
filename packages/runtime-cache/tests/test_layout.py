"""The rows that Python hands to native code, and the header that native code reads them by."""

from pathlib import Path

import msgspec
import pytest

from opmill_runtime_cache.executor import layout

HEADER = Path(__file__).parents[1] / "src" / "opmill_runtime_cache" / "native" / "layout.h"


def test_the_header_is_what_the_declarations_say():
    assert HEADER.read_text() == layout.header(), "run python -m opmill_runtime_cache.executor.layout > native/layout.h"


@pytest.mark.parametrize("row", [*layout.ROWS, *layout.STEPS], ids=lambda row: row.__name__)
def test_rows_become_tuples_in_the_order_of_their_fields(row):
    values = [() if name in row.NESTED else number for number, name in enumerate(row.__struct_fields__)]
    native = row(*values).native()
    first = [row.KIND] if issubclass(row, layout.StepRow) else []
    assert list(native) == [*first, *values]


def test_every_kind_of_step_has_a_row():
    assert sorted(step.KIND for step in layout.STEPS) == sorted(layout.StepKind)
    assert all(issubclass(row, msgspec.Struct) for row in layout.ROWS)
