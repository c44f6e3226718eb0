"""The table of operators that people read: a row for each record, each cell from the record."""

from opmill_graph_ir.ops.records import all_records
from opmill_graph_ir.ops.table import COLUMNS, facts

ROWS = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in facts()}


def test_each_record_has_a_row():
    assert len(ROWS) == len(all_records()) and list(ROWS) == [name.removeprefix("aten::") for name in sorted(all_records())]


def test_rows_say_what_records_say():
    gelu, exp, view = ROWS["gelu"], ROWS["exp"], ROWS["permute"]
    assert gelu["kind"] == exp["kind"] == "pointwise" and gelu["gradient"] == "gelu_backward"
    assert view["memory"] == "view" and exp["memory"] == ""


def test_cells_are_words_of_the_table():
    assert {row["backward"] for row in ROWS.values()} <= {"computed again", "saved (dear)", "saved"}
    assert {row["layout"] for row in ROWS.values()} <= {"any", ""} and {row["shapes by"] for row in ROWS.values()} <= {"own rule", "torch"}
    assert {row["memory"] for row in ROWS.values()} <= {"view", "given by the plan", "its own", ""}
