"""itertools in captured code, against Python."""

import itertools
import operator

import pytest
from differing import attempt, differs, generated


def _tee():
    a, b = itertools.tee(iter([1, 2, 3]))
    next(a)
    return list(a), list(b), len(itertools.tee([1], 3)), itertools.tee([], 0)


def _groups():
    out = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 1])]
    late = list(itertools.groupby("aab"))
    return out, [(k, list(g)) for k, g in late], [(k, list(g)) for k, g in itertools.groupby([1, 3, 2], key=lambda v: v % 2)]


def _islice():
    it = iter(range(10))
    return list(itertools.islice(it, 2)), next(it), list(itertools.islice(it, 1, 6, 2)), list(it)


def _lazy():
    it = itertools.chain(generated(1, 2), generated(3))
    return next(it), next(it)


PROGRAMS = {
    "chain": lambda x: (
        list(itertools.chain("ab", [1])),
        list(itertools.chain.from_iterable(["ab", (1, 2)])),
        attempt(lambda: list(itertools.chain([1], 5))),
    ),
    "count": lambda x: (
        list(itertools.islice(itertools.count(3, 2), 3)),
        list(zip("ab", itertools.count())),
        list(itertools.islice(itertools.count(0.5), 2)),
    ),
    "cycle and repeat": lambda x: (
        list(itertools.islice(itertools.cycle("ab"), 5)),
        list(itertools.repeat(1, 3)),
        list(map(pow, [2, 3], itertools.repeat(2))),
        list(itertools.cycle([])),
        list(itertools.repeat(1, -2)),
    ),
    "accumulate": lambda x: (
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.accumulate([1, 2, 3], operator.mul, initial=10)),
        list(itertools.accumulate([], initial=5)),
        list(itertools.accumulate([])),
        list(itertools.accumulate("abc")),
    ),
    "islice": lambda x: (
        _islice(),
        list(itertools.islice([1, 2], None)),
        attempt(lambda: itertools.islice([1], -1)),
        attempt(lambda: itertools.islice([1], 0, 5, 0)),
    ),
    "zip_longest": lambda x: (
        list(itertools.zip_longest("ab", [1], fillvalue="-")),
        list(itertools.zip_longest()),
        list(itertools.zip_longest([], [1])),
    ),
    "product": lambda x: (
        list(itertools.product("ab", [1, 2])),
        list(itertools.product([0, 1], repeat=2)),
        list(itertools.product()),
        list(itertools.product("ab", [])),
        attempt(lambda: itertools.product([1], repeat=-1)),
    ),
    "permutations and combinations": lambda x: (
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations("abc", 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
        list(itertools.permutations([1], 2)),
        list(itertools.combinations([], 0)),
        attempt(lambda: itertools.combinations([1], -1)),
    ),
    "selection": lambda x: (
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.filterfalse(None, [0, 1])),
        list(itertools.filterfalse(lambda v: v > 1, [1, 2])),
    ),
    "starmap and pairwise": lambda x: (
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
        list(itertools.pairwise("abc")),
        list(itertools.pairwise("a")),
        attempt(lambda: list(itertools.starmap(pow, [2]))),
    ),
    "groupby": lambda x: _groups(),
    "tee": lambda x: _tee(),
    "taken one at a time": lambda x: _lazy(),
    "of tensors": lambda x: [t.sum() for t in itertools.accumulate([x, x * 2, x])],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_itertools_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1))
