"""Text round trips, the laws of kernels, and canonical names."""

from dataclasses import replace

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.loops.canonical import BufferUse, canonical
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Const, IndexValue, Load, Op, Phase, Reduction, Ref, Store
from opmill_graph_ir.loops.spec import complaints, verify_kernel
from opmill_graph_ir.loops.text import parse, show, show_expr

CASES = {c.name: c.kernel for c in cases()}


@pytest.mark.parametrize("name", CASES)
def test_kernel_survives_its_text(name):
    assert parse(show(CASES[name])) == CASES[name]


@pytest.mark.parametrize("name", CASES)
def test_cases_are_legal(name):
    assert not list(complaints(CASES[name]))


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e-45, float("inf"), float("-inf"), float("nan")])
def test_floats_survive_their_text(value):
    kernel = CASES["fill"]
    store = replace(kernel.nests[0].phases[0].stores[0], value=Const(value, "float32"))
    kernel = replace(kernel, nests=(replace(kernel.nests[0], phases=(Phase(stores=(store,)),)),))
    assert parse(show(kernel)) == kernel


def test_text_shows_statements():
    text = show(CASES["softmax_5x33"])
    assert "    max m: float32 = x[33*i + j]" in text.splitlines()
    assert "    set out[33*i + j] = div(out[33*i + j], s)" in text.splitlines()


def test_unreadable_line_is_named():
    with pytest.raises(GraphError, match="line 2"):
        parse("kernel k()\n  in b0 float32\nnest\n    what is = this(\n")


def _with_phase(phase: Phase):
    kernel = CASES["neg_float32"]
    return replace(kernel, nests=(replace(kernel.nests[0], phases=(phase,)),))


A = Load("a", index("i"), "float32")
BROKEN = {
    "unknown name": Phase(stores=(Store("out", index("k"), A),)),
    "unknown buffer": Phase(stores=(Store("out", index("i"), Load("z", index("i"), "float32")),)),
    "undefined": Phase(stores=(Store("out", index("i"), Ref("v", "float32")),)),
    "types differ": Phase(stores=(Store("out", index("i"), Op("add", (A, Const(1.0, "float64")), "float32")),)),
    "wrong result": Phase(stores=(Store("out", index("i"), Op("lt", (A, A), "float32")),)),
    "wrong store": Phase(stores=(Store("out", index("i"), IndexValue(index("i"), "int64")),)),
    "wrong arity": Phase(stores=(Store("out", index("i"), Op("exp", (A, A), "float32")),)),
    "constant of another type": Phase(stores=(Store("out", index("i"), Const(1, "float32")),)),
    "write to an input": Phase(stores=(Store("a", index("i"), A), Store("out", index("i"), A))),
    "nothing written": Phase(),
    "reduction over nothing": Phase(reductions=(Reduction(("r",), "sum", A, "float32"),), stores=(Store("out", index("i"), A),)),
    "empty axis": Phase(axes=(Axis("j", index(0)),), stores=(Store("out", index("i"), A),)),
    "axis hides axis": Phase(axes=(Axis("i", index(3)),), stores=(Store("out", index("i"), A),)),
    "read before write": Phase(stores=(Store("out", index("i"), Load("out", index("i"), "float32")),)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel_is_refused(name):
    with pytest.raises(GraphError, match="GI040"):
        verify_kernel(_with_phase(BROKEN[name]))


@pytest.mark.parametrize("name", CASES)
def test_canonical_names_do_not_depend_on_names(name):
    kernel = CASES[name]
    uses = {b.name: BufferUse(b.dtype, b.numel) for b in kernel.buffers}
    once = canonical(kernel.nests, uses.__getitem__)
    again = canonical(once.kernel.nests, {b.name: BufferUse(b.dtype, b.numel) for b in once.kernel.buffers}.__getitem__)
    assert again.kernel == once.kernel
    assert not list(complaints(once.kernel))


def test_expression_text():
    assert show_expr(Op("cast", (A,), "bfloat16")) == "cast.bfloat16(a[i])"
