"""torch.SymInt over our environment against Python's integers."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_fake_tensors.symbols import Sizes, index_of, is_symbolic, sym_int

BINARY = {op.__name__: op for op in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, max, min)}
COMPARE = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
REAL = (
    lambda n: math.floor(n / 2), lambda n: math.ceil(n / 3), lambda n: int(n / 4), lambda n: math.floor(n * 0.5), lambda n: math.ceil(n * 1.75),
    lambda n: math.trunc(n * 3.0), lambda n: round(n / 2), lambda n: int(abs(n) ** 0.5), abs, operator.neg, operator.pos, lambda n: n**2, lambda n: n << 1,
    lambda n: n >> 1, lambda n: len(range(n)), lambda n: int(math.sqrt(abs(n))),
)  # fmt: skip


def program(draw: Any) -> Any:
    """Operations and questions on three numbers, and what they gave."""
    steps = [
        (draw(st.integers(0, 3)), draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(0, 99)))
        for _ in range(draw(st.integers(1, 6)))
    ]

    def run(numbers: list[Any]) -> list[Any]:
        known = [*numbers, 2, 7]
        for kind, a, b, which in steps:
            x, y = known[a % len(known)], known[b % len(known)]
            try:
                if kind == 0:
                    known.append(known[0] + 1 if COMPARE[which % len(COMPARE)](x, y) else known[1])
                elif kind == 1:
                    known.append(REAL[which % len(REAL)](x))
                else:
                    known.append([*BINARY.values()][which % len(BINARY)](x, y))
            except ZeroDivisionError:
                known.append(3)
        return known

    return run


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_programs_over_sizes(data: Any) -> None:
    run, sizes = program(data.draw), Sizes()
    symbols = [sizes.new(data.draw(st.integers(2, 9))) for _ in range(3)]
    got = run([sym_int(sizes, s) for s in symbols])
    for _ in range(8):
        values = {f"s{k}": data.draw(st.integers(2, 9)) for k in range(3)}
        values |= {name: sizes.simplify(s).evaluate(values) for name, s in zip(values, symbols, strict=True)}
        if sizes.holds(values):
            assert [index_of(n).evaluate(values) for n in got] == run([values[f"s{k}"] for k in range(3)])


def test_torch_computes_with_them() -> None:
    sizes = Sizes()
    n = sym_int(sizes, sizes.new(5, origin="x.size(0)"))
    x = torch.empty_strided((n, 3), (3, 1), device="meta")
    assert is_symbolic(x.shape[0]) and str(x.numel()) == "3*s0" and x.is_contiguous() and not x.t().is_contiguous()
    assert not sizes.decisions
    assert (
        x.shape[0] * 2 - x.shape[0] == n
        and isinstance(n + 1, torch.SymInt)
        and type(n - n) is int
        and (n > 1) is True
        and type(n > 9) is torch.SymBool
    )
    assert not sizes.decisions
    assert int(n) == 5 and [str(d.relation) for d in sizes.decisions] == ["s0 == 5"]


def test_division_by_nothing() -> None:
    sizes = Sizes()
    n, m = (sym_int(sizes, sizes.new(5)) for _ in range(2))
    with pytest.raises(ZeroDivisionError):
        n // (m - 5)
    assert not sizes.holds({"s0": 5, "s1": 6})


def test_floats_of_sizes() -> None:
    sizes = Sizes()
    n = sym_int(sizes, sizes.new(6))
    half = n / 4
    assert isinstance(half, torch.SymFloat) and half.node.hint == 1.5 and math.floor(half) == n // 4 and not sizes.decisions
    assert float((n * 2.0).node.hint) == 12.0 and (n**-0.5).node.hint == 6**-0.5 and not sizes.decisions
    assert bool(half < 2) and [str(d.relation) for d in sizes.decisions] == ["7 >= s0"]


def test_torch_finds_no_symbols_of_its_own_in_floats():
    """DTensor looks for such before it compares costs, and takes another layout where the look fails."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    sizes = Sizes()
    n = sym_int(sizes, sizes.new(6))
    assert not free_unbacked_symbols(n * 0.5 + 1.0) and not free_unbacked_symbols(n) and not sizes.decisions
