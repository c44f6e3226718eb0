"""Values that rows share: which are put aside, and that results are those of the nest as it was."""

import random
from dataclasses import replace

import pytest

from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.index import Index, floordiv, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, Let, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_kernel_gen_cpp.passes.once import shared_once

ROWS, COLUMNS = 48, 40
I, J = Axis("i", index(ROWS)), Axis("j", index(COLUMNS))
PLACE = index("i") * COLUMNS + "j"


def op(name: str, *args: Expr) -> Op:
    return Op(name, args, "float32")


def root(buffer: str, at: Index | str) -> Op:
    return op("sqrt", op("abs", Load(buffer, index(at), "float32")))


def kernel(phases: tuple[Phase, ...], axes: tuple[Axis, ...] = (I, J), out: int = ROWS * COLUMNS) -> LoopKernel:
    buffers = (
        Buffer("x", "float32", "in", index(ROWS * COLUMNS)),
        Buffer("c", "float32", "in", index(COLUMNS)),
        Buffer("r", "float32", "in", index(ROWS)),
        Buffer("y", "float32", "out", index(out)),
    )
    return LoopKernel("once", buffers, (Nest(axes, phases),))


def stored(value: Expr, place: Index = PLACE) -> Phase:
    return Phase(stores=(Store("y", place, value),))


X = Load("x", PLACE, "float32")
BY_COLUMN = op("div", Const(1.0, "float32"), op("add", root("c", "j"), Const(1e-3, "float32")))
IN_LETS = (Let("s", BY_COLUMN), Let("t", op("mul", Ref("s", "float32"), Load("c", index("j"), "float32"))))
KEPT = {
    "a value of a column": (kernel((stored(op("mul", X, BY_COLUMN)),)), 1),
    "a group of columns": (kernel((stored(op("mul", X, root("c", floordiv(index("j"), 4)))),)), 1),
    "by way of lets": (kernel((replace(stored(op("mul", X, op("exp", Ref("t", "float32")))), lets=IN_LETS),)), 3),
    "in a sum along the row": (
        kernel(
            (
                Phase((J,), reductions=(Reduction(("q",), "sum", op("mul", X, BY_COLUMN), "float32"),)),
                stored(Ref("q", "float32"), index("i")),
            ),
            (I,),
        ),
        1,
    ),
}
LEFT = {
    "a load": kernel((stored(op("mul", X, Load("c", index("j"), "float32"))),)),
    "what is cheap": kernel((stored(op("mul", X, op("add", Load("c", index("j"), "float32"), Const(1.0, "float32")))),)),
    "a value of a row": kernel((stored(op("mul", X, root("r", "i"))),)),
    "of every point": kernel((stored(op("sqrt", op("abs", X))),)),
    "few rows": kernel((stored(op("mul", Load("x", PLACE, "float32"), BY_COLUMN)),), (Axis("i", index(8)), J)),
    "what the nest wrote": kernel(
        (replace(stored(X), stores=(Store("y", PLACE, X), Store("c", index("j"), X))), stored(op("mul", X, BY_COLUMN)))
    ),
}


@pytest.fixture(scope="module")
def runner(store) -> Runner:
    return Runner([k for k, _ in KEPT.values()] + [mixed(seed) for seed in range(8)], store)


@pytest.mark.parametrize("name", KEPT)
def test_what_rows_share_is_computed_once(runner: Runner, name: str) -> None:
    of, most = KEPT[name]
    made, scratch = shared_once(of, ())
    assert 1 <= len(scratch) <= most and len(made.nests) == 1 + len(scratch)
    assert all(b.numel.constant == COLUMNS for b in scratch)
    assert disagreement(Case(name, of), runner) is None


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_in_the_nest(name: str) -> None:
    assert shared_once(LEFT[name], ()) == (LEFT[name], ())
    whole = KEPT["a value of a column"][0]
    assert shared_once(whole, (), lambda nest: True) == (whole, ())


def mixed(seed: int) -> LoopKernel:
    """A value made of parts of the point, the row and the column at random."""
    draw = random.Random(seed)

    def value(depth: int) -> Expr:
        if depth == 0:
            return draw.choice([X, Load("c", index("j"), "float32"), Load("r", index("i"), "float32"), root("c", "j"), root("r", "i")])
        name = draw.choice(["add", "mul", "sub", "max", "sqrt", "sigmoid"])
        if name == "sqrt":
            return op("sqrt", op("abs", value(depth - 1)))
        return op(name, value(depth - 1)) if name == "sigmoid" else op(name, value(depth - 1), value(depth - 1))

    return kernel((replace(stored(op("add", Ref("s", "float32"), value(4))), lets=(Let("s", value(3)),)),))


@pytest.mark.parametrize("seed", range(8))
def test_mixed_values(runner: Runner, seed: int) -> None:
    assert disagreement(Case("mixed", mixed(seed), rtol=64.0), runner) is None
