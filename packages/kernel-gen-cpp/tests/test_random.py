"""Random kernels: layouts, axis orders, types and reductions nobody thought of, against the reference interpreter."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import Case, cast, op
from opmill_graph_ir.loops.index import Index, index
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_runtime_cache.store import Store

DTYPES = ("float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool")
SIZES = (1, 2, 3, 7, 8, 9, 16, 19, 33)


@st.composite
def read(draw, axes: tuple[ir.Axis, ...], name: str) -> tuple[ir.Buffer, ir.Expr]:
    """A load as float32 of a buffer laid out over some of the axes, in any order, with gaps."""
    dtype = draw(st.sampled_from(DTYPES))
    total, span = index(0), 1
    for axis in draw(st.permutations(list(axes))):
        if draw(st.integers(0, 4)):
            total = total + Index(((((axis.name,)), span),))
            span *= axis.extent.constant * draw(st.sampled_from((1, 1, 1, 2)))
    value: ir.Expr = ir.Load(name, total, dtype)
    return ir.Buffer(name, dtype, "in", index(span)), cast(value, "float32")


@st.composite
def value_of(draw, leaves: list[ir.Expr]) -> ir.Expr:
    value = draw(st.sampled_from(leaves))
    for _ in range(draw(st.integers(0, 3))):
        other = draw(st.sampled_from(leaves))
        kind = draw(st.sampled_from(("add", "mul", "max", "tanh", "where", "abs")))
        if kind == "where":
            value = op("where", op("lt", value, other), other, op("neg", value))
        elif kind in ("tanh", "abs"):
            value = op(kind, value)
        else:
            value = op(kind, value, other)
    return value


@st.composite
def scan_of(draw, value: ir.Expr, outer: tuple[ir.Axis, ...], inner: tuple[ir.Axis, ...], place: Index, span: int):
    """A scan in any direction with something made of it, stored along the axis from the inside or the outside."""
    kind = draw(st.sampled_from(("sum", "argmin", "logaddexp", "affine")))
    n = inner[0].extent.constant
    at = place * n + "j0" if draw(st.booleans()) else place + index("j0") * span
    scan = ir.Scan(
        ("r", "q") if kind == "argmin" else ("r",),
        kind,
        (value,) if kind != "affine" else (op("tanh", value), value),
        "float32",
        draw(st.booleans()),
    )
    outs = [ir.Buffer("out", "float32", "out", index(span * n))]
    stores = [ir.Store("out", at, op("tanh", ir.Ref("r", "float32")))]
    if kind == "argmin":
        outs.append(ir.Buffer("out1", "int64", "out", index(span * n)))
        stores.append(ir.Store("out1", at, ir.Ref("q", "int64")))
    return outs, (ir.Phase(inner, scans=(scan,), stores=tuple(stores)),)


@st.composite
def kernels(draw) -> ir.LoopKernel:
    outer = tuple(ir.Axis(f"i{k}", index(draw(st.sampled_from(SIZES)))) for k in range(draw(st.integers(0, 3))))
    inner = tuple(ir.Axis(f"j{k}", index(draw(st.sampled_from(SIZES)))) for k in range(draw(st.integers(0, 2))))
    reads = [draw(read((*outer, *inner), f"a{k}")) for k in range(draw(st.integers(1, 3)))]
    value = draw(value_of([v for _, v in reads]))
    place, span = index(0), 1
    for axis in draw(st.permutations(list(outer))):
        place, span = place + Index(((((axis.name,)), span),)), span * axis.extent.constant
    if len(inner) == 1 and draw(st.booleans()):
        outs, phases = draw(scan_of(value, outer, inner, place, span))
    elif inner:
        kind = draw(st.sampled_from(("sum", "max", "min", "argmax", "welford")))
        names = ("r", "q") if kind in ("argmax", "welford") else ("r",)
        reduction = ir.Reduction(names, kind, value, "float32")
        outs = [ir.Buffer(f"out{k}", "int64" if k and kind == "argmax" else "float32", "out", index(span)) for k in range(len(names))]
        stores = tuple(ir.Store(b.name, place, ir.Ref(n, b.dtype)) for b, n in zip(outs, names, strict=True))
        phases = (ir.Phase(inner, reductions=(reduction,)), ir.Phase(stores=stores))
    else:
        outs = [ir.Buffer("out", "float32", "out", index(span))]
        phases = (ir.Phase(stores=(ir.Store("out", place, value),)),)
    return ir.LoopKernel("random", (*(b for b, _ in reads), *outs), (ir.Nest(outer, phases, "random"),))


@pytest.fixture(scope="module")
def own_store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("random"))


@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(batch=st.lists(kernels(), min_size=24, max_size=24, unique=True))
def test_random_kernels(own_store: Store, batch: list[ir.LoopKernel]) -> None:
    runner = Runner(batch, own_store)
    # the values come from products of up to four numbers below 100: sums of them cancel
    wrong = [d for k in batch if (d := disagreement(Case("random", k, ranges=_small(k), rtol=256.0), runner)) is not None]
    assert wrong == []


def _small(kernel: ir.LoopKernel) -> dict[str, tuple[float, float]]:
    return {b.name: (0, 3) if b.dtype == "uint8" else (-3, 3) for b in kernel.buffers}
