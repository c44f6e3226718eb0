"""Building and unpacking containers and strings in captured code, against Python: values, and the order in which parts are computed."""

import pytest
from differing import attempt, differs, generated, told


class Keys:
    def keys(self):
        return told(["b", "a"])

    def __getitem__(self, key):
        return told(key) * 2


class Shown:
    def __init__(self, v):
        self.v = v

    def __format__(self, spec):
        return told(f"<{self.v}|{spec}>")

    def __repr__(self):
        return told(f"r{self.v}")

    def __str__(self):
        return told(f"s{self.v}")


def takes(*args, **kwargs):
    return args, kwargs


PROGRAMS = {
    "order": lambda x: ([told(1), told(2)], (told(3),), {told(4): told(5), told(6): told(7)}, {told(8)}),
    "stars": lambda x: ([*generated(1, 2), *"ab"], (*[], told(3)), {*generated(1, 1)}, attempt(lambda: [*5]), attempt(lambda: (*None,))),
    "double stars": lambda x: ({**{"a": 1}, "a": 2, **Keys()}, attempt(lambda: {**[1]}), attempt(lambda: {**5})),
    "calls": lambda x: (
        takes(*generated(1, 2), told(3), c=told(4), **Keys()),
        attempt(lambda: takes(**{1: 2})),
        attempt(lambda: takes(*5)),
        attempt(lambda: takes(**5)),
        attempt(lambda more={"a": 2}: takes(a=1, **more)),
    ),
    "unpacked": lambda x: _unpacked(),
    "nested": lambda x: _nested(),
    "formatted": lambda x: (
        f"{Shown(1)}",
        f"{Shown(2)!r:>5}",
        f"{Shown(3)!s}",
        f"{Shown(4):{told('w')}}",
        f"{3.14159:.2f}|{5:>4}|{'a':^3}|{{}}",
        f"{1 + 1 = }",
        f"{'ä'!a}",
    ),
    "wrong formats": lambda x: (
        attempt(lambda: f"{3:s}"),
        attempt(lambda: f"{'a':d}"),
        attempt(lambda: f"{[]:3}"),
        attempt(lambda: f"{None:3}"),
    ),
    "slices": lambda x: _sliced(),
    "comprehensions": lambda x: (
        [a * b for a in generated(1, 2) for b in generated(3, 4) if a != b - 2],
        {k: v for k, v in zip(generated("a", "b"), generated(1, 2))},
        [[y for y in range(z)] for z in range(3)],
    ),
    "of tensors": lambda x: _tensors(x),
}


def _unpacked():
    a, (b, *c), d = 1, generated(2, 3, 4), "z"
    [e, f] = {"p": 1, "q": 2}
    (g,) = (7,)
    (h, *_), *i = ["xy", 2, 3]
    return a, b, c, d, e, f, g, h, i, attempt(_too_few), attempt(_too_many), attempt(_star_few)


def _too_few():
    a, b, c = generated(1, 2)
    return a, b, c


def _too_many():
    a, b = generated(1, 2, 3, 4)
    return a, b


def _star_few():
    a, *b, c, d = (1, 2)
    return a, b, c, d


def _nested():
    table = {}
    table[told("k")], other = told(1), told(2)
    rows = [[0] * 2 for _ in range(2)]
    rows[told(0)][told(1)] = told(9)
    first = second = told([])
    first.append(1)
    return table, other, rows, second


def _sliced():
    a = list(range(6))
    a[told(1) : told(3)] = generated("x")
    del a[:: told(3)]
    return a, a[::-1], "abc"[told(-2) :]


def _tensors(x):
    first, *rest = x
    a, b, c = x * 2
    return first, len(rest), a + b + c, [*x], (*x,), x[..., None].shape


@pytest.mark.parametrize("name", PROGRAMS)
def test_containers_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in ("wrong formats", "calls"))
