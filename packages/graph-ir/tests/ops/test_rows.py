"""Which family lowers an operator is said once."""

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.ops.rows import Rows, joined


def _family(*names: str) -> Rows:
    rows = Rows()
    rows.lowers(*names)(lambda ctx, node: NotImplemented)
    return rows


def test_families_are_joined():
    first, second = _family("relu", "neg"), _family("exp")
    assert joined({"first": first, "second": second}) == first | second


def test_an_operator_in_two_families_is_an_error():
    with pytest.raises(GraphError, match="GI041: aten::neg has rows in first and in second"):
        joined({"first": _family("relu", "neg"), "second": _family("neg")})
