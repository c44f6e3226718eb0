"""Functions that look at the variables of whoever calls them (``sys._getframe(1).f_locals``).

What goes on behind a break has the variables that it still reads, and some of its own, so what breaks and may be looked at runs as it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping

from ..interpretation.owners import installed

#: How many calls lie between a function and one that looks at its variables, at most.
DEEPEST = 3
#: What classes and modules hold, without the program's own code for attributes.
_OF_CLASS: Callable[[object], Mapping[str, object]] = vars(type)["__dict__"].__get__
_OF_MODULE: Callable[[object], Mapping[str, object]] = vars(types.ModuleType)["__dict__"].__get__


def looks_at_frames(code: types.CodeType) -> bool:
    """Whether a function, or one that it makes, reads the variables of a frame."""
    return "f_locals" in code.co_names or any(looks_at_frames(each) for each in code.co_consts if isinstance(each, types.CodeType))


def is_looked_at(code: types.CodeType, namespace: Mapping[str, object], depth: int = DEEPEST) -> bool:
    """Whether what this code calls by a name of its module (of a function, of a method of a class, of a function of a module) may read its
    variables. Of installed packages only the functions are looked at that it calls itself."""
    asked: set[types.CodeType] = {code}
    level: list[tuple[types.CodeType, Mapping[str, object]]] = [(code, namespace)]
    for _ in range(depth + 1):
        if any(looks_at_frames(each) for each, _ in level):
            return True
        following: list[tuple[types.CodeType, Mapping[str, object]]] = []
        for each, names_of in level:
            if each is not code and installed(each.co_filename):
                continue
            named = {name for part in (each, *inside(each)) for name in part.co_names}
            for function in found(named, names_of):
                if function.__code__ not in asked:
                    asked.add(function.__code__)
                    following.append((function.__code__, function.__globals__))
        level = following
    return False


def inside(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of functions that a function makes."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from inside(each)


def found(names: set[str], namespace: Mapping[str, object]) -> Iterator[types.FunctionType]:
    """Functions of a program under these names. Which object a method is called of is not known."""
    own = namespace.get("__name__", "")
    for key, value in list(namespace.items()):
        kind = type(value)
        if type(value) is types.FunctionType and key in names:
            yield value
        given = _OF_CLASS(value) if issubclass(kind, type) else _OF_MODULE(value) if issubclass(kind, types.ModuleType) else None
        if given is not None and (key in names or given.get("__module__") == own):
            yield from (each for name in names if type(each := given.get(name)) is types.FunctionType)


__all__ = ["is_looked_at"]
