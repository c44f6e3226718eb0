"""Registration of handlers for callables that are not interpreted: builtins, C functions, torch functions, some Python ones."""

from __future__ import annotations

from typing import Any, Callable

Handler = Callable[..., Any]
HANDLERS: dict[object, Handler] = {}
OBJECTS_OF: dict[type, Handler] = {}
NAMED: dict[str, Handler] = {}
NAMED_WITH_FUNCTION: dict[str, Handler] = {}


def handles(*objects: object) -> Callable[[Handler], Handler]:
    """The decorated function(vm, *args, **kwargs) stands for calls of these callables."""

    def add(handler: Handler) -> Handler:
        for obj in objects:
            HANDLERS[obj] = handler
        return handler

    return add


def handles_objects_of(*classes: type) -> Callable[[Handler], Handler]:
    """The decorated function(vm, obj, args, kwargs) stands for calls of objects of exactly these classes, made before."""

    def add(handler: Handler) -> Handler:
        for cls in classes:
            OBJECTS_OF[cls] = handler
        return handler

    return add


def receives_function(*names: str) -> Callable[[Handler], Handler]:
    """As ``named``, for functions made anew by each call of another: the real function is the handler's second argument."""

    def add(handler: Handler) -> Handler:
        for name in names:
            NAMED_WITH_FUNCTION[name] = handler
        return handler

    return add


def named(*names: str) -> Callable[[Handler], Handler]:
    """As ``handles`` for Python functions by ``module.qualname``, so that they need not be imported."""

    def add(handler: Handler) -> Handler:
        for name in names:
            NAMED[name] = handler
        return handler

    return add
