"""What is drawn is kept as truths."""

import pytest

from opmill_graph_ir.capture.masks import keep_as_truths
from opmill_graph_ir.capture.text import parse_graph, show_graph


def kept(text):
    graph = parse_graph(text)
    keep_as_truths(graph)
    return show_graph(graph).strip()


def test_readers_of_what_is_drawn_read_truths():
    assert kept("""
input x: float32[8]
a: float32[8] = aten::bernoulli.p(x, 0.5)
b: float32[8] = aten::div.Scalar(a, 0.5)
y: float32[8] = aten::mul.Tensor(x, b)
return y""") == (
        """
input x: float32[8]
a: float32[8] = aten::bernoulli.p(x, 0.5)
a_truth: bool[8] = aten::_to_copy(a, dtype=torch.bool)
a_back: float32[8] = aten::_to_copy(a_truth, dtype=torch.float32)
b: float32[8] = aten::div.Scalar(a_back, 0.5)
y: float32[8] = aten::mul.Tensor(x, b)
return y""".strip()
    )


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_what_is_no_larger_than_a_truth_stays(dtype):
    text = f"""
input x: {dtype}[8]
a: {dtype}[8] = aten::bernoulli.p(x, 0.5)
y: {dtype}[8] = aten::mul.Tensor(x, a)
return y""".strip()
    assert kept(text) == text


def test_what_leaves_is_what_was_drawn():
    assert kept("""
input x: float32[8]
a: float32[8] = aten::bernoulli.p(x, 0.5)
return a""").endswith("return a")
