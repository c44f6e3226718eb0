"""Which loops are products."""

import pytest

from opmill_graph_ir.schedule.product import is_product, is_tiled, reads_again
from opmill_graph_ir.schedule.text import parse_program

HEAD = """
input x: {0}[64, 32]
input w: {0}[32, 48]
input v: {0}[32]
input k: {0}[3]
temporary y: {0}[64, 48]
temporary z: {0}[64]
"""


def loop(text, dtype="float32"):
    return parse_program(HEAD.format(dtype) + text + "\nreturn y, z").loop(0)


MATRICES = "loop i<64 j<48 over l<32\n  sum s: float32 = mul({}, {})\n  set y[i, j] = s"
VECTOR = "loop i<64 over l<32\n  sum s: float32 = mul({}, {})\n  set z[i] = s"


@pytest.mark.parametrize(
    ("text", "dtype", "found"),
    [
        (MATRICES.format("x[i, l]", "w[l, j]"), "float32", True),
        (MATRICES.format("x[i, l]", "exp(w[l, j])"), "float32", False),  # would be computed for each i
        (MATRICES.format("x[i, l]", "x[i, l]"), "float32", False),  # nothing goes by j
        (VECTOR.format("x[i, l]", "v[l]"), "float32", False),  # each element of x is used once
        ("loop i<62 over l<3\n  sum s: float32 = mul(v[i + l], k[l])\n  set z[i] = s", "float32", True),  # a window moves over v
        (MATRICES.format("x[i, l]", "w[l, j]").replace("sum s", "max s"), "float32", False),
        (MATRICES.format("x[i, l]", "w[l, j]").replace("mul", "add"), "float32", False),
    ],
)
def test_products_use_each_element_at_several_points(text, dtype, found):
    assert is_product(loop(text, dtype)) is found


def test_operands_of_half_precision_may_be_computed():
    text = MATRICES.format("cast.float32(x[i, l])", "cast.float32({})").replace("= s", "= cast.bfloat16(s)")
    assert is_product(loop(text.format("w[l, j]"), "bfloat16"))
    assert is_product(loop(text.format("neg(w[l, j])"), "bfloat16"))
    assert not is_product(loop(text.format("bfloat16(1.0)"), "bfloat16"))


def test_the_vector_of_a_matrix_is_read_again_and_the_matrix_is_not():
    found = loop(VECTOR.format("x[i, l]", "v[l]"))
    assert reads_again(found, "v") and not reads_again(found, "x")


@pytest.mark.parametrize(("rows", "again"), [(1024, True), (1023, False)])
def test_of_several_vectors_an_element_counts_from_a_thousand_uses_on(rows, again):
    text = f"""input x: float32[4, {rows}, 32]
input w: float32[4, 32]
temporary y: float32[4, {rows}]
loop b<4 i<{rows} over l<32
  sum s: float32 = mul(x[b, i, l], w[b, l])
  set y[b, i] = s
return y"""
    found = parse_program(text).loop(0)
    assert reads_again(found, "w") is again and not reads_again(found, "x")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", True),
        ("w[l, j]", "exp(w[l, j])", True),
        ("w[l, j]", "float32.at(j + l)", True),  # a value of the place
        ("j<48", "j<8", False),  # half of the columns would be filled up
        ("l<32", "l<8", False),
        ("w[l, j]", "x[i, l]", False),  # no columns
        ("i<64 j<48", "i<64 j<48 h<8", False),  # the same sum again and again
        ("sum s", "max s", False),
        (" on cuda:0", "", False),
    ],
)
def test_units_for_matrices_take_computed_values_of_float32(old, new, found):
    text = HEAD.format("float32").replace("[64, 48]", "[64, 48] on cuda:0") + MATRICES.format("x[i, l]", "w[l, j]") + "\nreturn y, z"
    program = parse_program(text.replace(old, new) if old else text)
    assert is_tiled(program.loop(0), program) is found
