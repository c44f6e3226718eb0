"""Builtin iterators and generators in captured code, against Python."""

import pytest
from differing import attempt, differs, generated, told


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration(told("done"))
        self.n -= 1
        return self.n


class Indexed:
    def __getitem__(self, k):
        if k > 2:
            raise IndexError
        return told(k) * 2


def echo():
    got = []
    try:
        while True:
            got.append((yield len(got)))
    except KeyError as e:
        got.append(e.args)
        yield "caught"
    finally:
        told("finally")
    return got


def _sent():
    g = echo()
    seen = [next(g), g.send("a"), g.send("b"), g.throw(KeyError("k"))]
    return seen, attempt(lambda: next(g)), attempt(lambda: next(g)), attempt(lambda: echo().send(1))


def delegating():
    result = yield from echo()
    yield result


def _delegated():
    g = delegating()
    return next(g), g.send(1), g.throw(KeyError()), next(g), g.close()


def _exhausted():
    it = iter([1])
    return next(it), next(it, "none"), attempt(lambda: next(it)), list(it)


def _shared():
    it = iter(range(6))
    return list(zip(it, it)), list(it), list(zip(generated(1, 2, 3), [1, 2])), attempt(lambda: list(zip([1], [1, 2], strict=True)))


def _partly():
    it = zip(generated(1, 2), generated("a"))
    return list(it), list(zip())


def _mapped():
    m = map(lambda a, b: a + b, generated(1, 2, 3), generated(10, 20))
    return next(m), list(m), attempt(lambda: map(len)), attempt(lambda: list(map(len, [1])))


def _grown():
    a = [1]
    it = iter(a)
    next(it)
    a.append(2)
    first = list(it)
    a.append(3)
    return first, list(it)


def _reversed():
    a = [1, 2, 3]
    it = reversed(a)
    next(it)
    a.append(9)
    return list(it), list(reversed("ab")), list(reversed({1: 2, 3: 4})), attempt(lambda: reversed({1})), list(reversed(range(3)))


PROGRAMS = {
    "of a class": lambda x: (list(Countdown(3)), attempt(lambda: next(Countdown(0))), max(Countdown(3)), 1 in Countdown(3)),
    "by items": lambda x: (list(Indexed()), 4 in Indexed(), list(reversed([1])), attempt(lambda: iter(5))),
    "exhausted": lambda x: _exhausted(),
    "shared": lambda x: _shared(),
    "ending first": lambda x: _partly(),
    "map": lambda x: _mapped(),
    "filter": lambda x: (
        list(filter(None, [0, 1, "", "a"])),
        list(filter(lambda v: v > 1, generated(1, 2, 3))),
        attempt(lambda: list(filter(5, [1]))),
    ),
    "enumerate": lambda x: (
        list(enumerate("ab", 5)),
        list(enumerate([], start=1)),
        attempt(lambda: enumerate([1], "a")),
        attempt(lambda: enumerate(3)),
    ),
    "reversed": lambda x: _reversed(),
    "grown behind its end": lambda x: _grown(),
    "sent to": lambda x: _sent(),
    "delegated": lambda x: _delegated(),
    "until a value": lambda x: (list(iter(Countdown(4).__next__, 1)), attempt(lambda: iter(5, 1))),
    "in any and all": lambda x: (
        any(generated(0, 1, 2)),
        all(generated(1, 0, 2)),
        any([]),
        all([]),
        sum(generated(1, 2), 10),
        attempt(lambda: sum(["a"])),
    ),
    "min and max": lambda x: (
        min(generated(3, 1, 2)),
        max("b", "a"),
        min([], default=4),
        max([1, -5], key=abs),
        attempt(lambda: max([])),
        attempt(lambda: max(1)),
        min([2, 1.0, 1]),
    ),
    "stop inside of a generator": lambda x: attempt(lambda: list(_stopping())),
    "of tensors": lambda x: [a + b for a, b in zip(iter(x), reversed(list(x)))],
}


def _stopping():
    yield 1
    raise StopIteration


@pytest.mark.parametrize("name", PROGRAMS)
def test_iterators_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1))
