"""What the outer points of a nest may read of each other, on kernels as text."""

from __future__ import annotations

import pytest

from opmill_graph_ir.loops.points import crossings
from opmill_graph_ir.loops.text import parse

NEST = """kernel k()
  in x: float32[2112]
  inout t: float32[2112]
  out out: float32[2112]
nest i<8
  phase j<264
    set t[264*i + j] = x[264*i + j]
  phase j<{last}
    set out[264*i + j] = t[{read}]
"""


def crossed(kernel: str) -> list[str]:
    """What the only nest of a kernel reads that other points of it write."""
    [nest] = parse(kernel).nests
    return list(crossings(nest))


@pytest.mark.parametrize(
    "read, last, legal",
    [
        ("264*i + j", 264, True),
        ("264*i + j + 1", 263, True),
        ("264*i + j + 1", 264, False),  # the last one is the next point's
        ("264*i + j + -1", 264, False),
        ("272*i + j", 8, True),  # a diagonal: 8*i further in the row of the point, which has room for that
        ("272*i + j", 208, True),
        ("272*i + j", 209, False),
        ("256*i + j", 8, False),
        ("528*i + j", 8, False),  # each second row
        ("j", 8, False),
    ],
)
def test_a_point_reads_its_own_row_alone(read: str, last: int, legal: bool) -> None:
    found = crossed(NEST.format(read=read, last=last))
    assert not found if legal else found


@pytest.mark.parametrize(
    "mask, read, legal",
    [
        ("ge(int64.at(j), int64(264))", "264*i + j + -264", True),  # the second of two rows that are put together
        ("ge(int64.at(j), int64(264))", "272*i + j + -264", False),  # its end is the next point's
        ("logical_and(ge(int64.at(j), int64(264)), lt(int64.at(j), int64(464)))", "272*i + j + -264", True),
        ("ge(int64.at(j), int64(528))", "j", True),  # nowhere
        ("lt(x[j], float32(0.0))", "272*i + j + -264", False),
    ],
)
def test_a_mask_says_where_a_read_begins_and_ends(mask: str, read: str, legal: bool) -> None:
    masked = NEST.replace("t[{read}]", "t.where({mask}, {read}, float32(0.0))").replace("set out[264*i + j]", "set out[264*i]")
    found = crossed(masked.format(mask=mask, read=read, last=528))
    assert not found if legal else found


COLUMNS = """kernel k()
  in x: int64[5]
  inout t: float32[20]
  out out: float32[4]
nest i<4
  phase j<5
    let row = x[j]
    set t[i + 4*row] = float32(1.0)
  phase
    set out[i] = t[{read}]
"""


@pytest.mark.parametrize(
    "read, legal",
    [
        ("5*i", True),  # row i of column i
        ("5*i + 4", True),  # the row below
        ("9*i", True),
        ("5*i + 1", False),  # of the next column
        ("6*i", False),
        ("3*i + 3", False),  # the other diagonal
        ("0", False),
    ],
)
def test_a_diagonal_of_columns_is_read_where_the_column_is_whatever_row_is_written(read: str, legal: bool) -> None:
    found = crossed(COLUMNS.format(read=read))
    assert not found if legal else found


SQUARE = """kernel k()
  in x: float32[264]
  inout t: float32[264]
  out out: float32[264]
nest i<33 k<8
  phase j<3
    set t[24*i + k + 8*j] = x[24*i + k + 8*j]
  phase j<3
    set out[24*i + k + 8*j] = t.where({mask}, {read}, float32(0.0))
"""


@pytest.mark.parametrize(
    "mask, read, legal",
    [
        ("eq(int64.at(i), int64.at(j))", "32*i + k", True),  # 24*i + k + 8*j, there
        ("eq(int64.at(j), int64.at(i))", "32*i + k", True),
        ("logical_and(eq(int64.at(i), int64.at(j)), lt(x[k], float32(0.0)))", "32*i + k", True),
        ("eq(int64.at(i), int64.at(k))", "32*i + k", False),
        ("eq(int64.at(i), int64.at(j))", "48*i + k", False),
        ("lt(int64.at(i), int64.at(j))", "32*i + k", False),
    ],
)
def test_a_mask_says_which_axes_are_equal(mask: str, read: str, legal: bool) -> None:
    found = crossed(SQUARE.format(mask=mask, read=read))
    assert not found if legal else found


PIECES = """kernel k()
  in x: float32[33]
  inout t: float32[264]
  out out: float32[33]
nest i<33
  phase j<4
    set t[8*i + 2*j] = x[i]
    set t[1 + 8*i + 2*j] = x[i]
  phase j<33
    set out[i] = t.where(eq(int64.at(i), int64.at(j)), {read}, float32(0.0))
"""


@pytest.mark.parametrize(
    "read, legal",
    [
        ("8*j + 7", True),  # the second piece writes it, and no place of the first is there
        ("8*j", True),
        ("9*j", False),
        ("8*j + 8", False),
    ],
)
def test_a_row_may_be_written_piece_by_piece(read: str, legal: bool) -> None:
    found = crossed(PIECES.format(read=read))
    assert not found if legal else found


PICKED = """kernel k()
  in x: int64[3]
  inout t: float32[408]
  out out: float32[21]
nest i<7
  phase j<17 l<3
    let row = x[l]
    set t[17*i + j + 136*row] = float32(1.0)
  phase l<3
    set out[i + 7*l] = t[{read}]
"""


@pytest.mark.parametrize(
    "read, legal",
    [
        ("17*i + 136*l", True),
        ("18*i + 136*l", True),  # a diagonal within the rows
        ("17*i + 16 + 136*l", True),
        ("17*i + 17 + 136*l", False),  # of the next point
        ("20*i + 136*l", False),
        ("18*i + 68*l", False),  # rows of another length
    ],
)
def test_rows_that_an_index_picks_are_read_at_the_point_that_writes_them(read: str, legal: bool) -> None:
    found = crossed(PICKED.format(read=read))
    assert not found if legal else found
