"""What a program tells others on the way (print, warnings, log records): said after the graph has run, in order, from where the program
stands."""

from __future__ import annotations

import builtins
import logging
import types
import warnings
from typing import TYPE_CHECKING, cast

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...effects.changes import log_at, warn_at
from ...effects.filters import About, assume_shown, refuse_unless_shown
from ...interpretation.owners import is_users
from ...values.base import Value
from ...values.classes import ClassValue
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue
from ...values.sequence import TupleValue
from ...values.warned import called_at_capture
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.frame import Frame
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


def said(vm: Interpreter, value: Value) -> Value:
    """A value as it is said: text as of now, since the object may be changed before the words come out."""
    if isinstance(value, ConstantValue) or value.symbolic or (value.told_later and value.python_type() is str):
        return value
    return vm.call(vm.wrap(str), [value], {})


@handles(print)
def print_(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``print()``: prints when the program runs."""
    for name in kwargs:
        if name not in ("sep", "end", "file", "flush"):
            called_at_capture(vm, print, [], {name: None})  # each version of Python says no in words of its own
    for name in ("sep", "end"):
        kind = kwargs[name].python_type() if name in kwargs else str
        if kind is not type(None) and not issubclass(kind, str):
            vm.throw(TypeError, f"{name} must be None or a string, not {kind.__name__}")
    vm.effects.calls.append((builtins.print, [said(vm, a) for a in args], kwargs))
    return NONE


def place(vm: Interpreter, level: int) -> tuple[Frame, int]:
    """The interpreted frame so many calls up from the running one (1: itself), and how many are left beyond the first of all."""
    frame = vm.frame
    while level > 1 and frame.caller is not None:
        frame, level = frame.caller, level - 1
    return frame, level - 1


@handles(warnings.warn)
@named("warnings.warn")
def warn(
    vm: Interpreter, message: Value, category: Value = NONE, stacklevel: Value = ConstantValue(1), source: Value = NONE, **kwargs: Value
) -> Value:
    """``warnings.warn()``: warns when the program runs, at the place that it names; refused (FE068) where filters would act on it."""
    if not issubclass(message.python_type(), Warning):
        message = said(vm, message)
    frame, beyond = place(vm, stacklevel.constant())
    kind = category.obj if isinstance(category, ClassValue) else UserWarning
    text = message.value if isinstance(message, ConstantValue) else None
    if issubclass(message.python_type(), Warning):
        kind = message.python_type()
    about = About(text, kind, str(frame.globals.get("__name__") or "<string>"), frame.line or 0)
    refuse_unless_shown(vm, about)
    assume_shown(vm, about)
    if beyond > 0:
        vm.effects.calls.append((warnings.warn, [message, category, ConstantValue(beyond + 1)], {}))
    else:
        at = [ConstantValue(frame.code.co_filename), ConstantValue(frame.line), BuiltinValue(frame.globals)]
        vm.effects.calls.append((warn_at, [message, category, *at], {}))
    return NONE


def is_seen(logger: object) -> bool:
    """Whether what a logger is given goes through code of the program: handlers, filters and the like of classes of its own."""
    while isinstance(logger, logging.Logger):
        handlers = logger.handlers
        parts = [*logger.filters, *handlers, *(part for handler in handlers for part in (*handler.filters, handler.formatter))]
        if any(is_users(cast(type, part if isinstance(part, types.FunctionType) else type(part))) for part in parts if part is not None):
            return True
        logger = logger.parent if logger.propagate else None
    return False


@named("logging.Logger._log")
def log(
    vm: Interpreter,
    logger: Value,
    level: Value,
    msg: Value,
    args: Value,
    exc_info: Value = NONE,
    extra: Value = NONE,
    *rest: Value,
    **kw: Value,
) -> Value:
    """A record of ``logging``: logged when the program runs; refused (FE068) where a handler would see the difference."""
    stacklevel = kw.pop("stacklevel", rest[1] if len(rest) > 1 else ConstantValue(1)).constant()
    if vm.truth(kw.pop("stack_info", rest[0] if rest else NONE)) or vm.truth(exc_info):
        vm.unsupported("FE068", "a log record with a traceback or the stack", "it would show the generated code")
    asked = logger.real()
    if is_seen(asked):
        vm.unsupported("FE068", "a log record that the program's own handler gets", "it gets it where the program stands")
    vm.guard(Predicate(Pinned(asked, f"logger {asked.name}"), lambda now: not is_seen(now), "has no handler of the program"))
    frame = vm.frame
    while frame.caller is not None and frame.code.co_filename == logging._srcfile:
        frame = frame.caller
    while stacklevel > 1 and frame.caller is not None:
        frame, stacklevel = frame.caller, stacklevel - 1
    at = [ConstantValue(frame.code.co_filename), ConstantValue(frame.line), ConstantValue(frame.code.co_name)]
    words = TupleValue([said(vm, a) if not isinstance(a, TupleValue) else a for a in vm.unpack(args)])
    vm.effects.calls.append((log_at, [logger, level, said(vm, msg), words, extra, *at], {}))
    return NONE
