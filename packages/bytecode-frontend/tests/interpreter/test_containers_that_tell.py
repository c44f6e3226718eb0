"""Subclasses of builtin containers whose methods note that they were asked: as often as in the plain function, also while it is captured."""

from __future__ import annotations

import collections
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import capture

NOTES: list[str] = []


def telling(base: type) -> type:
    """A subclass that notes each call of a method that others may ask."""
    names = (
        "__iter__",
        "__len__",
        "__contains__",
        "__getitem__",
        "__eq__",
        "__reversed__",
        "keys",
        "items",
        "values",
        "get",
        "index",
        "count",
    )

    def noting(name: str) -> Callable[..., Any]:
        method = getattr(base, name)

        def noted(*args: Any) -> Any:
            NOTES.append(name)
            return method(*args)

        return noted

    return type(f"Telling_{base.__name__}", (base,), {"__hash__": base.__hash__} | {n: noting(n) for n in names if hasattr(base, n)})


CONTAINERS = {
    "list": (telling(list), [1, 2, 3]),
    "tuple": (telling(tuple), [1, 2, 3]),
    "dict": (telling(dict), {1: 2, 3: 4}),
    "ordered": (telling(collections.OrderedDict), {1: 2, 3: 4}),
    "default": (telling(collections.defaultdict), None),
    "set": (telling(set), [1, 2, 3]),
    "frozenset": (telling(frozenset), [1, 2, 3]),
    "deque": (telling(collections.deque), [1, 2, 3]),
}
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": lambda o: dict(o),
    "set": set,
    "len": len,
    "bool": bool,
    "in": lambda o: (1 in o, 9 in o),
    "item": lambda o: o[1],
    "unpacked": lambda o: [*o],
    "merged": lambda o: {**o},
    "named": lambda o: (lambda *args: len(args))(*o),
    "loop": lambda o: [k for k in o],
    "sorted": sorted,
    "sum": sum,
    "reversed": lambda o: list(reversed(o)),
    "zipped": lambda o: list(zip(o, o)),
    "items": lambda o: list(o.items()),
    "values": lambda o: sorted(o.values()),
    "update": lambda o: {5: 6}.update(o),
    "extend": lambda o: [0].extend(o),
    "equal": lambda o: (o == o, o != [1]),
    "join": lambda o: ",".join(map(str, o)),
    "first": lambda o: next(iter(o)),
    "union": lambda o: {9} | set(o),
    "is": lambda o: isinstance(o, (list, dict)),
    "changed": lambda o: (o.append(1), o)[0] if hasattr(o, "append") else None,
    "max": max,
    "any": any,
    "counted": lambda o: (o.count(1), o.index(1)),
    "got": lambda o: (o.get(1), o.get(8)),
    "copy": lambda o: None if isinstance(o, dict) else type(o.copy()).__name__,
    "sliced": lambda o: None if isinstance(o, collections.deque) else o[1:],
    "formatted": lambda o: f"{o}",
}


def made(name: str) -> Any:
    cls, given = CONTAINERS[name]
    out = cls(int, {1: 2, 3: 4}) if given is None else cls(given)
    NOTES.clear()
    return out


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_methods_are_asked_as_often_as_by_the_plain_function(name: str, operation: str) -> None:
    what = OPERATIONS[operation]

    def program(x: torch.Tensor, container: Any) -> Any:
        try:
            return x + 1, what(container)
        except (TypeError, AttributeError, KeyError, IndexError) as exc:
            return x - 1, type(exc), str(exc)

    captured, told = capture(program, "eager"), []
    for function in (program, captured, captured):
        given = made(name)
        x, *rest = function(torch.ones(2), given)
        told.append((x.tolist(), repr(rest), list(NOTES)))
    assert told[1:] == told[:1] * 2
