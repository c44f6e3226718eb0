"""A relation between sizes, as a Python expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..guard import SizeRelation
from ..source import Source
from .kind import Builder, Kind, Read

_NAMES = {
    "Max": max,
    "Min": min,
    "max": max,
    "min": min,
    "abs": abs,
    "math": math,
    "floor": math.floor,
    "ceiling": math.ceil,
    "ceil": math.ceil,
}


@lru_cache(maxsize=1024)
def _function(expression: str, count: int) -> Callable[..., bool]:
    parameters = ", ".join(f"s{i}" for i in range(count))
    function: Callable[..., bool] = eval(f"lambda {parameters}: ({expression})", {"__builtins__": {}, **_NAMES})
    return function


def _sources(guard: SizeRelation) -> tuple[Source, ...]:
    return guard.sources


def _check(guard: SizeRelation, read: Read) -> bool:
    values: list[Any] = [read(source) for source in guard.sources]
    return bool(_function(guard.expression, len(values))(*values))


def _compile(guard: SizeRelation, into: Builder) -> None:
    into.relation("call", _function(guard.expression, len(guard.sources)), guard.sources)


def _describe(guard: SizeRelation, read: Read) -> tuple[str, str]:
    return guard.expression, ", ".join(f"s{i} = {source} = {read(source)}" for i, source in enumerate(guard.sources))


KIND = Kind(SizeRelation, 30, _check, _compile, _describe, _sources)
