"""What the origin of a step says: operators and lines, each once, in their order."""

import pytest

from opmill.origins import lines_in, operators_in

CASES = {
    "one": (["add model.py:3"], "add", ("model.py:3",)),
    "overloads": (["add.Tensor model.py:3; mul.Scalar model.py:4"], "add+mul", ("model.py:3", "model.py:4")),
    "each once": (["add a.py:1; add a.py:1", "add a.py:2"], "add", ("a.py:1", "a.py:2")),
    "a gradient": (["mul_backward a.py:1; add backward"], "mul_backward+add", ("a.py:1", "backward")),
    "no line": (["write x1"], "write", ()),
    "nothing": ([], "", ()),
    "empty": (["", "; "], "", ()),
}


@pytest.mark.parametrize("name", CASES)
def test_read(name):
    origins, operators, lines = CASES[name]
    assert operators_in(origins) == operators and lines_in(origins) == lines
