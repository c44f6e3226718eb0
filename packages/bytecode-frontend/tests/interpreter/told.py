"""Programs that tell in ``LOG`` what they run, as text: what they give, raise and tell, captured and plain."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import itertools
import operator
import sys
import traceback
import types
import warnings
import weakref
from typing import Any, Callable

import torch

from opmill_bytecode_frontend import capture

LOG: list[Any] = []


def B(x: Any) -> Any:
    """Breaks the graph."""
    return x + 0.5


B._torchdynamo_disable = True  # type: ignore[attr-defined]


def disabled(function: Any) -> Any:
    function._torchdynamo_disable = True
    return function


def places(error: BaseException) -> list[tuple[str, int]]:
    """The names of functions in a traceback, and the lines counted from their first."""
    found, step = [], error.__traceback__
    while step is not None:
        found.append((step.tb_frame.f_code.co_name, step.tb_lineno - step.tb_frame.f_code.co_firstlineno))
        step = step.tb_next
    return found


def programs(source: str) -> dict[str, Callable[[Any], Any]]:
    """The functions of ``x`` that a text defines, by name."""
    used = (collections, contextlib, enum, functools, gc, itertools, operator, sys, torch, traceback, types, warnings, weakref)
    namespace: dict[str, Any] = {"__name__": "programs", "LOG": LOG, "B": B, "disabled": disabled, "places": places}
    namespace |= {module.__name__: module for module in used}
    exec(compile(source, "<programs>", "exec", dont_inherit=True), namespace)
    made = [value for value in namespace.values() if type(value) is types.FunctionType and value.__module__ == "programs"]
    return {f.__name__: f for f in made if f.__code__.co_varnames[:1] == ("x",) and not f.__name__.startswith("inner")}


def outcome(function: Any) -> Any:
    LOG.clear()
    try:
        result = str(function(torch.ones(2)))
    except Exception as error:
        result = type(error).__name__, str(error), getattr(error, "__notes__", None)
    return result, list(LOG)


def differs(program: Any, times: int = 3, alone: bool = False) -> None:
    """Asserts that the captured program does what the plain one does, at the first call and at others. ``alone``: what calls left behind in
    cycles is gone before the next begins."""
    gc.collect() if alone else None
    want = outcome(program)
    compiled = capture(program, "eager")
    for _ in range(times):
        gc.collect() if alone else None
        got = outcome(compiled)
        assert got == want, f"\nwant {want}\ngot  {got}"
