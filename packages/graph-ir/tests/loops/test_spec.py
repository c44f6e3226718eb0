"""The laws of kernels."""

from dataclasses import replace

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.loops.cases import cases
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

CASES = {c.name: c.kernel for c in cases()}


@pytest.mark.parametrize("name", CASES)
def test_cases_are_legal(name):
    assert not list(complaints(CASES[name]))


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
    "something else where nothing is hidden": Phase(stores=(Store("out", index("i"), replace(A, other=Const(0.0, "float32"))),)),
    "read before write": Phase(stores=(Store("out", index("i"), Load("out", index("i"), "float32")),)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel_is_refused(name):
    with pytest.raises(GraphError, match="GI040"):
        verify_kernel(_with_phase(BROKEN[name]))


def test_the_first_of_a_row_in_order_is_legal():
    good = replace(BROKEN["first of fewer"], stores=(Store("out", index("j"), Ref("r", "float32"), first=7),))
    assert not list(complaints(_with_phase(good)))


def test_one_axis_name_of_two_extents_is_refused():
    sums = [
        Phase(axes=(Axis(name, index(n)),), reductions=(Reduction((r,), "sum", Load("a", index(name), "float32"), "float32"),))
        for name, n, r in (("j", 3, "r"), ("k", 5, "q"))
    ]
    last = Phase(stores=(Store("out", index(0), Op("add", (Ref("r", "float32"), Ref("q", "float32")), "float32")),))
    buffers = (Buffer("a", "float32", "in", index(5)), Buffer("out", "float32", "out", index(1)))
    kernel = LoopKernel("two", buffers, (Nest((), (*sums, last)),))
    assert not list(complaints(kernel))
    same = replace(
        sums[1], axes=(Axis("j", index(5)),), reductions=(replace(sums[1].reductions[0], value=Load("a", index("j"), "float32")),)
    )
    with pytest.raises(GraphError, match="axis j has two extents"):
        verify_kernel(replace(kernel, nests=(Nest((), (sums[0], same, last)),)))
