"""Registration of handlers for callables that are not interpreted: builtins, C functions, torch functions, some Python ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, TypeVar

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
K = TypeVar("K")
HANDLERS: dict[object, Handler] = {}
OBJECTS_OF: dict[type, Handler] = {}
NAMED: dict[str, Handler] = {}
NAMED_WITH_FUNCTION: dict[str, Handler] = {}


def _put(table: dict[K, Handler], keys: Iterable[K], handler: Handler) -> None:
    """Raises ValueError for what has another handler already: which one counts would be a matter of imports."""
    for key in keys:
        if (before := table.setdefault(key, handler)) is not handler:
            raise ValueError(f"calls of {key} have two handlers, {before.__qualname__} and {handler.__qualname__}")


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


def named(*names: str) -> Callable[[H], H]:
    """As ``handles`` for Python functions by ``module.qualname``, so that they need not be imported."""

    def add(handler: H) -> H:
        _put(NAMED, names, handler)
        return handler

    return add
