"""What steps are thought to take."""

import math

import pytest

from opmill_graph_ir.exchanges.costs import Machine, exchange_seconds, flops, group_of, seconds
from opmill_graph_ir.exchanges.simulate import simulate
from opmill_graph_ir.schedule.whole_text import parse_schedule

HEAD = """input a: float32[64, 32]
input b: float32[32, 16]
input c: float32[16]
input w: float32[8, 3, 5, 5]
input i: float32[2, 3, 9, 9]
input q: float32[2, 4, 16, 8]
temporary m: float32[64, 16]
temporary o: float32[2, 8, 5, 5]
temporary t: float32[2, 4, 16, 8]
temporary s: float32[64, 32]
temporary r: float32[64, 32]
takes a, b, c, w, i, q
"""
SLOW = Machine(flops=1e6, memory=1e6, launch=1e-3, inside=1e6, between=1e5, latency=1e-2)


def one(text):
    made = parse_schedule(f"{HEAD}{text}\nreturn a")
    return made.steps[0], made


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("call m = aten::mm (a, b)", 2 * 64 * 32 * 16),
        ("call m = aten::addmm (c, a, b)", 2 * 64 * 32 * 16),
        ("call m = aten::mm (a.view([32, 32], [32, 1]), b)", 2 * 32 * 32 * 16),
        ("call o = aten::convolution (i, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)", 2 * 2 * 8 * 5 * 5 * 3 * 5 * 5),
        ("call t = aten::scaled_dot_product_attention (q, q, q)", 2 * 2 * 4 * 16 * 16 * 16),
        ("call s = aten::exp (a)", 0),
    ],
)
def test_multiplications(call, count):
    assert flops(*one(call)) == count


def test_a_step_takes_its_arithmetic_or_its_memory_whichever_is_longer():
    product, other = one("call m = aten::mm (a, b)"), one("call s = aten::exp (a)")
    assert seconds(*product, SLOW) == pytest.approx(2 * 64 * 32 * 16 / 1e6)
    assert seconds(*other, SLOW) == pytest.approx(2 * 64 * 32 * 4 / 1e6)
    assert seconds(*one("call nothing = aten::_assert_async (c)"), Machine()) == Machine().launch


@pytest.mark.parametrize(("size", "inside"), [(4, True), (4, False), (1, True)])
def test_exchanges_go_around_rings(size, inside):
    machine = Machine(flops=1e6, memory=1e6, launch=1e-3, inside=1e6, between=1e5, latency=1e-2, groups=lambda name: (size, inside))
    step, made = one("call s = _c10d_functional::all_reduce (a, 'sum', 'g')")
    assert group_of(step) == "g"
    bandwidth = 1e6 if inside else 1e5
    want = machine.launch if size < 2 else 2 * math.ceil(math.log2(size)) * 1e-2 + 2 * 64 * 32 * 4 * (size - 1) / size / bandwidth
    assert exchange_seconds(step, made, machine) == pytest.approx(want)


def test_what_is_computed_meanwhile_is_not_exposed():
    text = HEAD + (
        "call s = _c10d_functional::all_reduce (a, 'sum', 'g')\n"
        "call m = aten::mm (a, b)\n"
        "call r = _c10d_functional::wait_tensor (s)\nreturn r, m"
    )
    made = parse_schedule(text)
    apart, blocking = simulate(made, SLOW), simulate(made, SLOW, blocking=True)
    assert apart.exchanging == blocking.exchanging and apart.computing == blocking.computing
    assert blocking.total == pytest.approx(blocking.computing + blocking.exchanging)
    assert apart.total == pytest.approx(max(apart.exchanging, apart.computing)) and apart.exposed < blocking.exposed
