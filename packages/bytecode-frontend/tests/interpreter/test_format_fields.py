"""``str.format`` of what a capture knows in part: tensors by their attributes, sizes that change, objects of the program."""

from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture


class Config:
    width = 7

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __repr__(self) -> str:
        return f"Config({len(self.asked)})"

    def __format__(self, spec: str) -> str:
        self.asked.append(spec)
        return f"<{spec}>"

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        self.asked.append(name)
        return name.upper()

    def __getitem__(self, key: Any) -> str:
        return f"[{key!r}]"


TELLING = {
    "attribute": "'{0.shape}'.format(x)",
    "item of an attribute": "'{0.shape[0]}'.format(x)",
    "counted": "'{.shape[0]} {.dtype} {}'.format(x, x, n)",
    "formats": "'{0.shape[0]:>4}|{1:04d}|{2:<8}|{0.ndim:+}'.format(x, n, 'a')",
    "by name": "'{t.shape[1]} of {n} in {where!r}'.format(t=x, n=n, where='here')",
    "conversions": "'{0.dtype!s} {0.shape!r} {1!a:>8}'.format(x, 'ä')",
    "nested": "'{0.ndim:{1}}|{0.ndim:{w}.{w}f}|{n:>{0.ndim}}'.format(x, 5, w=2, n=n)",
    "braces": "'{{{0.shape[0]}}} {{}}'.format(x)",
    "objects": "'{0:a} {0.name} {0[key]} {0[3]} {0!r:.3} {0.width:3}'.format(c)",
    "items": "'{0[0]} {0[1].shape[0]} {1[lr]:.2e}'.format([n, x], {'lr': 0.01})",
    "a size": "'{0.shape[0]}'.format(x) + '{}'.format(x.shape[0]) + '{:5}'.format(n)",
    "unused names": "'{0.ndim}'.format(x, x, other=x)",
    "a number that only data tell": "'{0.ndim} {1:.3f} {2[v]}'.format(x, x.sum().item(), {'v': x.max().item()})",
    "a template that changes": "('{0.ndim}' + '{0.shape[0]}' * (n % 3)).format(x)",
    "no such attribute": "'{0.nothing}'.format(x)",
    "no such place": "'{0.ndim} {1}'.format(x)",
    "no such name": "'{0.ndim} {name}'.format(x)",
    "counted and not": "'{0.ndim} {}'.format(x, x)",
    "not closed": "'{0.ndim'.format(x)",
    "no such conversion": "'{0.ndim!z}'.format(x)",
    "too deep": "'{0.ndim:{1:{2}}}'.format(x, 1, 2)",
    "no such format": "'{0.ndim:q}'.format(x)",
    "no such item": "'{0.shape[9]}'.format(x)",
    "a format of what has none": "'{0.shape:>9}'.format(x)",
}


@pytest.mark.parametrize("name", TELLING)
def test_fields_are_what_python_makes_of_them(name: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def program(x, n, c):\n    y = x * 2\n    said = {TELLING[name]}\n    return y + 1, said, c.asked", names)
    compiled = capture(names["program"], "eager")
    for rows, n in ((2, 3), (4, 5), (5, 4), (7, 11)):
        given = torch.arange(float(rows * 2)).reshape(rows, 2), n
        assert same(outcome(compiled, *given, Config()), outcome(names["program"], *given, Config()))


@pytest.mark.parametrize("name", [name for name in TELLING if not name.startswith(("no ", "not ", "counted and", "too ", "a format"))])
def test_no_graph_ends_there(name: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def program(x, n, c):\n    y = x * 2\n    said = {TELLING[name]}\n    return y + 1, said", names)
    given = torch.ones(3, 2), 4
    assert same(outcome(capture(names["program"], "eager", fullgraph=True), *given, Config()), outcome(names["program"], *given, Config()))
