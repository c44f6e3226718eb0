"""Floats that change from call to call, computed with sizes that do: neither is assumed for the other's sake."""

import math

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

TERMS = [
    "s + n", "n + s", "s - n", "n - s", "s * n", "n * s", "s / n", "n / s", "s // n", "n % s", "s ** n", "n ** s", "max(s, n)", "min(n, s)",
    "s * n + s / m", "(s + n) * (m - s)", "math.sqrt(s * n)", "math.log(n) + s", "abs(s - n)", "divmod(n, s)[1]", "-s * n", "s * (n // 2)",
    "s * n ** 0.5", "s / math.sqrt(n)", "sum((s, n, m))", "float(n) + s", "round(s * n, 2)", "s * x.numel()", "s / len(x)",
    "n ** 0.5", "n ** -0.5 + s", "(n / 2) ** 0.5", "2.0 ** -n", "1 / (m ** 0.5 + n ** -2)", "(n * m) ** (1 / 3)", "n ** -1",
]  # fmt: skip
USES = [
    "x * ({0})", "x.add(1, alpha=({0}))", "torch.full_like(x, {0})", "({0}, x)", "x[: int({0}) % 3]", "x if ({0}) > 4 else -x", "(f'{{{0}:.3f}}', x)",
    "torch.where(x > ({0}), x, 0.0)", "x.clamp(max=({0}))", "(math.floor({0}), x)", "torch.nn.functional.threshold(x, {0}, 0.5)",
]  # fmt: skip
CALLS = [(3, 2, 0.5), (4, 2, 1.5), (5, 3, 2.5), (2, 4, 0.25), (7, 2, 3.0), (1, 1, 0.75)]


def outcome(call, given):
    n, m, s = given
    try:
        return call(torch.arange(float(n * m)).reshape(n, m), s)
    except (ArithmeticError, ValueError, RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


def program_of(value):
    names = {"torch": torch, "math": math}
    exec(f"def program(x, s):\n    n, m = x.shape\n    return {value}", names)
    return names["program"]


def agree(value, calls):
    program = program_of(value)
    compiled = capture(program, "eager")
    for given in calls:
        want, got = outcome(program, given), outcome(compiled, given)
        assert same(want, got), (value, given, want, got)


def graphs_of(term, calls, use="x * ({0})"):
    """How many graphs calls of a product with the term, or of another use of it, take."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(program_of(use.format(term)), backend)
    for given in calls:
        outcome(compiled, given)
    return len(graphs)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("term", TERMS)
def test_they_are_what_they_are(term, use):
    agree(use.format(term), CALLS)


@pytest.mark.parametrize("use", ["x[: int({0}) + 2]", "x[: round({0}) + 2]", "x[: math.ceil({0}) + 2]", "x if ({0}) > 0 else -x"])
@pytest.mark.parametrize("power", ["n ** 0.5", "m ** (1 / 3)", "(n / 2) ** 0.5", "(n + m) ** 0.5"])
def test_what_is_decided_by_powers_of_sizes_shares_a_graph(power, use):
    agree(use.format(power), CALLS)
    assert graphs_of("x", [(n, n + 1, 0.5) for n in range(9, 16)], use.format(power)) <= 2


@pytest.mark.parametrize("term", [term for term in TERMS if "max" not in term and "min" not in term])
def test_they_share_a_graph(term):
    assert graphs_of(term, [(n, n + 1, n / 2) for n in range(3, 9)]) <= 2


WHOLE = [
    "int(n * 0.7)", "math.floor(n * 0.7)", "math.ceil(n / 3)", "round(n * 0.4)", "int(n ** 0.5)", "math.isqrt(n)", "1 << n", "2 ** n", "n ** m",
    "n & 1", "n | m", "n ^ 5", "~n", "n.bit_length()", "math.gcd(n, m)", "2 ** math.ceil(math.log2(n))", "int(math.log(n) * 10)",
    "math.trunc(-n * 0.3)", "(n & -n) + 1", "min(int(n * 0.5), m)", "int(n * 0.9) // 2 * 2", "(n >> 1) + (m << 1)", "int(x.numel() * 0.25)",
]  # fmt: skip
USED = [
    "x * ({0})",
    "x[: {0}]",
    "x.new_ones(abs({0}) % 7, 2)",
    "({0}, x)",
    "x if ({0}) % 2 else -x",
    "x.repeat(1, abs({0}) % 5 + 1)",
    "x.roll({0})",
]


@pytest.mark.parametrize("term", WHOLE)
def test_ints_that_python_computes_of_sizes(term):
    for use in USED:
        agree(use.format(term), [(3, 2, 0), (4, 5, 0), (5, 3, 0), (8, 4, 0), (7, 2, 0), (1, 6, 0), (0, 3, 0), (12, 1, 0)])


@pytest.mark.parametrize("term", [term for term in WHOLE if term != "int(n ** 0.5)"])
def test_ints_that_python_computes_share_a_graph(term):
    assert graphs_of(term, [(n, n + 2, 0) for n in range(5, 14)]) <= 4  # results of 0 and 1 are assumed, as sizes are
