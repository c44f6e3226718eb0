"""Which nests are matrix products, by their form."""

import pytest

from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.dots.match import dot_of

TEXT = """kernel k()
  in a: {t}[{na}]
  in b: {t}[4096]
  {role} c: {out}[4096]
nest{axes}
  phase k<{depth}
    {op} s: float32 = mul(cast.float32({a}), cast.float32({b}))
  phase
    set c[64*i + j] = {store}
"""
PLAIN = {
    "t": "bfloat16", "out": "bfloat16", "na": 4096, "axes": " i<64 j<64", "depth": 64, "op": "sum", "a": "a[64*i + k]", "b": "b[64*k + j]",
    "store": "cast.bfloat16(s)", "role": "out",
}  # fmt: skip


def product(**changes):
    [nest] = parse(TEXT.format(**(PLAIN | changes))).nests
    return dot_of(nest, {})


def names(axes):
    return "".join(a.name for a in axes)


def test_rows_and_columns_are_what_operands_lack():
    found = product()
    assert (names(found.batch), names(found.rows), names(found.columns), names(found.inner)) == ("", "i", "j", "k")
    assert (found.a.buffer, found.b.buffer, found.result) == ("a", "b", "s")
    turned = product(a="b[64*k + j]", b="a[64*i + k]")
    assert (turned.a.buffer, turned.b.buffer) == ("a", "b")


def test_what_both_have_is_a_batch():
    found = product(axes=" h<4 i<16 j<64", a="a[1024*h + 64*i + k]", b="b[64*k + j + h]")
    assert (names(found.batch), names(found.rows), names(found.columns)) == ("h", "i", "j")


@pytest.mark.parametrize(
    "changes",
    [
        {"op": "max"},
        {"depth": 8},  # too small for a tensor core
        {"a": "a[64*i + j]"},  # does not go along what is summed
        {"a": "a[64*i + k + 0*j]", "b": "b[64*k]"},  # nothing goes along the columns
        {"b": "c[64*k + j]", "role": "inout"},  # reads what it writes
    ],
    ids=["no sum", "short", "not along the sum", "no columns", "its own result"],
)
def test_what_is_no_product(changes):
    assert product(**changes) is None


@pytest.mark.parametrize(("dtype", "found"), [("float32", True), ("float64", False), ("int64", False)])
def test_sums_of_float32_are_products_too(dtype, found):
    text = TEXT.format(**(PLAIN | {"t": dtype, "out": dtype, "store": "s"})).replace("cast.float32(", "neg(")
    text = text.replace("sum s: float32", f"sum s: {dtype}")
    product = dot_of(parse(text).nests[0], {})
    assert (product is not None and product.dtype == "float32") is found
