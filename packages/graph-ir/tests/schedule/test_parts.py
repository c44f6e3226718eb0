"""Parts that are written: where the whole is, if that stands in memory and nobody needs it as it was."""

import random
import re

import pytest
import torch
from pass_text import after, lines

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.inline import inline
from opmill_graph_ir.schedule.parts import write_parts
from opmill_graph_ir.schedule.steps import ExternStep, schedule

F = torch.nn.functional

FILLED = """
    input x: float32[2, 4]
    temporary a: float32[2, 8]
    temporary b: float32[2, 8]
    call a = aten::empty_strided ([2, 8], [8, 1]); source='a'
    loop i<2 j<8 of b
      set b[i, j] = where(lt(int64.at(j), int64(4)), x.where(lt(int64.at(j), int64(4)), [i, j], float32(0.0)), a[i, j])
    return b"""


def test_the_part_alone_is_written():
    found = re.sub(r"\bx\d+", "l", after(write_parts, FILLED))
    assert found.splitlines()[-4:] == [
        "call b = aten::empty_strided ([2, 8], [8, 1]); source='a'",
        "loop i<2 l<4 of b",
        "  set b[i, l] = x[i, l]",
        "return b",
    ]


def test_a_whole_that_is_needed_stays():
    program = lines(FILLED.replace("return", "return a,"))
    assert after(write_parts, program) == program


def test_what_is_never_in_memory_is_computed_with_the_part():
    program = lines("""
        input x: float32[2, 4]
        temporary a: float32[2, 8]
        temporary b: float32[2, 8]
        loop m<2 n<8 of a
          set a[m, n] = float32(0.0)
        loop i<2 j<8 of b
          set b[i, j] = where(lt(int64.at(j), int64(4)), x.where(lt(int64.at(j), int64(4)), [i, j], float32(0.0)), a[i, j])
        return b""")
    assert after(write_parts, program) == program


MOVED = """
    input x: float32[2, 8]
    temporary a: float32[2, 8]
    temporary b: float32[2, 4]
    loop m<2 n<8 of a
      set a[m, n] = exp(x[m, n])
    loop i<2 j<4 of b
      set b[i, j] = a[i, {read}]
    loop k<2 l<4 of a
      set a[k, l] = b[k, l]
    return a"""


@pytest.mark.parametrize(("read", "apart"), [("4 + j", True), ("3 + j", False), ("j", True)])
def test_copies_into_another_part_are_made_at_once(read, apart):
    """Those into a part that overlaps come after all of it was read."""
    program = lines(MOVED.format(read=read))
    assert (after(inline, program) != program) == apart


def results(f, *inputs):
    """By the loops of the schedule, whose memory starts as rubbish; and how many elements they write in all."""
    gm = torch.fx.symbolic_trace(f) if not isinstance(f, torch.fx.GraphModule) else f
    with torch.no_grad():
        made = schedule(lower(functionalize(gm, [x.clone() for x in inputs])))
    lowered = made.lowered
    memory = dict(zip(lowered.inputs, (x.clone().reshape(-1) for x in inputs), strict=True))
    for name, info in made.buffers.items():
        count = 1 + sum((n.constant - 1) * k.constant for n, k in zip(info.cells.sizes, info.cells.strides, strict=True))
        memory.setdefault(name, torch.full((count,), -7.0).to(getattr(torch, info.dtype)))
    for step in made.steps:
        if isinstance(step, ExternStep):
            assert "empty" in str(step)
            continue
        verify_kernel(step.kernel)
        names = [b.name for b in step.kernel.buffers]
        evaluate(step.kernel, {name: memory[a] for name, a in zip(names, step.arguments, strict=True)}, list(step.sizes))
    return [memory[o.buffer].view([n.constant for n in made.buffers[o.buffer].sizes]) for o in lowered.outputs]


def halves(x):
    out = x.new_empty(4, 9)
    out[:, :5].copy_(x[:, :5] * 2)
    out[:, 5:].copy_(x[:, :4] + 1)
    return (out,)


def corners(x):
    out = x.exp()
    more = out.sum(0)
    out[1:3, 2:4].copy_(x[:2, :2])
    out[0, :].copy_(more)
    return (out, more)


def shifted(x):
    out = x * 3
    kept = out[:, 1:] + 0
    out[:, :-1].copy_(out[:, 1:].clone())
    return (out, kept)


def strided(x):
    out = x + 1
    seen = out.mean()
    out[:, ::2].copy_(seen)
    return (out, seen)


def crossed(x):
    out = x.new_empty(4, 8)
    out[:, :4].copy_(x[:, :4])
    out[:, 4:].copy_(out[:, :4].flip(1))
    out[:2].copy_(out[2:] + 1)
    return (out,)


CASES = {f.__name__: f for f in (halves, corners, shifted, strided, crossed)}


@pytest.mark.parametrize("name", CASES)
def test_values_are_eagers(name):
    x = torch.randn(4, 5 if name == "halves" else 8)
    for found, wanted in zip(results(CASES[name], x), CASES[name](x.clone()), strict=True):
        torch.testing.assert_close(found, wanted)


PADS = [(1, [2, 3]), (1, [0, 3]), (2, [1, 2, 3, 0]), (2, [2, 2, -1, 2]), (3, [1, 1, 2, 0, 1, 2])]


@pytest.mark.parametrize(("rank", "pad"), PADS)
def test_circular_padding(rank, pad):
    x = torch.randn(2, 2, *(4, 5, 3)[:rank])
    [found] = results(lambda x: (F.pad(x, pad, mode="circular"),), x)
    torch.testing.assert_close(found, F.pad(x, pad, mode="circular"))


@pytest.mark.parametrize("seed", range(40))
def test_random_writes_to_parts(seed):
    r = random.Random(seed)
    steps = []
    for _ in range(r.randint(1, 6)):
        size = r.randint(1, 4)
        steps.append((r.randint(0, 7 - size), r.randint(0, 7 - size), size, r.randint(0, 1), r.random() < 0.3, r.random() < 0.3))

    def f(x):
        out = x.new_empty(7, 7) if seed % 2 else x * 2
        if seed % 2:
            out[:].copy_(x)
        seen = []
        for to, source, size, dim, reads, doubles in steps:
            part = out.narrow(dim, source, size)
            out.narrow(dim, to, size).copy_(part * 2 if doubles else part.clone())
            if reads:
                seen.append(out.sum(dim))
        return (out, *seen)

    x = torch.randn(7, 7)
    for found, wanted in zip(results(f, x), f(x.clone()), strict=True):
        torch.testing.assert_close(found, wanted)
