"""Look-ups at places that positions tell, and the checks of these."""

import pytest
from pass_text import after, lines

from opmill_graph_ir.schedule.places import read_known_places

LOOKED_UP = """
    input t: float32[8, 4]
    temporary y: float32[{n}, 4]
    loop i<{n} j<4
      let r = {place}
      let g = where(lt(r, int64(0)), add(r, int64(8)), r)
      check logical_and(ge(r, int64(-8)), lt(r, int64(8))), 'IndexError', 'out of range'
      set y[i, j] = t[g, j]
    return y"""


def test_a_table_that_is_asked_for_each_place_is_the_table() -> None:
    found = after(read_known_places, LOOKED_UP.format(n=8, place="int64.at(i)"))
    assert found.endswith(
        lines("""
        loop i<8 j<4
          set y[i, j] = t[i, j]
        return y""")
    )


def test_places_that_are_counted_from_the_end() -> None:
    found = after(read_known_places, LOOKED_UP.format(n=4, place="int64.at(-4 + i)"))
    assert "set y[i, j] = t[4 + i, j]" in found and "check" not in found


def test_a_place_beyond_the_table_is_still_refused() -> None:
    found = after(read_known_places, LOOKED_UP.format(n=9, place="int64.at(i)"))
    assert "set y[i, j] = t[i, j]" in found
    assert "check lt(int64.at(i), int64(8)), 'IndexError', 'out of range'" in found


def test_data_tell_of_nothing() -> None:
    program = lines(LOOKED_UP.format(n=8, place="p[i]").replace("input t", "input p: int64[8]\n    input t"))
    assert after(read_known_places, program) == program


MOVING = """
    size n = 5
    input t: float32[{rows}, 4]
    temporary y: float32[{n}, 4]
    loop i<{n} j<4
      let r = {place}
      let g = where(lt(r, int64(0)), add(r, int64.at({rows})), r)
      check logical_and(ge(r, int64.at(-1*({rows}))), lt(r, int64.at({rows}))), 'IndexError', 'out of range'
      set y[i, j] = t[g, j]
    return y"""


@pytest.mark.parametrize(
    ("n", "rows", "place", "read", "checked"),
    [
        ("n", "n", "i", "i", False),
        ("n", "1 + n", "i", "i", False),
        ("n", "1 + n", "1 + i", "1 + i", False),
        ("n", "2*n", "n + i", "i + n", False),
        ("n", "n", "-1*n + i", "i", False),
        ("n", "n", "1 + i", "1 + i", True),
        ("n", "m", "i", "i", True),  # nothing tells which size is the larger
        ("1+n", "1+n", "i", "i", True),  # an empty loop may be one of n = -1
    ],
)
def test_places_among_sizes_that_move(n: str, rows: str, place: str, read: str, checked: bool) -> None:
    text = MOVING.format(n=n, rows=rows, place=f"int64.at({place})")
    found = after(read_known_places, text.replace("size n = 5", "size n = 5\n    size m = 7"))
    assert f"set y[i, j] = t[{read}, j]" in found
    assert ("check" in found) is checked
