"""Exception groups made in captured code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...values.base import Value

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def checked_group(vm: Interpreter, cls: type, args: list[Value]) -> tuple[type, list[Value]]:
    """What ``BaseExceptionGroup.__new__`` says of its arguments: asked of it with exceptions of the same classes."""
    given: list[object] = []
    for arg in args:
        kind = arg.python_type()
        if issubclass(kind, (list, tuple)):
            members = [item.python_type() for item in vm.unpack(arg)]
            given.append(
                [Exception() if issubclass(m, Exception) else BaseException() if issubclass(m, BaseException) else 0 for m in members]
            )
        elif issubclass(kind, str):
            given.append("")
        elif kind.__module__ != "builtins":
            vm.unsupported("FE012", f"making a {cls.__qualname__}", "its exceptions are in a container of the program")
        else:
            given.append(object.__new__(kind) if kind is object else vm.plain(arg))
    make: Any = BaseExceptionGroup.__new__
    try:
        return type(make(cls, *given)), args
    except (TypeError, ValueError) as exc:
        return vm.throw_real(exc)
