"""What the generator takes, and why it leaves the rest."""

import pytest

from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_cpp.claim import refusal

TEXT = "kernel k()\n  in a: {}[8]\n  out b: {}[8]\nnest\n  phase j<8\n    {}\n"


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
        (kernel("scan.ascending r, q: float32 = a[j]\n    set b[j] = r"), "rows in order"),
        (kernel("scan.sum r: bool = a[j]\n    set b[j] = r", "bool"), "scan sum in bool"),
        (kernel("scan.sum r: int64 = a[j]\n    set b[j] = r", "int64"), None),
        (kernel("scan.logaddexp r: int64 = a[j]\n    set b[j] = r", "int64"), "scan logaddexp in int64"),
        (kernel("sum r: float16 = a[j]\n  phase\n    set b[0] = r", "float16"), "reduction in float16"),
    ],
    ids=lambda v: str(v) if not hasattr(v, "nests") else "",
)
def test_refusals(made, why):
    assert refusal(made) == why


def test_names_are_those_of_c():
    text = TEXT.format("float32", "float32", "set b[j] = exp(a[j])")
    assert refusal(parse(text.replace("b", "größe"))) == "name 'größe'"


def test_most_cases_are_taken():
    left = {case.name: why for case in cases() if (why := refusal(case.kernel))}
    assert all("order" in why or "primitive" in why or "attention" in why or "element" in why or "scan" in why for why in left.values())
    assert len(left) < len(list(cases())) / 4
