"""Kernels that move half precision compute with quick functions: as near to float64 as what they are rounded to allows."""

import pytest
import torch

from opmill_graph_ir.loops.cases import Case, axes, cast, op, row_major
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Buffer, Const, Expr, IndexValue, Load, LoopKernel, Nest, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.debug import disagreement, run
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
ROWS, COLUMNS = 7, 130


def softmax(loaded: str, stored: str) -> LoopKernel:
    i, j = axes(i=ROWS), axes(j=COLUMNS)
    where = row_major((*i, *j))
    x: Expr = Load("x", where, loaded)
    x = x if loaded == "float32" else cast(x, "float32")
    e = op("exp", op("sub", x, Ref("top", "float32")))
    value = op("div", e, Ref("total", "float32"))
    phases = (
        Phase(j, reductions=(Reduction(("top",), "max", x, "float32"),)),
        Phase(j, reductions=(Reduction(("total",), "sum", e, "float32"),)),
        Phase(j, stores=(Store("out", where, value if stored == "float32" else cast(value, stored)),)),
    )
    n = index(ROWS * COLUMNS)
    return LoopKernel("softmax", (Buffer("x", loaded, "in", n), Buffer("out", stored, "out", n)), (Nest(i, phases),))


def text(kernel: LoopKernel, precise: bool = False) -> str:
    [[function]] = kernel_text(kernel, precise=precise).functions
    return function.text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_right_to_a_rounding(dtype: str) -> None:
    assert disagreement(Case("half", softmax(dtype, dtype), rtol=1.1, ranges={"x": (-30, 30)})) is None


def test_only_where_half_precision_is_all_that_moves() -> None:
    assert "libdevice.exp" not in text(softmax("bfloat16", "bfloat16"))
    for kernel in (softmax("float32", "float32"), softmax("bfloat16", "float32"), softmax("float32", "float16")):
        assert "libdevice.exp" in text(kernel) and "div_rn" in text(kernel)
    assert "libdevice.exp" in text(softmax("bfloat16", "bfloat16"), precise=True)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_keep_nan(name: str) -> None:
    kernel = softmax("float32", "float32")
    case = Case("nan", kernel, rtol=64.0)
    x = case.buffers(0)["x"]
    x[3] = float("nan")
    from opmill_graph_ir.loops.evaluate import evaluate

    got, want = ({"x": x.clone(), "out": torch.zeros_like(x)} for _ in range(2))
    run(kernel, got)
    evaluate(kernel, want, ())
    assert torch.equal(got["out"].isnan(), want["out"].isnan()) and got["out"][:COLUMNS].isnan().all()


def test_choices_by_a_known_condition_are_made_once() -> None:
    d = axes(i=64)
    first = op("lt", op_at(), Const(32, "int64"))
    a, b = Load("a", index("i"), "float32"), Load("b", index("i"), "float32")
    inner = op("where", op("ge", op_at(), Const(32, "int64")), b, a)
    value = op("where", first, op("where", first, a, b), inner)
    n = index(64)
    kernel = LoopKernel(
        "choice",
        (Buffer("a", "float32", "in", n), Buffer("b", "float32", "in", n), Buffer("out", "float32", "out", n)),
        (Nest(d, (Phase(stores=(Store("out", index("i"), value),)),)),),
    )
    assert text(kernel).count("tl.where") == 1 and "int64" not in text(kernel)
    assert disagreement(Case("choice", kernel)) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_halves_turned_about_are_read_once(dtype: str) -> None:
    """Rotary embeddings: the sign of one half is turned, and each takes the other's place."""
    d = axes(i=5, j=3, k=16)
    at, n = row_major(d), index(5 * 3 * 16)
    k = IndexValue(index("k"), "int64")
    low, high = op("lt", k, Const(8, "int64")), op("ge", k, Const(8, "int64"))

    def read(distance: int, mask: Expr) -> Expr:
        e: Expr = op(
            "mul",
            *(
                Load(b, at + distance, dtype, mask, Const(0.0, dtype))
                if dtype == "float32"
                else cast(Load(b, at + distance, dtype, mask, Const(0.0, dtype)), "float32")
                for b in "ab"
            ),
        )
        return e if dtype == "float32" else cast(e, dtype)

    def wide(e: Expr) -> Expr:
        return e if dtype == "float32" else cast(e, "float32")

    turned = op("neg", wide(read(8, low)))
    zero = Const(0.0, dtype)
    first = op("where", low, turned if dtype == "float32" else cast(turned, dtype), zero)
    value = op("where", low, first, op("where", high, read(-8, high), zero))
    buffers = (*(Buffer(b, dtype, "in", n) for b in "ab"), Buffer("out", dtype, "out", n))
    kernel = LoopKernel("rotary", buffers, (Nest(d, (Phase(stores=(Store("out", at, value),)),)),))
    assert disagreement(Case("rotary", kernel, rtol=1.1)) is None
    assert text(kernel).count("tl.load(a_ptr") == 1 and "mask=tmp" not in text(kernel)
    assert text(kernel, precise=True).count("tl.load(a_ptr") == (1 if dtype == "float32" else 2)


def test_choices_between_different_things_stay() -> None:
    d = axes(i=64)
    low = op("lt", op_at(), Const(32, "int64"))
    n = index(64)
    for other in (
        Load("b", index("i"), "float32"),
        op("exp", Load("a", index("i"), "float32")),
        Load("a", index("i") * 0 + 63 - "i", "float32"),
    ):
        value = op("where", low, Load("a", index("i"), "float32"), other)
        buffers = tuple(Buffer(b, "float32", "out" if b == "out" else "in", n) for b in ("a", "b", "out"))
        kernel = LoopKernel("choice", buffers, (Nest(d, (Phase(stores=(Store("out", index("i"), value),)),)),))
        assert "tl.where" in text(kernel) and disagreement(Case("choice", kernel)) is None


def op_at() -> Expr:
    return IndexValue(index("i"), "int64")


def gelu(dtype: str, count: int) -> LoopKernel:
    x = cast(Load("x", index("i"), dtype), "float32")
    half = op("mul", x, Const(0.5, "float32"))
    value = op("mul", half, op("add", op("erf", op("mul", x, Const(0.5**0.5, "float32"))), Const(1.0, "float32")))
    n = index(count)
    return LoopKernel(
        "gelu",
        (Buffer("x", dtype, "in", n), Buffer("out", dtype, "out", n)),
        (Nest(axes(i=count), (Phase(stores=(Store("out", index("i"), cast(value, dtype)),)),)),),
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_is_right_to_a_rounding(dtype: str) -> None:

    x = torch.cat([torch.linspace(-9, 9, 4000), torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 3e4, -3e4, 1e-7])]).to(
        getattr(torch, dtype)
    )
    kernel = gelu(dtype, x.numel())
    assert "gelu(" in text(kernel)
    memory = {"x": x, "out": torch.empty_like(x)}
    run(kernel, memory)
    wide = x.double()
    exact = wide * torch.special.ndtr(wide)
    exact[-5] = float("nan")  # as in eager: minus infinity times nothing
    rounded = exact.to(x.dtype)
    unit = torch.finfo(x.dtype).eps * exact.abs().clamp_min(torch.finfo(x.dtype).smallest_normal)
    assert torch.equal(memory["out"].isnan(), rounded.isnan())
    finite = exact.isfinite()
    share = 0.51 if dtype == "float16" else 1.01  # the interpreter cuts bfloat16 off
    assert ((memory["out"].double() - exact).abs()[finite] <= share * unit[finite] + 1e-9).all()
    assert torch.equal(memory["out"][exact.isinf()], rounded[exact.isinf()])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tanh_of_every_number(dtype: str) -> None:
    """Right to a rounding of itself, near zero as well, with the sign of zero."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(getattr(torch, dtype))
    n = index(x.numel())
    value = cast(op("tanh", cast(Load("x", index("i"), dtype), "float32")), dtype)
    buffers = (Buffer("x", dtype, "in", n), Buffer("out", dtype, "out", n))
    kernel = LoopKernel("tanh", buffers, (Nest(axes(i=x.numel()), (Phase(stores=(Store("out", index("i"), value),)),)),))
    assert "quick_tanh" in text(kernel) and "quick_tanh" not in text(kernel, precise=True)
    memory = {"x": x, "out": torch.zeros_like(x)}
    assert not run(kernel, memory)
    want = x.double().tanh()
    assert torch.equal(memory["out"].isnan(), want.isnan()) and torch.equal(memory["out"].signbit()[~x.isnan()], x.signbit()[~x.isnan()])
    share = 0.51 if dtype == "float16" else 1.01  # the interpreter cuts bfloat16 off, and what is subnormal
    unit = torch.finfo(x.dtype).eps * want.abs().clamp_min(torch.finfo(x.dtype).smallest_normal)
    normal = want.abs() >= torch.finfo(x.dtype).smallest_normal
    assert ((memory["out"].double() - want).abs() <= share * unit)[normal].all()


def test_places_are_floats_at_once() -> None:
    """Wide integers between are slow to convert."""
    d = axes(i=40, j=70)
    at = row_major(d)
    value = op("add", cast(IndexValue(index("i") * 3 - index("j"), "int64"), "float32"), cast(IndexValue(at, "int64"), "float32"))
    kernel = LoopKernel("places", (Buffer("out", "float32", "out", index(2800)),), (Nest(d, (Phase(stores=(Store("out", at, value),)),)),))
    assert disagreement(Case("places", kernel)) is None and "int64" not in text(kernel)
