"""Iterators that captured code leaves half-way: behind a graph break they read what they walk over as it is then, and ask functions
then."""

from __future__ import annotations

import itertools
import operator
import sys

import pytest
import torch
from differing import attempt, differs, told

from opmill_bytecode_frontend import capture


@torch.compiler.disable
def apart():
    told("break")


ITERATORS = {
    "chain": lambda items: itertools.chain([0], items, [5]),
    "chain of one": lambda items: itertools.chain(items),
    "chain from iterable": lambda items: itertools.chain.from_iterable([items, [7], items]),
    "islice": lambda items: itertools.islice(items, 1, None, 2),
    "islice to an end": lambda items: itertools.islice(items, 2),
    "cycle": itertools.cycle,
    "accumulate": itertools.accumulate,
    "accumulate by a function": lambda items: itertools.accumulate(items, lambda a, b: told(a * b), initial=2),
    "accumulate to None": lambda items: itertools.accumulate(items, lambda a, b: None),
    "starmap": lambda items: itertools.starmap(told, zip(items)),
    "zip_longest": lambda items: itertools.zip_longest(items, [8], fillvalue=0),
    "pairwise": itertools.pairwise,
    "takewhile": lambda items: itertools.takewhile(lambda v: told(v) < 3, items),
    "dropwhile": lambda items: itertools.dropwhile(lambda v: told(v) < 2, items),
    "filterfalse": lambda items: itertools.filterfalse(lambda v: v % 2, items),
    "compress": lambda items: itertools.compress(items, [1, 0, 1, 1, 1]),
    "repeat": itertools.repeat,
    "count": lambda items: itertools.count(items[0], 2),
    "reversed": reversed,
    "map": lambda items: map(told, items),
    "a function": lambda items: iter(lambda: told(len(items)) if len(items) < 5 else 0, 5),
    "a function to its end": lambda items: iter(iter(items).__next__, 3),
    "zip strict": lambda items: zip(items, items, strict=True),
    "groupby": lambda items: itertools.groupby(items, lambda v: told(v) > 2),
}


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS)
def test_unfinished_iterators(make, steps):
    def program(x):
        items = [1, 2, 3, 4]
        iterator = make(items)
        taken = [str(next(iterator, "end"))[:5] for _ in range(steps)]
        apart()
        items.append(6)
        items[2] = 9
        return taken, [str(item)[:5] for item, _ in zip(iterator, range(8))], x + 1

    differs(program, whole=False)


def test_what_functions_make_is_called_with_what_it_takes():
    differs(lambda x: (attempt(lambda: operator.itemgetter(1)())[0], x + 1), whole=False)


@pytest.mark.parametrize("walk", [iter, reversed], ids=["forwards", "backwards"])
def test_iterators_over_what_was_just_appended(walk):
    def program(x, items):
        items += [4, 5, 6]
        iterator = walk(items)
        first = [next(iterator) for _ in range(4 if walk is iter else 1)]
        apart()
        items.append(7)
        return first, list(iterator), x + 1

    differs(lambda x: program(x, [1, 2]), whole=False)
    compiled, items = capture(program, "eager"), [1, 2]
    assert compiled(torch.ones(1), items)[:2] == program(torch.ones(1), [1, 2])[:2]
    assert items == [1, 2, 4, 5, 6, 7]


class Reentering:
    """Asks what walks over it, once, while it is asked itself for the item ``when``."""

    def __init__(self, when, broken):
        self.given, self.when, self.broken, self.walker, self.seen = 0, when, broken, None, []

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        if self.given == self.when:
            if self.broken:
                apart()
            try:
                self.seen.append(str(next(self.walker))[:5])
            except (StopIteration, ValueError) as error:
                self.seen.append(type(error).__name__)
        if self.given > 6:
            raise StopIteration
        return self.given


NOT_ASKED = {"count", "reversed", "repeat", "a function"}
if sys.version_info < (3, 11, 3):
    NOT_ASKED |= {"a function to its end"}  # a SystemError of Python's own, where the function ends the iterator


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("when", [1, 2, 3])
@pytest.mark.parametrize("make", [make for name, make in ITERATORS.items() if name not in NOT_ASKED])
def test_iterators_asked_by_what_they_walk_over(make, when, broken):
    def program(x):
        items = Reentering(when, broken)
        items.walker = walker = make(items)
        return [str(item)[:5] for item, _ in zip(walker, range(8))], items.seen, items.walker is walker, x + 1

    differs(program, whole=False)
