"""Defaults of the parameters of functions that share generated code: each call takes those of the function that is called."""

from __future__ import annotations

import types
from collections.abc import Iterator

from ..assumptions.called import LEFT_OUT, NAME
from ..breaks.continuation import parameter_name
from .sources import Constants


def filling(fn: types.FunctionType, constants: Constants) -> Iterator[str]:
    """Statements that give parameters which were left out the defaults of the function that is called."""
    code, given = fn.__code__, len(fn.__defaults__ or ())
    positional = enumerate(code.co_varnames[code.co_argcount - given : code.co_argcount])
    found = [*((name, f"__defaults__[{i}]") for i, name in positional), *((k, f"__kwdefaults__[{k!r}]") for k in fn.__kwdefaults__ or ())]
    for name, default in found:
        yield f"if {parameter_name(name)} is {constants.name(LEFT_OUT)}: {parameter_name(name)} = {NAME}.{default}"


__all__ = ["filling"]
