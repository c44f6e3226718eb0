"""What is rewritten before text is made: each rewriting alone, and built against the reference."""

import math

import pytest
import torch

from opmill_graph_ir.loops.cases import Case, cast, op
from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, IndexValue, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_kernel_gen_cpp.kernel import kernel_text
from opmill_kernel_gen_cpp.passes.partial import in_parts
from opmill_kernel_gen_cpp.passes.segments import segments
from opmill_kernel_gen_cpp.passes.statistics import two_passes
from opmill_kernel_gen_cpp.target import AVX2


def at(value: Index | str, dtype: str = "int64") -> IndexValue:
    return IndexValue(index(value), dtype)


def number(value: int) -> Const:
    return Const(value, "int64")


def _pointwise(value, n: int, reads: dict[str, str]) -> LoopKernel:
    buffers = (*(Buffer(name, dtype, "in", index(2 * n)) for name, dtype in reads.items()), Buffer("out", value.dtype, "out", index(4 * n)))
    nest = Nest((Axis("r", index(4)), Axis("i", index(n))), (Phase(stores=(Store("out", index("r") * n + "i", value),)),))
    return LoopKernel("pointwise", buffers, (nest,))


def _halves(n: int, cut: int):
    """Two parts of a concatenation, as graph-ir writes them."""
    left = op("lt", at("i"), number(cut))
    a = Load("a", index("i"), "float32", left)
    b = Load("b", index("i") - cut, "float32", op("ge", at("i"), number(cut)))
    return op("where", left, op("neg", a), op("mul", b, Const(3.0, "float32")))


def test_parts_of_whole_vectors_have_no_masks() -> None:
    kernel = _pointwise(_halves(64, 32), 64, {"a": "float32", "b": "float32"})
    found = segments(kernel.nests[0].phases, "i", 64, 8, {"i": (0, 63), "r": (0, 3)})
    assert [(s.begin, s.end) for s in found] == [(0, 32), (32, 64)]
    assert "masked" not in kernel_text(kernel, "k", AVX2).body
    assert len(segments(kernel.nests[0].phases, "i", 64, 64, {"i": (0, 63)})) == 1


def _statistics(rows: int, n: int, dtype: str = "float32", strided: bool = False) -> LoopKernel:
    place = index("j") * rows + "i" if strided else index("i") * n + "j"
    stored = Store("copy", place, op("add", Load("a", place, dtype), Const(0.5, dtype)))
    r = Reduction(("m", "q"), "welford", stored.value, dtype)
    outs = tuple(Store(name, index("i"), Ref(r, dtype)) for name, r in (("mean", "m"), ("m2", "q")))
    buffers = (
        Buffer("a", dtype, "in", index(rows * n)), Buffer("copy", dtype, "out", index(rows * n)),
        Buffer("mean", dtype, "out", index(rows)), Buffer("m2", dtype, "out", index(rows)),
    )  # fmt: skip
    nest = Nest((Axis("i", index(rows)),), (Phase((Axis("j", index(n)),), reductions=(r,), stores=(stored,)), Phase(stores=outs)))
    return LoopKernel("statistics", buffers, (nest,))


def _part(op_name: str, outer: int, n: int, dtype: str = "float32", columns: bool = False) -> LoopKernel:
    place = index("j") * outer + "i" if columns else index("i") * n + "j"
    r = Reduction(("r",), op_name, Load("a", place, dtype), dtype)
    nest = Nest(
        (Axis("i", index(outer)),),
        (Phase((Axis("j", index(n)),), reductions=(r,)), Phase(stores=(Store("out", index("i"), Ref("r", dtype)),))),
    )
    return LoopKernel("part", (Buffer("a", dtype, "in", index(outer * n)), Buffer("out", dtype, "out", index(outer))), (nest,))


PARTS = [_part("sum", 1, 1 << 18), _part("max", 2, 99_990), _part("min", 40, 8192, columns=True), _part("any", 1, 1 << 18, "bool")]
HALVES = [_pointwise(_halves(n, cut), n, {"a": "float32", "b": "float32"}) for n, cut in ((64, 32), (40, 13), (19, 8), (48, 16))]
STATISTICS = [_statistics(r, n, d, s) for r, n, d in ((5, 3, "float32"), (9, 768, "float32"), (3, 100, "float64")) for s in (False, True)]
CAUSAL = [
    _pointwise(op("where", op("le", at("i"), op("add", at("r"), number(40))), Load("a", index("i"), d), Const(-math.inf, d)), 70, {"a": d})
    for d in ("float32", "float64")
]


@pytest.fixture(scope="module")
def runner(store) -> Runner:
    return Runner([*PARTS, *HALVES, *STATISTICS, *CAUSAL], store)


@pytest.mark.parametrize("kernel", [*PARTS, *HALVES, *STATISTICS, *CAUSAL], ids=lambda k: k.name)
def test_agrees_with_reference(runner: Runner, kernel: LoopKernel) -> None:
    assert disagreement(Case(kernel.name, kernel, ranges={}, rtol=128.0), runner) is None


def test_which_reductions_are_done_in_parts() -> None:
    assert all(len(in_parts(k)[0].nests) == 2 for k in PARTS)
    for kernel in (_part("sum", 1, 1000), _part("sum", 4096, 1024), _part("sum", 1, 1_000_003)):
        assert in_parts(kernel) == (kernel, ())


def test_parts_do_not_depend_on_threads(runner: Runner) -> None:
    before, results = torch.get_num_threads(), []
    a = torch.randn(1 << 18, generator=torch.Generator().manual_seed(5)) * 1e3
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            out = torch.zeros(1)
            runner.run(PARTS[0], {"a": a, "out": out})
            results.append(out.item())
    finally:
        torch.set_num_threads(before)
    assert len(set(results)) == 1


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_statistics_far_from_zero(runner: Runner, offset: float) -> None:
    kernel = STATISTICS[2]
    a = torch.randn(9, 768, generator=torch.Generator().manual_seed(7)) + offset
    a[3] = offset
    got = {"a": a.reshape(-1), "copy": torch.zeros(9 * 768), "mean": torch.zeros(9), "m2": torch.zeros(9)}
    runner.run(kernel, got)
    exact = (a + 0.5).double()
    torch.testing.assert_close(got["mean"].double(), exact.mean(1), rtol=3e-7, atol=1e-7)
    torch.testing.assert_close(got["m2"].double(), exact.var(1, correction=0) * 768, rtol=1e-5, atol=1e-9)


def test_long_sums_over_nested_axes_are_exact_to_float32(store) -> None:
    """As those over one axis are: added in a row, they would be off by thousands of units."""
    i, outer, inner = Axis("i", index(16)), Axis("j", index(1 << 14)), Axis("k", index(4))
    x = Load("x", index("j") * 64 + index("i") * 4 + "k", "float32")
    total = Phase((outer, inner), reductions=(Reduction(("total",), "sum", x, "float32"),))
    stored = Phase(stores=(Store("out", index("i"), Ref("total", "float32")),))
    buffers = (Buffer("x", "float32", "in", index(64 << 14)), Buffer("out", "float32", "out", index(16)))
    kernel = LoopKernel("nested", buffers, (Nest((i,), (total, stored)),))
    data = {"x": torch.full((64 << 14,), 0.1), "out": torch.empty(16)}
    assert Runner([kernel], store).run(kernel, data) == 0
    torch.testing.assert_close(data["out"], torch.full((16,), (1 << 16) * data["x"][0].item()), rtol=3e-6, atol=0)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_statistics_of_special_values(runner: Runner, special: float) -> None:
    a = torch.zeros(9, 768)
    a[4, 5] = special
    got = {"a": a.reshape(-1), "copy": torch.zeros(9 * 768), "mean": torch.zeros(9), "m2": torch.zeros(9)}
    runner.run(STATISTICS[2], got)
    assert torch.equal(got["m2"].isnan(), torch.arange(9) == 4)
    assert not got["mean"][4].isfinite()


def test_statistics_read_what_was_stored() -> None:
    """The input may be the same memory as the copy: it is not read again."""
    nest = two_passes(STATISTICS[0].nests[0], {"i": 5, "j": 3})
    assert [len(p.axes) for p in nest.phases] == [1, 0, 1, 0, 0]
    assert {e.buffer for e in _loads(nest.phases[2])} == {"copy"}


def _loads(phase: Phase) -> list[Load]:
    out, stack = [], [r.value for r in phase.reductions]
    while stack:
        e = stack.pop()
        out += [e] if isinstance(e, Load) else []
        stack += e.args if isinstance(e, Op) else ()
    return out


def test_scratch_is_no_parameter() -> None:
    text = kernel_text(PARTS[0], "k", AVX2).body
    assert "float scratch_0[" in text
    assert "given[1]" in text
    assert "given[2]" not in text


def test_positions_do_not_halve_the_lanes() -> None:
    assert "i64" not in kernel_text(CAUSAL[0], "k", AVX2).body


def step_of(source: str, target: str, at: int, factor: str = "w", op_name: str = "exp", first: int = 0) -> Nest:
    """``target[i] = op(source[at + i]) * factor[i] + symbol``, its values numbered from ``first``."""
    i = index("i0")
    value = op(op_name, Load(source, i + at, "float32"))
    lets = (Let(f"v{first}", op("mul", value, Load(factor, i, "float32"))),)
    stored = op("add", Ref(f"v{first}", "float32"), cast(IndexValue(index("s0"), "int64"), "float32"))
    return Nest((Axis("i0", index(24)),), (Phase((), lets, stores=(Store(target, i, stored),)),))


def steps(*nests: Nest) -> LoopKernel:
    reads = [Buffer("x", "float32", "in", index(96)), Buffer("w", "float32", "in", index(24))]
    return LoopKernel("steps", (*reads, *(Buffer(n, "float32", "out", index(24)) for n in "abcd")), nests, ("s0",))


ALIKE = {
    "three steps, one other": (
        steps(*(step_of("x", "abcd"[k], 24 * k, op_name="tanh" if k == 2 else "exp", first=k) for k in range(4))),
        2,
    ),
    "each reads the last": (steps(*(step_of(s, t, 7 * (s == "x"), op_name="tanh") for s, t in zip("xabc", "abcd", strict=True))), 1),
    "one reads a buffer twice": (steps(step_of("x", "a", 0), step_of("x", "b", 24), step_of("w", "c", 0), step_of("x", "d", 48)), 2),
    "nothing in common": (steps(*(step_of("x", t, 0, op_name=o) for t, o in zip("abcd", ("exp", "tanh", "neg", "sqrt"), strict=True))), 4),
}
"""Kernels, and of how many functions they are made."""


@pytest.mark.parametrize("name", ALIKE)
def test_nests_that_do_the_same_are_one_function(name: str, store) -> None:
    kernel, functions = ALIKE[name]
    assert f"\n{kernel_text(kernel, 'k', AVX2).body}".count("\nstatic long ") == functions
    assert disagreement(Case(name, kernel, sizes=(3,)), Runner([kernel], store)) is None


def guarded(value: Load, low: float, high: float, other: float = 0.0) -> Op:
    """``low <= value < high ? value : other`` as a position."""
    inside = op("logical_and", op("ge", value, Const(low, value.dtype)), op("lt", value, Const(high, value.dtype)))
    return cast(op("where", inside, value, Const(other, value.dtype)), "int64")


def test_positions_made_of_floats_that_were_compared_take_32_bits(store) -> None:
    let, position = Let("v0", guarded(Load("x", index("i0"), "float32"), 0.0, 16.0)), index("v0")
    value = op("add", Load("w", position, "float32"), cast(Ref("v0", "int64"), "float32"))
    phase = Phase(
        (),
        (let,),
        stores=(Store("y", index("i0"), value), Store("z", index("i0"), op("add", Ref("v0", "int64"), IndexValue(position, "int64")))),
    )
    buffers = [Buffer("x", "float32", "in", index(45)), Buffer("w", "float32", "in", index(16)), Buffer("y", "float32", "out", index(45))]
    kernel = LoopKernel("look", (*buffers, Buffer("z", "int64", "out", index(45))), (Nest((Axis("i0", index(45)),), (phase,)),), ())
    runner = Runner([kernel], store)
    assert disagreement(Case("look", kernel, ranges={"x": (-4, 20)}), runner) is None
    got = Case("look", kernel).buffers()
    got["x"][:5] = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -0.0])
    runner.run(kernel, got)
    assert got["z"][:5].tolist() == [0] * 5 and torch.equal(got["y"][:5], got["w"][:1].expand(5))
