"""Copies that copy nothing, equal operators, what nobody reads."""

from opmill_graph_ir.capture.clean import clean
from opmill_graph_ir.capture.text import parse_graph, show_graph


def cleaned(text):
    return show_graph(clean(parse_graph(text))).strip()


def test_equal_operators_run_once():
    assert cleaned("""
input x: float32[8]
a: float32[8] = aten::exp(x)
b: float32[8] = aten::exp(x)
y: float32[8] = aten::add.Tensor(a, b)
return y""") == (
        """
input x: float32[8]
a: float32[8] = aten::exp(x)
y: float32[8] = aten::add.Tensor(a, a)
return y""".strip()
    )


def test_those_of_other_numbers_do_not_compute_the_same():
    text = """
input x: float32[8]
a: float32[8] = aten::mul.Tensor(x, 1)
b: float32[8] = aten::mul.Tensor(x, 1.0)
c: float32[8] = aten::mul.Tensor(x, -0.0)
d: float32[8] = aten::mul.Tensor(x, 0.0)
y: float32[8] = aten::stack([a, b, c, d])
return y""".strip()
    assert cleaned(text) == text


def test_tensors_that_leave_stay_two():
    text = """
input x: float32[8]
a: float32[8] = aten::exp(x)
b: float32[8] = aten::exp(x)
return a, b""".strip()
    assert cleaned(text) == text


def test_other_names_of_a_value_are_the_value():
    assert cleaned("""
input x: float32[8]
a: float32[8] = aten::detach(x)
b: float32[8] = aten::alias(a)
y: float32[8] = aten::exp(b)
return y""") == (
        """
input x: float32[8]
y: float32[8] = aten::exp(x)
return y""".strip()
    )


def test_what_nobody_reads_is_gone_but_for_what_draws():
    assert cleaned("""
input x: float32[8]
a: float32[8] = aten::exp(x)
b: float32[8] = aten::sin(a)
c: float32[8] = aten::bernoulli.p(x, 0.5)
y: float32[8] = aten::neg(x)
return y""") == (
        """
input x: float32[8]
c: float32[8] = aten::bernoulli.p(x, 0.5)
y: float32[8] = aten::neg(x)
return y""".strip()
    )


def test_draws_are_never_one():
    text = """
input x: float32[8]
a: float32[8] = aten::bernoulli.p(x, 0.5)
b: float32[8] = aten::bernoulli.p(x, 0.5)
y: float32[8] = aten::add.Tensor(a, b)
return y""".strip()
    assert cleaned(text) == text
