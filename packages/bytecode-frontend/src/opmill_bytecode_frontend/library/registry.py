"""Registration of handlers for callables that are not interpreted: builtins, C functions, torch functions, some Python ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import CodeType
from typing import Any, Callable, TypeVar

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
K = TypeVar("K")
HANDLERS: dict[object, Handler] = {}
OBJECTS_OF: dict[type, Handler] = {}
NAMED: dict[str, Handler] = {}
NAMED_WITH_FUNCTION: dict[str, Handler] = {}
CODED: dict[CodeType, Handler] = {}


def _put(table: dict[K, Handler], keys: Iterable[K], handler: Handler) -> None:
    """Raises ValueError for what has another handler already: which one counts would be a matter of imports. One that the same lines made
    is no other: an import that was interrupted is begun again."""
    for key in keys:
        before = table.get(key, handler)
        if before is not handler and _written(before) != _written(handler):
            raise ValueError(f"calls of {key} have two handlers, {_written(before)} and {_written(handler)}")
        table[key] = handler


def _written(handler: Handler) -> str:
    """Where a handler is written."""
    function = handler.func if isinstance(handler, functools.partial) else handler
    code = getattr(function, "__code__", None)
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}:{getattr(code, 'co_firstlineno', 0)}"


def handles(*objects: object) -> Callable[[H], H]:
    """The decorated function(vm, *args, **kwargs) stands for calls of these callables."""

    def add(handler: H) -> H:
        _put(HANDLERS, objects, handler)
        return handler

    return add


def handles_objects_of(*classes: type) -> Callable[[H], H]:
    """The decorated function(vm, obj, args, kwargs) stands for calls of objects of exactly these classes, made before."""

    def add(handler: H) -> H:
        _put(OBJECTS_OF, classes, handler)
        return handler

    return add


def receives_function(*names: str) -> Callable[[H], H]:
    """As ``named``, for functions made anew by each call of another: the real function is the handler's second argument."""

    def add(handler: H) -> H:
        _put(NAMED_WITH_FUNCTION, names, handler)
        return handler

    return add


def coded(*codes: CodeType) -> Callable[[H], H]:
    """As ``receives_function``, for all functions of these codes, whatever they are named after."""

    def add(handler: H) -> H:
        _put(CODED, codes, handler)
        return handler

    return add


def named(*names: str) -> Callable[[H], H]:
    """As ``handles`` for Python functions by ``module.qualname``, so that they need not be imported."""

    def add(handler: H) -> H:
        _put(NAMED, names, handler)
        return handler

    return add
