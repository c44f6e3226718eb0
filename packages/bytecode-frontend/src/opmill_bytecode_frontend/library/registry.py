"""Registration of handlers for callables that are not interpreted: builtins, C functions, torch functions, some Python ones."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
HANDLERS: dict[object, Handler] = {}
OBJECTS_OF: dict[type, Handler] = {}
NAMED: dict[str, Handler] = {}
NAMED_WITH_FUNCTION: dict[str, Handler] = {}


def handles(*objects: object) -> Callable[[H], H]:
    """The decorated function(vm, *args, **kwargs) stands for calls of these callables."""

    def add(handler: H) -> H:
        for obj in objects:
            HANDLERS[obj] = handler
        return handler

    return add


def handles_objects_of(*classes: type) -> Callable[[H], H]:
    """The decorated function(vm, obj, args, kwargs) stands for calls of objects of exactly these classes, made before."""

    def add(handler: H) -> H:
        for cls in classes:
            OBJECTS_OF[cls] = handler
        return handler

    return add


def receives_function(*names: str) -> Callable[[H], H]:
    """As ``named``, for functions made anew by each call of another: the real function is the handler's second argument."""

    def add(handler: H) -> H:
        for name in names:
            NAMED_WITH_FUNCTION[name] = handler
        return handler

    return add


def named(*names: str) -> Callable[[H], H]:
    """As ``handles`` for Python functions by ``module.qualname``, so that they need not be imported."""

    def add(handler: H) -> H:
        for name in names:
            NAMED[name] = handler
        return handler

    return add
