"""A constant."""

import math

import pytest

torch = pytest.importorskip("torch")
from opmill_guards import GuardSet  # noqa: E402
from opmill_guards.errors import GuardError  # noqa: E402
from opmill_guards.guard import Equals  # noqa: E402
from opmill_guards.source import Local  # noqa: E402

N = Local("n")


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ((1, (2.0, "x")), (1, (2.0, "y"))),
        (frozenset({1, 2}), frozenset({1})),
        (torch.float32, torch.float64),
        (2j, 2j + 1),
    ],
    ids=repr,
)
def test_type_and_value_count(says, value, other):
    assert says(Equals(N, value), n=value) == ""
    assert says(Equals(N, value), n=other) != ""
    assert says(Equals(N, other), n=value) != ""


def test_floats_are_compared_by_their_bits(says):
    assert says(Equals(N, math.nan), n=math.nan) == ""
    assert says(Equals(N, 0.0), n=-0.0) == "n: expected 0.0, found -0.0"


def test_the_types_are_told_where_they_differ(says):
    assert says(Equals(N, 1), n=True) == "n: expected 1 (int), found True (bool)"


def test_only_constants():
    with pytest.raises(GuardError, match=r"\[GU001\] \[1\] is no constant"):
        GuardSet([Equals(N, [1])])
