"""What a program tells others on the way (print, warnings, log records): said after the graph has run, in order, from where the program stands."""

from __future__ import annotations

import builtins
import functools
import logging
import sys
import warnings
from typing import Any

from ..effects import log_at, warn_at
from ..values.base import NotConstant, Value
from ..values.classes import ClassValue
from ..values.constant import ConstantValue
from ..values.functions import BuiltinValue
from ..values.mapping import DictValue, SetValue
from ..values.sequence import SequenceValue, TupleValue
from .registry import handles, named

NONE = ConstantValue(None)


def said(vm: Any, value: Value) -> Value:
    """A value as it is said: text as of now, since the object may be changed before the words come out."""
    return value if isinstance(value, ConstantValue) or value.symbolic else vm.call(vm.wrap(str), [value], {})


@handles(print)
def print_(vm: Any, *args: Value, **kwargs: Value) -> Value:
    for name in sorted(kwargs.keys() - {"sep", "end", "file", "flush"}):
        said_now = f"print() got an unexpected keyword argument {name!r}"
        vm.throw(TypeError, said_now if sys.version_info >= (3, 13) else f"{name!r} is an invalid keyword argument for print()")
    for name in ("sep", "end"):
        kind = kwargs[name].python_type() if name in kwargs else str
        if kind is not type(None) and not issubclass(kind, str):
            vm.throw(TypeError, f"{name} must be None or a string, not {kind.__name__}")
    vm.effects.calls.append((builtins.print, [said(vm, a) for a in args], kwargs))
    return NONE


def place(vm: Any, level: int) -> tuple[Any, int]:
    """The interpreted frame so many calls up from the running one (1: itself), and how many are left beyond the first of all."""
    frame = vm.frame
    while level > 1 and frame.caller is not None:
        frame, level = frame.caller, level - 1
    return frame, level - 1


@handles(warnings.warn)
@named("warnings.warn")
def warn(vm: Any, message: Value, category: Value = NONE, stacklevel: Value = ConstantValue(1), source: Value = NONE, **kwargs: Value) -> Value:
    if (id(warnings.__dict__), "filters") in vm.effects.globals:
        vm.unsupported("FE068", "a warning where the filters have just been changed", "it is shown later, when they are back")
    if not issubclass(message.python_type(), Warning):
        message = said(vm, message)
    frame, beyond = place(vm, stacklevel.constant())
    if beyond > 0:
        vm.effects.calls.append((warnings.warn, [message, category, ConstantValue(beyond + 1)], {}))
    else:
        at = [ConstantValue(frame.code.co_filename), ConstantValue(frame.line), BuiltinValue(frame.globals)]
        vm.effects.calls.append((warn_at, [message, category, *at], {}))
    return NONE


@named("logging.Logger._log")
def log(vm: Any, logger: Value, level: Value, msg: Value, args: Value, exc_info: Value = NONE, extra: Value = NONE, *rest: Value, **kw: Value) -> Value:
    stacklevel = kw.pop("stacklevel", rest[1] if len(rest) > 1 else ConstantValue(1)).constant()
    if vm.truth(kw.pop("stack_info", rest[0] if rest else NONE)) or vm.truth(exc_info):
        vm.unsupported("FE068", "a log record with a traceback or the stack", "it would show the generated code")
    frame = vm.frame
    while frame.caller is not None and frame.code.co_filename == logging._srcfile:
        frame = frame.caller
    while stacklevel > 1 and frame.caller is not None:
        frame, stacklevel = frame.caller, stacklevel - 1
    at = [ConstantValue(frame.code.co_filename), ConstantValue(frame.line), ConstantValue(frame.code.co_name)]
    words = TupleValue([said(vm, a) if not isinstance(a, TupleValue) else a for a in vm.unpack(args)])
    vm.effects.calls.append((log_at, [logger, level, said(vm, msg), words, extra, *at], {}))
    return NONE


@handles(functools.lru_cache)
def lru_cache(vm: Any, *args: Value, **kwargs: Value) -> Value:
    return vm.unsupported("FE010", "functools.lru_cache in captured code", "its cache would be lost with the capture", "decorate the function outside")


def call_cached(vm: Any, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function with ``lru_cache``: asked for constants, it answers from its cache as it does for everyone; else it is interpreted."""
    known = all(isinstance(a, (ConstantValue, ClassValue, BuiltinValue)) for a in (*args, *kwargs.values()))
    if getattr(obj, "__name__", "").endswith("_once"):
        vm.effects.calls.append((obj, args, kwargs))
        return NONE
    if not known:
        for given in (*args, *kwargs.values()):
            if isinstance(given, (SequenceValue, DictValue, SetValue)):
                vm.key(given)  # which those that may change have not
        return vm.call(vm.wrap(obj.__wrapped__), args, kwargs)
    try:
        result = obj(*[a.constant() for a in args], **{k: v.constant() for k, v in kwargs.items()})
    except NotConstant:
        raise
    except Exception as exc:
        return vm.throw_real(exc)
    return vm.wrap_cached(result)


__all__ = ["call_cached"]
