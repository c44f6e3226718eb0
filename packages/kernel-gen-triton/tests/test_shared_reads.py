"""Reads that vary only along rows, or only from row to row, are made once for several rows."""

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.compiling import scheduled
from opmill_graph_ir.loops.cases import Case, axes, cast, op, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, IndexValue, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_graph_ir.schedule.steps import KernelStep
from opmill_kernel_gen_triton.debug import compiled_for_gpu, disagreement, on_gpu
from opmill_kernel_gen_triton.kernel import kernel_text
from opmill_kernel_gen_triton.tiling import Budget

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
FEW = Budget(processors=1, tile=512)


def affine(dtype: str, rows: int, columns: int, coin: bool = False) -> LoopKernel:
    """``a[i, j] * b[j] + c[i]``, and a random word where asked for."""
    d = axes(i=rows, j=columns)
    reads: list[Expr] = [Load("a", row_major(d), dtype), Load("b", index("j"), dtype), Load("c", index("i"), dtype)]
    a, b, c = reads if dtype == "float32" else [cast(e, "float32") for e in reads]
    value = op("add", op("mul", a, b), c)
    if coin:
        value = op("mul", value, cast(Op("coin", (Load("key", index(0), "int64"), IndexValue(row_major(d), "int64")), "int32"), "float32"))
    value = value if dtype == "float32" else cast(value, dtype)
    sizes = {"a": rows * columns, "b": columns, "c": rows}
    ins = [Buffer(n, dtype, "in", index(k)) for n, k in sizes.items()] + ([Buffer("key", "int64", "in", index(1))] if coin else [])
    return LoopKernel(
        "affine",
        (*ins, Buffer("out", dtype, "out", index(rows * columns))),
        (Nest(d, (Phase(stores=(Store("out", row_major(d), value),)),)),),
    )


@pytest.mark.parametrize("coin", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (70, 192)])
def test_agrees_with_the_reference(dtype: str, rows: int, columns: int, coin: bool) -> None:
    kernel = affine(dtype, rows, columns, coin)
    [[function]] = kernel_text(kernel, FEW).functions
    assert "YBLOCK" in function.text and "philox_word" not in function.text
    assert disagreement(Case("affine", kernel, rtol=4.0), budget=FEW) is None


def test_only_where_it_pays() -> None:
    for rows, columns in ((64, 130), (2, 128)):  # rows that no block divides; too few of them
        [[function]] = kernel_text(affine("float32", rows, columns), FEW).functions
        assert "YBLOCK" not in function.text


def test_rows_of_other_sizes_share_nothing_though_they_read_alike() -> None:
    """Both phases read the buffer at ``rindex`` and ask whether the place is beyond 3."""

    def walk(name: str, extent: int, target: str) -> Phase:
        late = Op("ge", (IndexValue(index(name), "int64"), Const(3, "int64")), "bool")
        value = Op("where", (late, Load("a", index(name), "float32"), Const(0.0, "float32")), "float32")
        return Phase((Axis(name, index(extent)),), stores=(Store(target, index(name), value),))

    buffers = (Buffer("a", "float32", "in", index(40)), Buffer("b", "float32", "out", index(24)), Buffer("c", "float32", "out", index(40)))
    nests = [Nest((), (walk("j", 24, "b"), walk("k", 40, "c"))), Nest((), (walk("j", 24, "b"), walk("j", 40, "c")))]
    for nest in nests:
        assert disagreement(Case("rows", LoopKernel("rows", buffers, (nest,)))) is None


def activation(x, g):
    """What a backward makes of the input of a gelu: the gelu again, its gradient, and the sum of that for a bias."""
    again = torch.nn.functional.gelu(x.reshape(300, 128))
    inner = torch.ops.aten.gelu_backward.default(g.view(3, 100, 128), x.view(3, 100, 128)).view(300, 128)
    return again.matmul(x.new_ones(128, 2)), inner, inner.sum(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_summed_down_columns_and_used_otherwise_is_read_once(dtype) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(300, 128).to(dtype) for _ in range(2))
    with torch.no_grad():
        graph = on_gpu(functionalize(torch.fx.symbolic_trace(activation), [x, g]))
        _, schedule = scheduled(graph)
        [step] = [s for s in schedule.steps if isinstance(s, KernelStep) and any(r.reductions for n in s.kernel.nests for r in n.phases)]
        first = kernel_text(step.kernel).functions[0][0].text
        assert first.count("tl.store(") == 3 and first.count("bfloat16[38400]" if dtype == torch.bfloat16 else "float32[38400]") == 4
        assert dtype == torch.float32 or ("one_plus_erf" in first and "gelu(" not in first)
        got = compiled_for_gpu(graph)[0](x, g)
        want = activation(x.double(), g.double())
    for a, b in zip(got, want, strict=True):
        assert (a.double() - b).norm() <= (2e-2 if dtype == torch.bfloat16 else 1e-5) * b.norm()
