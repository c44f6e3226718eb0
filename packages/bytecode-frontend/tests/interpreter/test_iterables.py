"""Iterables as programs write them, and what takes items from them: what each gives, or says, and how far it went before."""

from __future__ import annotations

import pytest

from opmill_bytecode_frontend import capture

TAKEN: list = []


class Own:
    """An iterator that tells how far it was asked."""

    def __init__(self):
        self.i = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.i += 1
        TAKEN.append(self.i)
        if self.i > 3:
            raise StopIteration
        return self.i


class Raising(Own):
    def __next__(self):
        if self.i == 2:
            raise LookupError("own")
        return super().__next__()


class Hinting(Own):
    def __length_hint__(self):
        TAKEN.append("hint")
        return 2


def hinting(text):
    """One whose hint is this expression."""
    return type("Hint_" + "".join(filter(str.isalnum, text)), (Own,), {"__length_hint__": eval(f"lambda self: {text}")})


class OfRaisingLength:
    def __len__(self):
        raise ValueError("length")

    def __iter__(self):
        return iter([1])


class ByIndex:
    """Items by number, until this is raised."""

    end: type = IndexError

    def __getitem__(self, i):
        if type(i) is not int or i > 1:
            raise self.end(i)
        return i + 10


class EndingByStop(ByIndex):
    end = StopIteration


class Sized(ByIndex):
    def __len__(self):
        return 2


class Keyed:
    def keys(self):
        return iter("ab")

    def __getitem__(self, key):
        TAKEN.append(key)
        if isinstance(key, int):
            raise KeyError(key)
        return key * 2


class KeyedByANumber(Keyed):
    def keys(self):
        return 3


class NotAnIterator:
    def __iter__(self):
        return 3


class Nothing:
    __iter__ = None

    def __getitem__(self, i):
        return [1, 2][i]


class Pairs:
    def __iter__(self):
        return iter([("a", 1), ("b", 2)])


class Triples:
    def __iter__(self):
        return iter([("a", 1, 2)])


class Generated:
    def __iter__(self):
        for i in (1, 2):
            TAKEN.append(i)
            yield i
        raise KeyError("end")


class Searching:
    def __contains__(self, value):
        return value == 2

    def __iter__(self):
        return iter("ba")

    def __reversed__(self):
        return iter("reversed")


class Listing(type):
    def __iter__(cls):
        return iter("meta")

    def __len__(cls):
        return 4


class OfAMetaclass(metaclass=Listing):
    def __new__(cls):
        return cls


def three(items):
    a, b, c = items
    return a, b, c


def starred(items):
    a, *b = items
    return a, b


def assigned(items, where):
    held = [1, 2, 3, 4]
    held[where] = items
    return held


def delegated(items):
    def inner():
        return (yield from items)

    return list(inner())


ITERABLES = {
    each.__name__: each
    for each in (
        *(Own, Raising, Hinting, OfRaisingLength, ByIndex, EndingByStop, Sized, Keyed, KeyedByANumber, NotAnIterator, Nothing, Pairs),
        *(Triples, Generated, Searching, OfAMetaclass),
        *map(hinting, ('"q"', "NotImplemented", "-1", "1 / 0", "2.0", "None")),
    )
}
TAKING = """
list(o) ; tuple(o) ; set(o) ; frozenset(o) ; dict(o) ; {**o} ; [*o] ; (lambda *a: a)(*o) ; (lambda **k: k)(**o) ; sum(o) ; max(o) ; min(o, default=9)
sorted(o) ; list(reversed(o)) ; 2 in o ; 99 not in o ; list(zip(o, o)) ; list(enumerate(o)) ; list(map(str, o)) ; list(filter(None, o)) ; ''.join(o)
[a for a in o] ; {a: 1 for a in o} ; list(a for a in o) ; any(o) ; all(o) ; next(iter(o)) ; next(o) ; three(o) ; starred(o) ; len(o) ; bool(o) ; o[0]
[0, *o, 9] ; [9].__iadd__(o) ; [9] + o ; assigned(o, slice(1, 3)) ; assigned(o, slice(0, 4, 2)) ; delegated(o) ; collections.deque(o, maxlen=2)
collections.Counter(o) ; collections.OrderedDict(o) ; {}.update(o) ; {'z': 1} | o ; {1}.union(o) ; {1} | o ; {1, 2}.issubset(o) ; {1}.update(o)
list(itertools.chain(o, o)) ; list(itertools.islice(o, 2)) ; list(itertools.accumulate(o)) ; list(itertools.pairwise(o)) ; list(itertools.islice([1], o))
list(itertools.zip_longest(o, [1])) ; list(itertools.product(o, o)) ; [list(t) for t in itertools.tee(o)] ; list(itertools.takewhile(bool, o))
functools.reduce(lambda a, b: (a, b), o) ; functools.reduce(lambda a, b: (a, b), o, 0) ; list(itertools.starmap(lambda *a: a, o)) ; dict.fromkeys(o)
operator.length_hint(o, 5) ; operator.contains(o, 2) ; operator.countOf(o, 2) ; operator.indexOf(o, 2) ; torch.Size(o) ; math.prod(o) ; heapq.nlargest(2, o)
"""
EXPRESSIONS = [each.strip() for line in TAKING.strip().splitlines() for each in line.split(" ; ")]


def program():
    lines = ["def program(c):", "    found = []"]
    for each in EXPRESSIONS:
        lines += [
            "    try:",
            "        o = c()",
            f"        found.append(({each}, 0))",
            "    except Exception as error:",
            "        found.append((type(error), str(error)))",
            "    found.append(list(TAKEN))",
            "    TAKEN.clear()",
        ]
    exec("\n".join([*lines, "    return found"]), names := dict(globals()))
    return names["program"]


@pytest.mark.parametrize("name", ITERABLES)
def test_as_in_python(name):
    function = program()
    want = function(ITERABLES[name])
    compiled = capture(function, "eager")
    for _ in range(2):
        got = compiled(ITERABLES[name])
        pairs = zip([each for each in EXPRESSIONS for _ in range(2)], want, got, strict=True)
        assert [(e, w, g) for e, w, g in pairs if str(w) != str(g)] == []
