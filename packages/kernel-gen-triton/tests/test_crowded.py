"""Few rows with much work each: phases that are not alike, or reduce nothing, are launches of their own."""

import pytest

from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import disagreement
from opmill_kernel_gen_triton.kernel import kernel_text

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
LARGE = Budget(processors=1000, tile=64, longest=8, values=8, chunk=4, steps=2)
ROWS, I = 3, (Axis("i", index(3)),)


def _axis(name: str, extent: int) -> tuple[Axis, ...]:
    return (Axis(name, index(extent)),)


def _at(buffer: str, length: int, name: str) -> Load:
    return Load(buffer, index("i") * length + name, "float32")


def _op(name: str, *args) -> Op:
    return Op(name, args, "float32")


def _kernel(phases: tuple[Phase, ...], **buffers: tuple[str, int]) -> LoopKernel:
    return LoopKernel(
        "crowded", tuple(Buffer(n, "float32", role, index(ROWS * size)) for n, (role, size) in buffers.items()), (Nest(I, phases),)
    )


def _pointwise() -> LoopKernel:
    """A walk over the row, then one over another length that reads what the first has stored."""
    first = Phase(_axis("j", 96), stores=(Store("b", index("i") * 96 + "j", _op("mul", _at("a", 96, "j"), Const(2.0, "float32"))),))
    second = Phase(
        _axis("k", 48),
        stores=(
            Store(
                "c",
                index("i") * 48 + "k",
                _op(
                    "add",
                    Load("b", index("i") * 96 + index("k") * 2, "float32"),
                    Load("b", index("i") * 96 + index("k") * 2 + 1, "float32"),
                ),
            ),
        ),
    )
    return _kernel((first, second), a=("in", 96), b=("inout", 96), c=("out", 48))


def _reduced(op: str) -> LoopKernel:
    """Sums over rows of two lengths, one of which is overwritten as it is summed; what follows takes both."""
    names = ("m", "s") if op == "welford" else ("m",)
    first = Phase(
        _axis("j", 96),
        reductions=(Reduction(names, op, _at("a", 96, "j"), "float32"),),
        stores=(Store("a", index("i") * 96 + "j", _op("neg", _at("a", 96, "j"))),),
    )
    between = Phase(
        lets=(Let("twice", _op("mul", Ref("m", "float32"), Const(2.0, "float32"))),),
        stores=(Store("d", index("i"), Ref(names[-1], "float32")),),
    )
    second = Phase(
        _axis("k", 40), reductions=(Reduction(("n",), "max", _op("add", _at("b", 40, "k"), Ref("twice", "float32")), "float32"),)
    )
    last = Phase(
        _axis("l", 40),
        stores=(
            Store("c", index("i") * 40 + "l", _op("sub", _at("b", 40, "l"), _op("add", Ref("n", "float32"), Ref("twice", "float32")))),
        ),
    )
    return _kernel((first, between, second, last), a=("inout", 96), b=("in", 40), c=("out", 40), d=("out", 1))


KERNELS = {"pointwise": _pointwise(), **{op: _reduced(op) for op in ("sum", "max", "welford")}}


@pytest.mark.parametrize("budget", [LARGE, Budget(processors=1000, tile=64, longest=8, values=8, chunk=12)], ids=["all", "some"])
@pytest.mark.parametrize("name", KERNELS)
def test_phases_apart_agree_with_the_reference(name: str, budget: Budget) -> None:
    case = Case(name, KERNELS[name], rtol=64.0)
    assert len(kernel_text(case.kernel, budget).functions) > len(kernel_text(case.kernel).functions) == 1
    assert disagreement(case, budget=budget) is None


def test_rows_of_a_few_points_stay_together() -> None:
    assert len(kernel_text(KERNELS["sum"]).functions) == 1


@pytest.mark.parametrize("length", [4096, 12288])
def test_a_softmax_of_a_few_rows_is_one_launch(length: int) -> None:
    row, value = _axis("j", length), Load("a", index("i") * length + "j", "float32")
    top = Phase(row, reductions=(Reduction(("m",), "max", value, "float32"),))
    total = Phase(row, reductions=(Reduction(("s",), "sum", _op("exp", _op("sub", value, Ref("m", "float32"))), "float32"),))
    last = Phase(
        row,
        stores=(
            Store("c", index("i") * length + "j", _op("div", _op("exp", _op("sub", value, Ref("m", "float32"))), Ref("s", "float32"))),
        ),
    )
    assert len(kernel_text(_kernel((top, total, last), a=("in", length), c=("out", length))).functions) == 1
