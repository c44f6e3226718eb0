"""Groups of loops as nests: what shares a phase, what is computed again, and what is kept."""

import pytest

from opmill_graph_ir.loops.text import show
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.schedule.emit import changed_in_place, emit_nest, outside_reads
from opmill_graph_ir.schedule.fuse import fuse
from opmill_graph_ir.schedule.steps import KernelStep, schedule
from opmill_graph_ir.schedule.text import parse_lowered, parse_program

HEAD = "input x: float32[64, 32]\ntemporary m: float32[64] free\ntemporary s: float32[64] free\ntemporary e: float32[64, 32] free\ntemporary y: float32[64, 32]\n"
SOFTMAX = (
    HEAD
    + """takes x
reduce a<64 over b<32
  max r: float32 = x[a, b]
  set m[a] = r
pointwise a<64 b<32
  set e[a, b] = {}
reduce a<64 over b<32
  sum r: float32 = e[a, b]
  set s[a] = r
pointwise a<64 b<32
  set y[a, b] = div(e[a, b], s[a])
return y"""
)


def kernels(text):
    return [show(step.kernel) for step in schedule(parse_lowered(text)).steps if isinstance(step, KernelStep)]


def test_a_softmax_is_one_kernel_that_keeps_what_is_dear_and_stores_no_other():
    [text] = kernels(SOFTMAX.format("exp(sub(x[a, b], m[a]))"))
    assert text.count("nest") == 1 and text.count("exp(") == 1 and text.count("  out ") == 2


def test_cheap_values_are_computed_again_where_a_later_phase_reads_them():
    [text] = kernels(SOFTMAX.format("sub(x[a, b], m[a])"))
    assert text.count("sub(") == 2 and text.count("  out ") == 1


STENCILS = {
    "a difference": ["a", "((1 + a)%(64))"],
    "three points": ["a", "((1 + a)%(64))", "((63 + a)%(64))"],
    "two others": ["((1 + a)%(64))", "((63 + a)%(64))"],
    "turned around": ["a", "63 - a"],
    "five points": ["a", "((1 + a)%(64))", "((2 + a)%(64))", "((63 + a)%(64))", "((62 + a)%(64))"],
}


def stencil(places: list[str], steps: int) -> str:
    """``steps`` times the mean of an array at these places."""
    lines = ["input v0: float32[64]", *(f"temporary v{k}: float32[64]" + " free" * (k < steps) for k in range(1, steps + 1)), "takes v0"]
    for k in range(steps):
        total = f"v{k}[{places[0]}]"
        for place in places[1:]:
            total = f"add({total}, v{k}[{place}])"
        lines += ["pointwise a<64", f"  set v{k + 1}[a] = mul({total}, float32(0.5))"]
    return "\n".join([*lines, f"return v{steps}"])


@pytest.mark.parametrize("name", STENCILS)
def test_steps_of_a_stencil_are_not_computed_again_for_all_that_follow(name: str) -> None:
    """What is written grows with the steps, not with the places to the power of them."""
    few, many = (sum(map(len, kernels(stencil(STENCILS[name], steps)))) for steps in (6, 24))
    assert many < 6 * few


def test_checks_come_before_what_they_protect():
    text = """input i: int64[8]
input x: float32[8]
temporary y: float32[8]
takes i, x
pointwise a<8
  let v = i[a]
  check lt(v, int64(8)), 'IndexError', 'no'
  set y[a] = exp(x[a])
return y"""
    [shown] = kernels(text)
    lines = [line.strip().split()[0] for line in shown.splitlines() if line.startswith("    ")]
    assert lines.index("check") < lines.index("set")


def test_what_others_read_is_told_by_group():
    program = parse_program(
        "input x: float32[8]\ntemporary a: float32[8]\ntemporary b: float32[8]\ntemporary c: float32[8]\n"
        "loop i<8\n  set a[i] = exp(x[i])\ncall b = aten::sort (a)\nloop j<8\n  set c[j] = neg(b[j])\nreturn c"
    )
    groups = fuse(program)
    written = {tuple(sorted(g.writes)): outside for g, outside in zip(groups, outside_reads(list(groups), program), strict=True)}
    assert written == {("a",): {"a"}, ("b",): {"b"}, ("c",): {"c"}} and any(type(g.members[0]) is Extern for g in groups)


def test_a_scan_of_what_is_copied_along_three_axes_goes_along_one():
    text = """input x: float32[5, 4, 5] strides [1, 5, 20]
temporary c: float32[5, 4, 5]
temporary y: float32[100]
takes x
pointwise a<5 b<4 d<5
  set c[a, b, d] = x[a, b, d]
cumulate.0 a<100
  scan.sum r: float32 = c[a // 20, a // 5 % 4, a % 5]
  set y[a] = r
return c, y"""
    shown = kernels(text)
    scans = [line for text in shown for line in text.split("phase")[1:] if "scan.sum" in line]
    assert len(scans) == 1 and scans[0].splitlines()[0].count("<") == 1


@pytest.mark.parametrize("reverse", ["", "back."])
def test_a_scan_is_a_phase_of_its_own(reverse):
    text = f"input x: float32[4, 8]\ntemporary y: float32[4, 8]\ntakes x\ncumulate.1 a<4 b<8\n  scan.{reverse}sum r: float32 = exp(x[a, b])\n  set y[a, b] = neg(r)\nreturn y"
    [shown] = kernels(text)
    assert f"scan.{reverse}sum" in shown and "neg(v" in shown


MAKERS = {
    "an operator": ("float32[8]", "call b = aten::sort (x)"),
    "a pointwise loop": ("float32[8]", "loop k<8\n  set b[k] = exp(x[k])"),
    "a reduction": ("float32[8, 3]", "loop k<8 over m<3\n  sum s: float32 = x[k, m]\n  set b[k] = s"),
    "a scan": ("float32[8]", "loop over k<8\n  scan.sum s: float32 = x[k]\n  set b[k] = s"),
}


@pytest.mark.parametrize(("given", "maker"), MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("value", ["float32(7.0)", "add(b[a], float32(1.0))", "b[a]"], ids=["filled", "added to", "itself"])
def test_a_part_that_is_changed_in_place_is_not_computed_anew_for_all_of_it(value, given, maker):
    program = parse_program(
        f"input x: {given}\ntemporary b: float32[8]\ntemporary y: float32[8]\n{maker}\n"
        f"loop a<3\n  set b[a] = {value}\nloop j<8\n  set y[j] = exp(b[7 - j])\nreturn y"
    )
    groups, changed = fuse(program), changed_in_place(program)
    needed = outside_reads(list(groups), program)
    nests = [emit_nest(g, n, changed, program) for g, n in zip(groups, needed, strict=True) if type(g.members[0]) is not Extern]
    stored = [s.buffer for nest in nests for p in nest.phases for s in p.stores]
    assert changed == {"b"} and stored[-2:] == ["b", "y"] and set(stored[:-2]) <= {"b"}


def test_parts_that_are_put_together_are_not_changed_in_place():
    program = parse_program(
        "input x: float32[8]\ntemporary b: float32[8]\nloop a<3\n  set b[a] = exp(x[a])\nloop j<5\n  set b[3 + j] = neg(x[j])\nreturn b"
    )
    assert changed_in_place(program) == set()
