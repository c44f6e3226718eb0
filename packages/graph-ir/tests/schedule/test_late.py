"""Order by sizes that only data tell."""

import pytest

from opmill_graph_ir.schedule.late import bound_by, needed_by
from opmill_graph_ir.schedule.text import parse_program

TEXT = """
size s0 = 8
size u0 = None
size u1 = None
size u2 = max(u0, 3)
input x: float32[s0]
temporary a: float32[u0]
temporary b: float32[u2]
temporary c: float32[8]
temporary d: float32[8]
call a = aten::nonzero (x); binds=[['u0', 'a', 0]]
call nothing = aten::item (c); binds=[['u1', None, 0]]
loop i<u2
  set b[i] = float32(1.0)
loop j<8
  set c[j] = cast.float32(int64.at(j + u1))
loop k<8
  set d[k] = c.where(lt(int64.at(k), int64.at(u0)), [k], float32(0.0))
call d = aten::narrow (c.view([u1], [1], 0), size(s0))
call c = aten::add.Tensor (d, d)
return b, c, d
"""
PROGRAM = parse_program(TEXT)


@pytest.mark.parametrize(
    ("number", "bound", "needed"),
    [
        (0, {"u0"}, set()),  # the size of its own result is what it makes known
        (1, {"u1"}, set()),
        (2, set(), {"u0"}),  # by the definition of u2
        (3, set(), {"u1"}),  # in a value
        (4, set(), {"u0"}),  # in a mask
        (5, set(), {"u1"}),  # in a view; s0 is known before
        (6, set(), set()),
    ],
)
def test_what_statements_make_known_and_need(number, bound, needed):
    statement = PROGRAM.statements[number]
    assert bound_by(statement) == bound and needed_by(statement, PROGRAM) == needed
