"""What a norm returned is computed again from its input and statistics, in the backward that reads both."""

from joint_text import joint_of, lines, shown

from opmill_graph_ir.capture.partition import partition

NORM = """
    input x: {dtype}[8, 4]
    input w: {dtype}[4]
    input b: {dtype}[4]
    input g: {dtype}[8, 4]
    n: {dtype}[8, 4], m: {stats}[8, 1], r: {stats}[8, 1] = aten::native_layer_norm(x, [4], w, b, 1e-05)
    y: {dtype}[8, 4] = aten::sin(n)
    c: {dtype}[8, 4] = aten::cos(n)   # backward of sin
    d: {dtype}[8, 4] = aten::mul.Tensor(g, c)   # backward of sin
    e: {dtype}[8, 4], _, _ = aten::native_layer_norm_backward(d, x, [4], m, r, w, b, [True, False, False])   # backward of layer_norm
    return y, e"""


def test_from_the_input_and_two_numbers_a_row():
    halves = partition(joint_of(NORM.format(dtype="float32", stats="float32")))
    assert "n" not in halves.saved and {"x", "m", "r", "w", "b"} == set(halves.saved)
    assert lines("""
        n_again0: float32[8, 4] = aten::sub.Tensor(x, m)
        n_again1: float32[8, 4] = aten::mul.Tensor(n_again0, r)
        n_again2: float32[8, 4] = aten::mul.Tensor(n_again1, w)
        n: float32[8, 4] = aten::add.Tensor(n_again2, b)
        c: float32[8, 4] = aten::cos(n)   # backward of sin""") in shown(halves.backward)


def test_half_precision_is_computed_wide_and_rounded_once():
    halves = partition(joint_of(NORM.format(dtype="bfloat16", stats="float32")))
    found = shown(halves.backward)
    assert "n_again0: float32[8, 4] = aten::_to_copy(x, dtype=torch.float32)" in found
    assert "n: bfloat16[8, 4] = aten::_to_copy(n_again4, dtype=torch.bfloat16)" in found


def test_kept_where_statistics_are_rounded_or_bits_matter():
    rounded = partition(joint_of(NORM.format(dtype="bfloat16", stats="bfloat16")))
    exact = partition(joint_of(NORM.format(dtype="float32", stats="float32")), exact=True)
    assert "n" in rounded.saved and "n" in exact.saved
