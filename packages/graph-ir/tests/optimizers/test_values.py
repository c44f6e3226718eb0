"""Arithmetic of update rules: what does not vary is computed in float64."""

from opmill_graph_ir.loops.ir import Const, Op, Ref
from opmill_graph_ir.optimizers.values import Number

RATE, ELEMENT = Number(Ref("rate", "float64"), uniform=True), Number(Ref("p", "float32"))


def test_numbers_meet_elements_rounded():
    made = RATE * ELEMENT
    assert made.expr == Op("mul", (Op("cast", (Ref("rate", "float64"),), "float32"), Ref("p", "float32")), "float32") and not made.uniform
    assert (ELEMENT - RATE).expr.args[1] == Op("cast", (Ref("rate", "float64"),), "float32")


def test_numbers_among_themselves_stay_exact():
    made = 1 - RATE * RATE
    assert made.uniform and made.expr == Op("sub", (Const(1.0, "float64"), Op("mul", (RATE.expr, RATE.expr), "float64")), "float64")
    assert (ELEMENT * 0.1).expr.args[1] == Const(0.1, "float32") and not (ELEMENT * 0.1).uniform


def test_functions_keep_what_they_are_of():
    assert (
        RATE.sqrt().uniform and not abs(ELEMENT).uniform and (-ELEMENT).expr.name == "neg" and ELEMENT.maximum(ELEMENT).expr.name == "max"
    )
    assert (ELEMENT / 2).expr.name == "div" and (RATE**RATE).expr.name == "pow"
