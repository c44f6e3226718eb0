"""Programs as text, read back."""

import pytest
import torch
from lowered_programs import PROGRAMS, lowered_program

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.schedule.loop import program_of
from opmill_graph_ir.schedule.text import parse_lowered, parse_program, show_lowered, show_program


def _same(a, b):
    assert a.nodes == b.nodes
    assert a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_programs_are_read_back(name):
    lowered = lowered_program(name)
    _same(parse_lowered(show_lowered(lowered)), lowered)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_read_back(name):
    program = program_of(lowered_program(name))
    text = show_program(program)
    again = parse_program(text)
    assert again.statements == program.statements
    assert (again.buffers, again.outputs, again.extents) == (program.buffers, program.outputs, program.extents)
    assert show_program(again) == text


def test_a_buffer_without_elements_has_the_strides_that_torch_gives_it():
    program = parse_program("input x: float32[2, 0, 3]\nreturn x\n")
    assert [s.constant for s in program.buffers["x"].strides] == [*torch.empty(2, 0, 3).stride()]
    assert "strides" not in show_program(program)


def test_what_cannot_be_read_is_said_with_its_line():
    with pytest.raises(GraphError, match="GI042: line 2 of a program cannot be read: loop a<"):
        parse_program("input x: float32[8]\nloop a<\n")


TEXT = """kernel 0:
    kernel exp()
      in b0: float32[8]
      out b1: float32[8]
    nest i0<8
      phase
        set b1[i0] = exp(b0[i0])
body 1:
    input a: float32[8]
    sin: float32[8] = aten::sin(a)   # it's
    return sin
size s0 = 4
size u0 = None
size u1 = max(u0, 3)
input x: float32[8]
held w: bfloat16[2, 4] strides [1, 2] on cuda:0 opaque   # w
held v: float32[2, 4] multiplied 30
constant c: int64[1]
temporary y: float32[8] free computing
bytes c 0100000000000000
demand 'u0 > 3', 'too   # few; here'
takes x, w, v, s0
call y = opmill::exp (x); source='y', kernel=0
call y = opmill::cond (x); bodies=[1], draws=True
pointwise of y   # of no axes
  set y[()] = float32('nan')
scatter i<4 from x
  add y[x[2*i]] = float32(1.0)
return y, size(s0 + u1), None, tensor(y.view([4], [2], 1), dtype='int32', twin=1)
"""


def test_everything_that_a_lowered_program_may_hold_is_read_back():
    text = TEXT.replace("add y[x[2*i]]", "add y[2*i]")
    program = parse_lowered(text)
    assert show_lowered(program) == text
    kernel, cond = program.nodes[:2]
    assert kernel.kernel.name == "exp" and cond.bodies[0].nodes[0].origin == "it's"
    assert (
        program.buffers["w"].opaque
        and program.buffers["v"].multiplied == 30
        and program.definitions == {"u1": "max(u0, 3)"}
        and program.symbols["u0"] is None
    )
