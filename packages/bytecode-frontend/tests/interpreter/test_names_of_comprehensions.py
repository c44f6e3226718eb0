"""Comprehensions whose variables are named like a variable that nested functions share: from Python 3.12 on they run in the same frame, in
the same slot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def cell_outside(x: Any, items: Any, k: int) -> Any:
    for item in items:
        x = x + item
    if k == 1:
        print("before")
    m = [item for item in items if item is not None and (k != 2 or print("inside") is None)]
    if k == 3:
        print("after")
    for item in m:
        if k == 4:
            print("in the loop")
        if not any(item == other for other in items):
            raise AssertionError(item)
    return x * 2, m, item


def cell_inside(x: Any, items: Any, k: int) -> Any:
    item = 5
    if k == 1:
        print("before")
    m = [lambda: item for item in items if k != 2 or print("inside") is None]
    if k == 3:
        print("after")
    y = x * item
    n = [lambda: item for item in items]
    return y, item, [get() for get in m + n]


def cells_on_both_sides(x: Any, items: Any, k: int) -> Any:
    item = 5
    get = lambda: item  # noqa: E731
    m = [lambda: item for item in items if k != 2 or print("inside") is None]
    if k == 3:
        print("after")
    y = x * item
    item += 1
    n = [item for item in items]
    if k == 4:
        print("at the end")
    return y, item, get(), [each() for each in m], n


def of_an_outer_function(x: Any, items: Any, k: int) -> Any:
    def inner() -> Any:
        return [item for item in items if k != 2 or print("inside") is None], item

    item = 7
    if k == 1:
        print("before")
    return x * item, inner()


def left_by_an_exception(x: Any, items: Any, k: int) -> Any:
    try:
        for item in items:
            get = lambda: item  # noqa: E731
            m = [1 / (item - 2 * (k == 3)) for item in items]
    except ZeroDivisionError:
        print("divided")
    if k == 1:
        print("after")
    return x * item, get(), k == 3 or m


@pytest.mark.parametrize(
    "fn", [cell_outside, cell_inside, cells_on_both_sides, of_an_outer_function, left_by_an_exception], ids=lambda fn: fn.__name__
)
def test_each_variable_is_the_one_that_is_meant(fn: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2)
    for k in range(5):
        want = str(fn(x, (1, 2, 3), k)), capsys.readouterr().out
        for _ in range(2):
            assert (str(capture(fn)(x, (1, 2, 3), k)), capsys.readouterr().out) == want
    capture(fn, fullgraph=True)(x, (1, 2, 3), 0)
