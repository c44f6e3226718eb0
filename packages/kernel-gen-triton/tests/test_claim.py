"""What the generator takes, and why it leaves the rest."""

import pytest

from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.claim import refusal

TEXT = "kernel k()\n  in a: {}[8]\n  inout b: {}[8]\nnest\n  phase j<8\n    {}\n"


def kernel(statement, of="float32", to=None):
    return parse(TEXT.format(of, to or of, statement))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (kernel("set b[j] = exp(a[j])"), None),
        (kernel("set b[j] = a[j]", "float8_e5m2"), None),
        (kernel("set b[j] = a[j]", "complex64"), "element type complex64"),
        (kernel("set b[j] = bitcast.int32(a[j])", to="int32"), None),
        (kernel("set b[j] = bitcast.int64(a[j])", to="int64"), "bitcast from float32 to int64"),
        (kernel("scan.ascending r, q: float32 = a[j]\n    set b[j] = r"), None),
        (kernel("set b[j] = bitand(a[j], a[j])"), "primitive bitand on float32"),
    ],
    ids=["function", "bytes", "complex", "bits", "bits of another size", "rows in order", "bits of floats"],
)
def test_refusals(made, why):
    assert refusal(made) == why


def test_names_are_python_s():
    assert refusal(parse(TEXT.format("float32", "float32", "set b[j] = exp(a[j])").replace("b", "größe"))) == "name 'größe'"


def test_most_cases_are_taken():
    left = [case.name for case in cases() if refusal(case.kernel) is not None]
    assert len(left) < len(list(cases())) / 10, left
