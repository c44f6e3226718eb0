"""Tensors that nobody sees lie in rows where rows are summed, and as they were where that gains nothing."""

import pytest
import torch
from pass_text import after, lines
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.rows import lay_in_rows
from opmill_graph_ir.schedule.steps import schedule

STREAM = """
    input c: float32[8, 16] strides [1, 8]
    input m: float32[8, 16]
    temporary x: float32[8, 16] strides [1, 8] free
    temporary s: float32[8]
    temporary y: float32[8, 16] strides [1, 8] free
    temporary t: float32[8]
    loop i<8 j<16
      set x[i, j] = exp(c[i, j])
    loop i1<8 over j1<16
      sum a: float32 = x[i1, j1]
      set s[i1] = a
    loop i2<8 j2<16
      set y[i2, j2] = add(x[i2, j2], m[i2, j2])
    loop i3<8 over j3<16
      sum b: float32 = y[i3, j3]
      set t[i3] = b
    return s, t"""


def strides_of(program: str) -> dict[str, bool]:
    """Whether each temporary is told to lie in another order than rows."""
    return {line.split()[1][:-1]: "strides" in line for line in program.splitlines() if line.startswith("temporary")}


def test_a_stream_behind_something_turned_is_laid_in_rows() -> None:
    assert strides_of(after(lay_in_rows, STREAM)) == {"x": False, "s": False, "y": False, "t": False}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("x: float32[8, 16] strides [1, 8] free", "x: float32[8, 16] strides [1, 8]"), "promised"),
        (("return s, t", "return x, s, t"), "seen"),
        (("m: float32[8, 16]", "m: float32[8, 16] strides [1, 8]"), "its neighbours lie so"),
        (
            ("loop i1<8 over j1<16\n      sum a: float32 = x[i1, j1]", "loop i1<8 over j1<16\n      sum a: float32 = c[i1, j1]"),
            "not summed",
        ),
    ],
)
def test_what_stays(change: tuple[str, str], why: str) -> None:
    program = STREAM.replace(*change)
    assert program != STREAM
    assert strides_of(after(lay_in_rows, program))["x"], why


def test_images_with_channels_last_stay() -> None:
    program = lines("""
        input c: float32[2, 3, 4, 4] strides [48, 1, 12, 3]
        temporary x: float32[2, 3, 4, 4] strides [48, 1, 12, 3] free
        temporary s: float32[2, 3]
        loop n<2 k<3 h<4 w<4
          set x[n, k, h, w] = exp(c[n, k, h, w])
        loop n1<2 k1<3 over h1<4 w1<4
          sum a: float32 = x[n1, k1, h1, w1]
          set s[n1, k1] = a
        return s""")
    assert after(lay_in_rows, program) == program


def test_values_are_eagers() -> None:
    def frames(x, m, p, g):
        x = torch.nn.functional.gelu(x).permute(0, 2, 1) + p
        for k in range(3):
            y = torch.nn.functional.layer_norm(x, (16,), g)
            x = x + m * (k + 1) + y.cos()
        return torch.nn.functional.layer_norm(x, (16,), g), x

    torch.manual_seed(0)
    inputs = [torch.randn(2, 16, 24), torch.randn(2, 24, 16), torch.randn(24, 16), torch.randn(16)]
    with torch.no_grad():
        lowered = lower(functionalize(torch.fx.symbolic_trace(frames), inputs))
        made = schedule(lowered)
        found = run_schedule(made, plan_memory(made), dict(zip(lowered.inputs, inputs, strict=True)))
        wanted = frames(*inputs)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert ours.stride() == theirs.stride()
