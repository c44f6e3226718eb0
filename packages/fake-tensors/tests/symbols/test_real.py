"""Floats over sizes, against Python."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import index
from opmill_fake_tensors.symbols.real import FUNCTIONS, Real, fraction, rounded_down, rounded_up

N = index("n")
FLOAT = Real("float", (N,))
QUOTIENTS = {
    "n": (FLOAT, lambda n: float(n)),
    "n / 3": (Real("truediv", (N, index(3))), lambda n: n / 3),
    "float(n) / 7.0": (Real("truediv", (FLOAT, 7.0)), lambda n: float(n) / 7.0),
    "n * 0.75": (Real("mul", (FLOAT, 0.75)), lambda n: n * 0.75),
    "-0.125 * n": (Real("mul", (-0.125, FLOAT)), lambda n: -0.125 * n),
}


@pytest.mark.parametrize("name", QUOTIENTS)
@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.one_of(st.integers(0, 50), st.integers(0, 1 << 40)))
def test_rounding_a_quotient_is_division_of_integers(name, n):
    real, plain = QUOTIENTS[name]
    assert real.evaluate({"n": n}) == plain(n)
    assert rounded_down(real).evaluate({"n": n}) == math.floor(plain(n)) and rounded_up(real).evaluate({"n": n}) == math.ceil(plain(n))


@pytest.mark.parametrize(
    "real",
    [
        Real("mul", (FLOAT, 0.1)),  # no number of few bits: a product may be rounded over an integer
        Real("mul", (FLOAT, math.inf)),
        Real("truediv", (FLOAT, 0.5)),
        Real("truediv", (FLOAT, -2.0)),
        Real("truediv", (N, index("m"))),
        Real("truediv", (N, index(0))),
        Real("sqrt", (FLOAT,)),
    ],
    ids=str,
)
def test_what_is_no_exact_quotient_is_not_taken_for_one(real):
    assert fraction(real) is None and rounded_down(real) is None and rounded_up(real) is None


def test_functions_are_pythons():
    half = Real("pow", (Real("add", (FLOAT, index("m"))), 0.5))
    assert half.evaluate({"n": 9, "m": 16}) == 5.0 and half.symbols == {"n", "m"} and str(half) == "pow(add(float(n), m), 0.5)"
    assert FUNCTIONS["floordiv"](-7, 2) == -4 and FUNCTIONS["mod"](-7.5, 2) == 0.5
