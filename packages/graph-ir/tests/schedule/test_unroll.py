"""Short axes are written out where their position decides what is computed, and mean the same."""

import random

import pytest
import torch
from pass_text import lines, nest_after
from random_lowered import laid_out, run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.loops.ir import IndexValue
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.loops.walk import expressions
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule
from opmill_graph_ir.schedule.unroll import unroll

F = torch.nn.functional
X, BOX = torch.randn(6, 5, 2), torch.randn(7, 4)


def rotated(x):
    a, b, c, s = x[..., 0], x[..., 1], 0.6, 0.8
    return (torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2),)


def corners(box):
    x, y, w, h = (box[:, k] for k in range(4))
    return (torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1),)


def matrix(box):
    a, b, c, d = (box[:, k] for k in range(4))
    rows = [
        1 - 2 * (c * c + d * d),
        2 * (b * c - a * d),
        2 * (b * d + a * c),
        2 * (b * c + a * d),
        1 - 2 * (b * b + d * d),
        2 * (c * d - a * b),
    ]
    return (torch.stack(rows, -1).reshape(-1, 2, 3),)


WRITTEN_OUT = {
    "pairs": (rotated, X),
    "boxes": (corners, BOX),
    "matrices": (matrix, BOX),
    "halves": (lambda x: (torch.cat([x.exp(), x[..., :1] * 3], -1),), X),
    "padded": (lambda x: (F.pad(x, (1, 1)) * 2,), X),
    "outer": (lambda x: (torch.stack([x.sin(), x.cos()]),), X),
}


def made(f, x):
    with torch.no_grad():
        return lower(functionalize(torch.fx.symbolic_trace(f), [x]))


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_no_condition_is_left(name):
    f, x = WRITTEN_OUT[name]
    lowered = made(f, x)
    program = schedule(lowered)
    for kernel in program.kernels():
        verify_kernel(kernel)
        assert not any(type(e) is IndexValue for nest in kernel.nests for p in nest.phases for e in expressions(p)), kernel
    torch.testing.assert_close(run_schedule(program, plan_memory(program), {lowered.inputs[0]: x.clone()})[0].flatten(), f(x)[0].flatten())


def test_an_axis_that_decides_nothing_stays():
    [kernel] = schedule(made(lambda x: (x.transpose(0, 2) * torch.arange(2.0)[:, None, None],), X)).kernels()
    assert all(len(nest.phases[0].stores) == 1 for nest in kernel.nests)


@pytest.mark.parametrize("seed", range(30))
def test_random_mixtures(seed):
    def f(x):
        r, values = random.Random(seed), [x]
        for _ in range(r.randint(2, 6)):
            v, w = (r.choice(values[-3:]) for _ in range(2))
            d = r.randrange(-3, 0)
            made = r.choice([
                lambda: v.sin() + v, lambda: torch.cat([v, w.flip(d)], d) if v.shape == w.shape else v * 2, lambda: v.narrow(d, v.shape[d] // 2, 1).expand(v.shape) * v,
                lambda: F.pad(v, (1, 0) if d == -1 else (0, 0, 1, 0) if d == -2 else (0, 0, 0, 0, 0, 1), value=r.choice([0.0, 2.0])),
                lambda: torch.stack([v, v + 1], d).flatten(d - 1, d), lambda: torch.where(torch.arange(v.shape[-1]) < 1, v, v.roll(1, d)), lambda: v.roll(1, d),
            ])()  # fmt: skip
            values.append(made if made.numel() <= 400 else v)
        return tuple(values[1:][-2:])

    x = torch.randn(2, 3, 2)
    want = f(x)
    graph = torch.fx.Graph()
    graph.output(graph.call_function(lambda x: list(f(x)), (graph.placeholder("x"),)))
    with torch.no_grad():
        lowered = lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x]))
    program = schedule(lowered)
    for kernel in program.kernels():
        verify_kernel(kernel)
    inputs = {n: x.clone() if n == "x0" else laid_out(lowered.buffers[n]) for n in lowered.inputs}
    for g, w, plain in zip(run_schedule(program, plan_memory(program), inputs), want, run_lowered(lowered, [x.clone()]), strict=True):
        torch.testing.assert_close(g.reshape(w.shape), w)
        torch.testing.assert_close(plain, w)


def test_a_pair_is_written_out_without_conditions():
    kernel = """
        kernel k()
          in x: float32[16]
          out y: float32[16]
        nest i<8 j<2
          phase
            set y[2*i + j] = where(eq(int64.at(j), int64(0)), exp(x[2*i]), neg(x[2*i + 1]))"""
    assert nest_after(unroll, kernel) == lines("""
        kernel k()
          in x: float32[16]
          out y: float32[16]
        nest i<8
          phase
            set y[2*i] = exp(x[2*i])
            set y[1 + 2*i] = neg(x[1 + 2*i])""")
