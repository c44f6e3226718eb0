"""Kernels as text, and back."""

from dataclasses import replace

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Const, Load, Op, Phase
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


def test_expression_text():
    assert show_expr(Op("cast", (Load("a", index("i"), "float32"),), "bfloat16")) == "cast.bfloat16(a[i])"


def test_a_first_part_of_a_row_is_shown():
    text = "kernel k()\n  in a: float32[8]\n  out b: float32[3]\nnest\n  phase j<8\n    scan.ascending r, q: float32 = a[j]\n    set.first3 b[j] = r\n"
    assert show(parse(text)) == text and parse(text).nests[0].phases[0].stores[0].first == 3
