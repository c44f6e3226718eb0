"""Random kernels: layouts, orders of axes, types and reductions nobody thought of, against the reference interpreter."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import Case, cast, op
from opmill_graph_ir.loops.index import Index, index
from opmill_kernel_gen_triton.debug import disagreement
from opmill_kernel_gen_triton.tiling import Budget

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
SIZES = (1, 2, 3, 7, 8, 16, 19)
BUDGETS = (Budget(), Budget(processors=1, tile=64, longest=4, values=4), Budget(1000, 64, 4, 4, 4, 2))


@st.composite
def read(draw, axes: tuple[ir.Axis, ...], name: str) -> tuple[ir.Buffer, ir.Expr]:
    """A load, as float32, of a buffer laid out over some of the axes in any order, with gaps."""
    dtype = draw(st.sampled_from(("float32", "float64", "bfloat16", "int64", "uint8", "bool")))
    place, span = index(0), 1
    for axis in draw(st.permutations(list(axes))):
        if draw(st.integers(0, 4)):
            place = place + Index((((axis.name,), span),))
            span *= axis.extent.constant * draw(st.sampled_from((1, 1, 1, 2)))
    return ir.Buffer(name, dtype, "in", index(span)), cast(ir.Load(name, place, dtype), "float32")


@st.composite
def kernels(draw) -> ir.LoopKernel:
    outer = tuple(ir.Axis(f"i{k}", index(draw(st.sampled_from(SIZES)))) for k in range(draw(st.integers(0, 3))))
    inner = tuple(ir.Axis(f"j{k}", index(draw(st.sampled_from(SIZES)))) for k in range(draw(st.integers(0, 2))))
    reads = [draw(read((*outer, *inner), f"a{k}")) for k in range(draw(st.integers(1, 3)))]
    value = reads[0][1]
    for _, other in reads[1:]:
        value = op(draw(st.sampled_from(("add", "mul", "max"))), value, other)
    place, span = index(0), 1
    for axis in draw(st.permutations(list(outer))):
        place, span = place + Index((((axis.name,), span),)), span * axis.extent.constant
    if not inner:
        phases, outs = (ir.Phase(stores=(ir.Store("out", place, value),)),), [ir.Buffer("out", "float32", "out", index(span))]
        return ir.LoopKernel("random", (*(b for b, _ in reads), *outs), (ir.Nest(outer, phases, "random"),))
    kind = draw(st.sampled_from(("sum", "max", "min", "argmax", "welford")))
    names = ("r", "q") if kind in ("argmax", "welford") else ("r",)
    outs = [ir.Buffer(f"out{k}", "int64" if k and kind == "argmax" else "float32", "out", index(span)) for k in range(len(names))]
    stores = tuple(ir.Store(b.name, place, ir.Ref(n, b.dtype)) for b, n in zip(outs, names, strict=True))
    phases = (ir.Phase(inner, reductions=(ir.Reduction(names, kind, value, "float32"),)), ir.Phase(stores=stores))
    return ir.LoopKernel("random", (*(b for b, _ in reads), *outs), (ir.Nest(outer, phases, "random"),))


@settings(max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(kernel=kernels(), budget=st.sampled_from(BUDGETS))
def test_random_kernels(kernel: ir.LoopKernel, budget: Budget) -> None:
    ranges = {b.name: (0, 3) if b.dtype == "uint8" else (-3, 3) for b in kernel.buffers}
    assert disagreement(Case("random", kernel, ranges=ranges, rtol=256.0), budget=budget) is None
