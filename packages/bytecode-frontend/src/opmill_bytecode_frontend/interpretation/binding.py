"""Arguments to parameters, with the errors that Python has for what does not fit."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

from ..values.base import Lazy, Machine, Value
from ..values.constant import ConstantValue
from ..values.functions import FunctionValue
from ..values.mapping import DictValue
from ..values.sequence import TupleValue


def bind(vm: Machine, fn: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """The parameters of a call by name; raises the program's TypeError, that for keywords first, as Python does."""
    code = fn.code
    n, names = code.co_argcount, code.co_varnames
    if not kwargs and len(args) == n and not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return dict(zip(names, args))
    out: dict[str, Value] = dict(zip(names[:n], args))
    position = n + code.co_kwonlyargcount
    takes_more = bool(code.co_flags & inspect.CO_VARARGS)
    if takes_more:
        out[names[position]] = TupleValue(list(args[n:]))
        position += 1
    accepted = names[code.co_posonlyargcount : n + code.co_kwonlyargcount]
    extra: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name in accepted:
            if name in out:
                vm.throw(TypeError, f"{fn.qualname}() got multiple values for argument {name!r}")
            out[name] = value
        elif code.co_flags & inspect.CO_VARKEYWORDS:
            extra[name] = value
        else:
            not_accepted(vm, fn, args, kwargs)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        out[names[position]] = DictValue({k: (ConstantValue(k), v) for k, v in extra.items()})
    if len(args) > n and not takes_more:
        too_many(vm, fn, len(args), sum(name in out for name in names[n : n + code.co_kwonlyargcount]))
    first = n - len(fn.defaults)
    defaults = {names[i]: fn.defaults[i - first] for i in range(max(0, first), n)}
    fill(vm, fn, out, names[:n], defaults, "positional")
    fill(vm, fn, out, names[n : n + code.co_kwonlyargcount], fn.keyword_defaults(), "keyword-only")
    return out


def bind_real(fn: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, Any]:
    """The real arguments by parameter name, as the code takes them, whatever signature the function shows. Raises TypeError where the call
    itself would."""
    code = fn.__code__
    n, names, end = code.co_argcount, code.co_varnames, code.co_argcount + code.co_kwonlyargcount
    takes_more, takes_named = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    given: dict[str, Any] = dict(zip(names[:n], args))
    others: dict[str, object] = {}
    for name, value in kwargs.items():
        if name in names[code.co_posonlyargcount : end]:
            if name in given:
                raise TypeError(name)
            given[name] = value
        else:
            others[name] = value
    if (len(args) > n and not takes_more) or (others and not takes_named):
        raise TypeError(fn.__qualname__)
    given = {**dict(zip(reversed(names[:n]), reversed(fn.__defaults__ or ()))), **(fn.__kwdefaults__ or {}), **given}
    try:
        bound: dict[str, Any] = {name: given[name] for name in names[:n]}
        if takes_more:
            bound[names[end]] = args[n:]
        bound |= {name: given[name] for name in names[n:end]}
    except KeyError as missing:
        raise TypeError(fn.__qualname__) from missing
    if takes_named:
        bound[names[end + bool(takes_more)]] = others
    return bound


def not_accepted(vm: Machine, fn: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Python itself says it, which from 3.13 on guesses the name that was meant: the code does not run where its arguments do not fit."""
    like = FunctionType(fn.code, {}, closure=tuple(CellType() for _ in fn.code.co_freevars))
    like.__qualname__ = fn.qualname
    try:
        like(*[None] * len(args), **dict.fromkeys(kwargs))
    except TypeError as exc:
        vm.throw(TypeError, str(exc))
    raise AssertionError(f"{fn.qualname} takes {list(kwargs)}")


def too_many(vm: Machine, fn: FunctionValue, given: int, by_keyword: int) -> None:
    """Raises what Python says of more positional arguments than there are parameters."""
    n, few = fn.code.co_argcount, fn.code.co_argcount - len(fn.defaults)
    takes = f"{n} positional argument{'s' * (n != 1)}" if few == n else f"from {few} to {n} positional arguments"
    named = (
        f" positional argument{'s' * (given != 1)} (and {by_keyword} keyword-only argument{'s' * (by_keyword != 1)})" if by_keyword else ""
    )
    vm.throw(TypeError, f"{fn.qualname}() takes {takes} but {given}{named} {'was' if given == 1 and not by_keyword else 'were'} given")


def fill(vm: Machine, fn: FunctionValue, out: dict[str, Any], names: Sequence[str], defaults: Mapping[str, object], kind: str) -> None:
    """What was not given has its default."""
    missing = [repr(name) for name in names if name not in out and name not in defaults]
    if missing:
        listed = " and ".join(missing) if len(missing) < 3 else f"{', '.join(missing[:-1])}, and {missing[-1]}"
        vm.throw(TypeError, f"{fn.qualname}() missing {len(missing)} required {kind} argument{'s' * (len(missing) > 1)}: {listed}")
    for name in names:
        if name not in out:
            default = defaults[name]
            out[name] = vm.wrap(default.obj, default.source) if type(default) is Lazy else default


__all__ = ["bind", "bind_real"]
