"""Text round trips, the laws of kernels, and canonical names."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.loops.canonical import BufferUse, canonical
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import (
    LONGEST_SORT,
    Axis,
    Buffer,
    Const,
    IndexValue,
    Load,
    LoopKernel,
    Nest,
    Op,
    Phase,
    Reduction,
    Ref,
    Scan,
    Store,
)
from opmill_graph_ir.loops.spec import complaints, verify_kernel
from opmill_graph_ir.loops.text import parse, show, show_expr

CASES = {c.name: c.kernel for c in cases()}


@pytest.mark.parametrize("name", CASES)
def test_kernel_survives_its_text(name):
    assert parse(show(CASES[name])) == CASES[name]


WRONG = {
    "a role that no buffer has": ("in a: float32[8]", "through a: float32[8]"),
    "an index that is no number": ("a[i]", "a['i']"),
    "what no element is of": ("a[i]", "f(i)[i]"),
    "another than a constant where nothing is": ("a[i]", "a.where(a[i], i, a[i])"),
    "a call of no name": ("exp(", "(exp)()("),
}


@pytest.mark.parametrize("case", WRONG)
def test_text_that_is_wrong_is_no_kernel(case):
    text = "kernel k()\n  in a: float32[8]\n  out b: float32[8]\nnest i<8\n  phase\n    set b[i] = exp(a[i])\n"
    assert show(parse(text)) == text
    right, wrong = WRONG[case]
    with pytest.raises(GraphError, match="GI042"):
        parse(text.replace(right, wrong))


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
J, FEW = Axis("j", index(LONGEST_SORT + 1)), Axis("j", index(8))
SORTED = Scan(("r", "q"), "ascending", (A,), "float32")
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
    "long row in order": Phase((J,), scans=(SORTED,), stores=(Store("out", index("j"), Ref("r", "float32")),)),
    "order from the end": Phase((FEW,), scans=(replace(SORTED, reverse=True),), stores=(Store("out", index("j"), Ref("r", "float32")),)),
    "order without positions": Phase(
        (FEW,), scans=(replace(SORTED, names=("r",)),), stores=(Store("out", index("j"), Ref("r", "float32")),)
    ),
    "first of what is in no order": Phase((FEW,), stores=(Store("out", index("j"), A, first=3),)),
    "first of fewer": Phase((FEW,), scans=(SORTED,), stores=(Store("out", index("j"), Ref("r", "float32"), first=8),)),
    "first added": Phase((FEW,), scans=(SORTED,), stores=(Store("out", index("j"), Ref("r", "float32"), "add", 3),)),
    "read before write": Phase(stores=(Store("out", index("i"), Load("out", index("i"), "float32")),)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel_is_refused(name):
    with pytest.raises(GraphError, match="GI040"):
        verify_kernel(_with_phase(BROKEN[name]))


def test_the_first_of_a_row_in_order_is_legal():
    good = replace(BROKEN["first of fewer"], stores=(Store("out", index("j"), Ref("r", "float32"), first=7),))
    assert not list(complaints(_with_phase(good)))
    assert "    set.first7 out[j] = r" in show(_with_phase(good)).splitlines()


@pytest.mark.parametrize("name", CASES)
def test_canonical_names_do_not_depend_on_names(name):
    kernel = CASES[name]
    uses = {b.name: BufferUse(b.dtype, b.numel) for b in kernel.buffers}
    once = canonical(kernel.nests, uses.__getitem__)
    again = canonical(once.kernel.nests, {b.name: BufferUse(b.dtype, b.numel) for b in once.kernel.buffers}.__getitem__)
    assert again.kernel == once.kernel
    assert not list(complaints(once.kernel))


def _two_sums(second: str) -> tuple[Nest, ...]:
    """Two sums in one nest over inner axes of extents 3 and 5, the second's of this name."""
    sums = [
        Phase(axes=(Axis(name, index(n)),), reductions=(Reduction((r,), "sum", Load(b, index(name), "float32"), "float32"),))
        for name, n, r, b in (("j", 3, "r", "a"), (second, 5, "q", "b"))
    ]
    last = Phase(stores=(Store("out", index(0), Op("add", (Ref("r", "float32"), Ref("q", "float32")), "float32")),))
    return (Nest((), (*sums, last)),)


_USES = {"a": BufferUse("float32", index(3)), "b": BufferUse("float32", index(5)), "out": BufferUse("float32", index(1))}


@pytest.mark.parametrize("second", ["j", "k"])
def test_phases_of_other_extents_have_axes_of_other_names(second):
    kernel = canonical(_two_sums(second), _USES.__getitem__).kernel
    first, other = (p.axes[0] for p in kernel.nests[0].phases[:2])
    assert first.name != other.name and not list(complaints(kernel))
    buffers = {"b0": torch.ones(3), "b1": torch.ones(5), "b2": torch.zeros(1)}
    assert evaluate(kernel, buffers) == 0 and buffers["b2"].item() == 8


def test_one_axis_name_of_two_extents_is_refused():
    buffers = tuple(Buffer(n, u.dtype, "out" if n == "out" else "in", u.numel) for n, u in _USES.items())
    assert not list(complaints(LoopKernel("two", buffers, _two_sums("k"))))
    with pytest.raises(GraphError, match="axis j has two extents"):
        verify_kernel(LoopKernel("two", buffers, _two_sums("j")))


def test_phases_of_one_extent_share_a_name():
    [nest] = _two_sums("k")
    same = replace(nest, phases=(nest.phases[0], replace(nest.phases[1], axes=(Axis("k", index(3)),)), nest.phases[2]))
    kernel = canonical([same], _USES.__getitem__).kernel
    assert [p.axes[0].name for p in kernel.nests[0].phases[:2]] == ["j0", "j0"]


def test_expression_text():
    assert show_expr(Op("cast", (A,), "bfloat16")) == "cast.bfloat16(a[i])"
