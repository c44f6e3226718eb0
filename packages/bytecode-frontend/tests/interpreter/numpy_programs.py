"""Programs of NumPy in two tables, and what their arrays are made by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

np = pytest.importorskip("numpy", minversion="2.0")

Maker = Callable[[Any], Any]
Program = Callable[..., Any]
PROGRAMS: dict[str, tuple[Program, tuple[Maker, ...]]] = {}
ENDED: dict[str, tuple[Program, tuple[Maker, ...]]] = {}


def floats(*shape: int) -> Maker:
    return lambda rng: rng.standard_normal(shape)


def integers(*shape: int) -> Maker:
    return lambda rng: rng.integers(-5, 6, shape)


def counts(*shape: int) -> Maker:
    return lambda rng: rng.integers(0, 6, shape)


def pixels(*shape: int) -> Maker:
    return lambda rng: rng.integers(0, 256, shape).astype(np.uint8)


def truths(*shape: int) -> Maker:
    return lambda rng: rng.random(shape) > 0.5


def rising(*shape: int) -> Maker:
    return lambda rng: np.sort(rng.standard_normal(shape))


def program(*make: Maker, whole: bool = True) -> Callable[[Program], Program]:
    """The decorated function is a program of such arrays."""

    def add(function: Program) -> Program:
        (PROGRAMS if whole else ENDED)[function.__name__] = function, make
        return function

    return add
