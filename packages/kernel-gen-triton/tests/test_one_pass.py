"""Rows, and sums down their columns, in one pass over memory: right, and only where the two belong together."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.loops.cases import Case, axes, cast, op
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Check, Const, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_graph_ir.schedule import columns
from opmill_kernel_gen_triton import columns as passes_of_rows
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import as_for_gpu, disagreement
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
FEW = Budget(processors=2)


def gradients(rows: int, length: int, *, dtype: str = "bfloat16", bias: bool = True) -> LoopKernel:
    """The backward of a norm of rows (gradient of its input, in half precision, too), and what is summed down columns: gradients of weight
    and bias and, of what the rows store, of another bias."""

    def norm(i: str, j: str) -> tuple[Op, Op]:
        at = index(i) * length + j
        grad = cast(Load("g", at, dtype), "float32") if dtype != "float32" else Load("g", at, dtype)
        return grad, op("mul", op("sub", Load("x", at, "float32"), Load("m", index(i), "float32")), Load("r", index(i), "float32"))

    grad, x = norm("i", "j")
    scaled = op("mul", grad, Load("w", index("j"), "float32"))
    count = Const(float(length), "float32")
    means = op("div", Ref("a", "float32"), count), op("div", Ref("b", "float32"), count)
    value = op("mul", Load("r", index("i"), "float32"), op("sub", op("sub", scaled, means[0]), op("mul", x, means[1])))
    at = index("i") * length + "j"
    sums = Reduction(("a",), "sum", scaled, "float32"), Reduction(("b",), "sum", op("mul", scaled, x), "float32")
    stores = Store("dx", at, Ref("v", "float32")), Store("h", at, Ref("u", "bfloat16"))
    lets = Let("v", value), Let("u", cast(Ref("v", "float32"), "bfloat16"))
    down = Nest(axes(i=rows), (Phase(axes(j=length), (), (), sums), Phase(axes(j=length), lets, (), (), stores)), "rows")
    grad, x = norm("k", "c")
    both = Reduction(("dw",), "sum", op("mul", grad, x), "float32"), Reduction(("db",), "sum", grad, "float32")
    ends = (
        Store("dw", index("c"), Ref("dw", "float32")),
        Store("db", index("c"), op("mul", Ref("db", "float32"), Load("w", index("c"), "float32"))),
    )
    nests = [down, Nest(axes(c=length), (Phase(axes(k=rows), reductions=both), Phase(stores=ends)), "columns")]
    stored = cast(Load("h", index("k") * length + "c", "bfloat16"), "float32")
    third = (
        Phase(axes(k=rows), reductions=(Reduction(("z",), "sum", stored, "float32"),)),
        Phase(stores=(Store("dz", index("c"), Ref("z", "float32")),)),
    )
    nests += [Nest(axes(c=length), third, "bias")] if bias else []
    whole, one = index(rows * length), index(length)
    buffers = [Buffer("g", dtype, "in", whole), Buffer("x", "float32", "in", whole), Buffer("w", "float32", "in", one)]
    buffers += [Buffer(n, "float32", "in", index(rows)) for n in "mr"]
    buffers += [Buffer("dx", "float32", "out", whole), Buffer("h", "bfloat16", "inout" if bias else "out", whole)]
    buffers += [Buffer(n, "float32", "out", one) for n in ("dw", "db", *(["dz"] if bias else []))]
    return LoopKernel("gradients", tuple(buffers), tuple(nests))


def passes(kernel: LoopKernel, budget: Budget = FEW) -> int:
    """Functions that go over a large buffer."""
    return sum("g" in {p.buffer for p in f.params} for [f] in kernel_text(kernel, budget).functions)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("rows, length", [(64, 128), (67, 96), (40, 24), (3, 40)])
def test_agree_with_the_reference(rows: int, length: int, dtype: str) -> None:
    kernel = gradients(rows, length, dtype=dtype)
    assert passes(kernel) == 1 and len(kernel_text(kernel, FEW).functions) == 2
    assert disagreement(Case("gradients", kernel, rtol=256.0), budget=FEW) is None
    assert disagreement(Case("gradients", kernel, rtol=256.0), budget=FEW, wide=True) is None


def test_where_much_is_read_nothing_is_read_ahead(monkeypatch) -> None:
    monkeypatch.setattr(passes_of_rows, "_AHEAD", 1)
    kernel = gradients(67, 96)
    assert kernel_text(kernel, FEW).functions[0][0].text.count("tl.load(g_ptr") == 1
    assert disagreement(Case("gradients", kernel, rtol=256.0), budget=FEW) is None


def test_many_programs_share_the_rows_evenly() -> None:
    first, *_ = (f for [f] in kernel_text(gradients(8192, 768)).functions)
    assert first.grid.constant == 512 and "range(tl.program_id(0), 8192, 512)" in first.text
    before, _, loop = first.text.partition("for xstart")
    assert all(text.count(f"tl.load({n}_ptr") == 1 for text in (before, loop) for n in "gx"), "a turn reads for the one after it"
    assert first.text.index("tl.load(w_ptr") < first.text.index("for xstart"), "what all rows share is read once"


def test_long_rows_are_kept_where_they_would_be_read_once_more() -> None:
    first, *_ = (f for [f] in kernel_text(gradients(4096, 8192)).functions)
    assert "for xstart" in first.text and dict(first.constants)["RBLOCK"] == 8192


def test_rows_too_long_to_be_kept_are_gone_over_by_each() -> None:
    budget = Budget(processors=2, longest=64, tile=64)
    kernel = gradients(16, 160)
    assert passes(kernel, budget) > 1 and disagreement(Case("gradients", kernel, rtol=256.0), budget=budget) is None


def _changed(kernel: LoopKernel, number: int, **changes: object) -> LoopKernel:
    nest = kernel.nests[1]
    phases = list(nest.phases)
    phases[number] = replace(phases[number], **changes)
    return replace(kernel, nests=(kernel.nests[0], replace(nest, phases=tuple(phases)), *kernel.nests[2:]))


def _others() -> dict[str, LoopKernel]:
    plain = gradients(32, 48, bias=False)
    [reduced, _] = plain.nests[1].phases
    turned = Load("g", index("c") * 32 + "k", "bfloat16")
    again = Load("dx", index(31) * 48 - index("k") * 48 + "c", "float32")
    largest = tuple(replace(r, op="max") for r in reduced.reductions)
    check = Check(Op("ge", (Load("m", index("k"), "float32"), Const(-1e9, "float32")), "bool"), "ValueError", "no")
    buffers = tuple(replace(b, role="inout") if b.name == "dx" else b for b in plain.buffers)
    longer = Nest(axes(c=48), (replace(reduced, axes=axes(k=16)), plain.nests[1].phases[1]), "half")
    return {
        "other places": _changed(plain, 0, reductions=tuple(replace(r, value=cast(turned, "float32")) for r in reduced.reductions)),
        "a row that is stored later": replace(
            _changed(plain, 0, reductions=tuple(replace(r, value=again) for r in reduced.reductions)), buffers=buffers
        ),
        "the largest": _changed(plain, 0, reductions=largest),
        "checked": _changed(plain, 0, checks=(check,)),
        "half of the rows": replace(plain, nests=(plain.nests[0], longer)),
    }


@pytest.mark.parametrize("name", _others())
def test_what_is_no_sum_of_the_same_is_by_itself(name: str) -> None:
    kernel = _others()[name]
    assert not any("for xstart" in f.text for [f] in kernel_text(kernel, FEW).functions)
    assert disagreement(Case("gradients", kernel, rtol=256.0), budget=FEW) is None


def test_sums_of_sums_wait_for_them() -> None:
    """A third nest takes what the second has summed: it is none of the same pass."""
    plain = gradients(32, 48, bias=False)
    at = index("k") * 48 + "c"
    value = op("mul", Load("x", at, "float32"), Load("dw", index("c"), "float32"))
    end = (
        Phase(axes(k=32), reductions=(Reduction(("y",), "sum", value, "float32"),)),
        Phase(stores=(Store("dy", index("c"), Ref("y", "float32")),)),
    )
    buffers = tuple(replace(b, role="inout") if b.name == "dw" else b for b in plain.buffers)
    kernel = replace(
        plain,
        nests=(*plain.nests, Nest((Axis("c", index(48)),), end, "again")),
        buffers=(*buffers, Buffer("dy", "float32", "out", index(48))),
    )
    assert "for xstart" in kernel_text(kernel, FEW).functions[0][0].text
    assert disagreement(Case("gradients", kernel, rtol=256.0), budget=FEW) is None


def _norm(g, x, weight):
    mean, rstd = x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
    dx, dw, db = torch.ops.aten.native_layer_norm_backward(g, x, [512], mean, rstd, weight, weight, [True, True, True])
    return dx.bfloat16(), dw, db, dx.bfloat16().sum(0)


def _stacked(g, x, weight):
    both = torch.stack([(g * weight).view(4, 32, 8, 64), x.view(4, 32, 8, 64)], 2)
    return both.reshape(128, 1024).bfloat16(), both.reshape(128, 1024).bfloat16().sum(0)


@pytest.mark.parametrize("function, launches", [(_norm, 3), (_stacked, 1)])
def test_programs_go_over_memory_once(function, launches, monkeypatch) -> None:
    monkeypatch.setattr(columns, "_ROWS", 64)
    monkeypatch.setattr(columns, "_POINTS", 1024)
    torch.manual_seed(0)
    inputs = [torch.randn(128, 512), torch.randn(128, 512), torch.rand(512) + 0.5]
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(function), inputs, Budget(processors=4))
        got, want = call(*inputs), function(*(t.double() for t in inputs))
    assert len([s for s in plan.steps if type(s).__name__ == "Launch"]) <= launches
    for g, w in zip(got, want, strict=True):
        scale = 8e-3 if g.dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(g.double(), w.double(), rtol=scale, atol=scale * float(w.abs().max()))
