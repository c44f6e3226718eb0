"""Parameters of the functions that are generated, and their arguments handed on to the function as it is."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from opmill_guards import TailCall

from ..assumptions.called import NAME
from ..breaks.continuation import parameter_name

if TYPE_CHECKING:
    from .rebuild import Rebuilder


def parameters(code: types.CodeType) -> list[str]:
    """The names of a code's parameters, in the order in which it takes them."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return list(code.co_varnames[:count])


def signature_text(code: types.CodeType, loads: bool = False) -> str:
    """The parameter list of a code object, with ``_held`` in front where the guards load tensors; defaults are set on the function
    afterwards."""
    names = [parameter_name(n) for n in code.co_varnames]
    n, k = code.co_argcount, code.co_kwonlyargcount
    parts = names[:n]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    position = n + k
    if code.co_flags & inspect.CO_VARARGS:
        parts.append("*" + names[position])
        position += 1
    elif k:
        parts.append("*")
    parts += names[n : n + k]
    if loads:
        parts[:0] = ["_held"] if code.co_posonlyargcount else ["_held", "/"]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append("**" + names[position])
    return ", ".join(parts)


def call_plainly(fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
    """Calls a function as it is."""
    return fn(*args, **kwargs)


def passed_on(code: types.CodeType) -> str:
    """The arguments of a call as a tuple and a dictionary: text for a function with this signature."""
    names = [parameter_name(n) for n in code.co_varnames]
    n, k = code.co_argcount, code.co_kwonlyargcount
    positional, named = names[:n], [f"{name!r}: {parameter_name(name)}" for name in code.co_varnames[n : n + k]]
    position = n + k
    if code.co_flags & inspect.CO_VARARGS:
        positional.append("*" + names[position])
        position += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named.append("**" + names[position])
    return f"({''.join(each + ', ' for each in positional)}), {{{', '.join(named)}}}"


def as_it_is(r: Rebuilder, fn: types.FunctionType, shared: bool) -> tuple[list[str], str]:
    """The names of what a function was given, and the statement that leaves its captured form by calling it as it is. ``shared``: several
    functions have the form."""
    called = [NAME] if shared else []
    names = [*map(parameter_name, parameters(fn.__code__)), *called]
    again = [*(r.constants.name(each) for each in (TailCall, call_plainly)), *(called or [r.constants.name(fn)])]
    return names, f"return {again[0]}({again[1]}, {again[2]}, {passed_on(fn.__code__)})"


__all__ = ["as_it_is", "call_plainly", "parameters", "passed_on", "signature_text"]
