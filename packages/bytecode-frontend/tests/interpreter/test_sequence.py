"""Lists, tuples and slices in captured code, against Python."""

from collections import namedtuple

import pytest
from differing import attempt, differs

Point = namedtuple("Point", "x y", defaults=[0])


def _slices():
    out = []
    for s in (slice(None), slice(1, 3), slice(None, None, -1), slice(-2, None), slice(5, 1), slice(3, 0, -2), slice(None, None, 2)):
        a = list(range(5))
        out.append((a[s], s.indices(5), attempt(lambda a=a, s=s: a.__setitem__(s, "ab")), a))
        b = list(range(5))
        del b[s]
        out.append(b)
    return out


def _sorted():
    words = ["bb", "a", "ccc", "dd"]
    words.sort(key=len, reverse=True)
    again = sorted([3, 1, 2], key=lambda k: -k)
    return words, again, attempt(lambda: [1, "a"].sort()), sorted([(1, "b"), (1, "a")]), attempt(lambda: [1].sort(lambda a: a))


def _while_sorting():
    a = [3, 1, 2]

    def key(k):
        a.append(k)
        return k

    return attempt(lambda: a.sort(key=key)), a


PROGRAMS = {
    "slices": lambda x: _slices(),
    "sorted": lambda x: _sorted(),
    "changed while sorted": lambda x: _while_sorting(),
    "of no step": lambda x: [attempt(lambda: [1][::0]), attempt(lambda: [1]["a"]), attempt(lambda: (1,)[1.0]), attempt(lambda: [1][None])],
    "of the wrong size": lambda x: [
        attempt(lambda: [1, 2, 3].__setitem__(slice(None, None, 2), [1])),
        attempt(lambda: [1].__setitem__(slice(0, 1), 5)),
    ],
    "indices": lambda x: [attempt(lambda k=k: [10, 20, 30][k]) for k in (0, -1, 2, 3, -4, True)],
    "search": lambda x: (
        [1, 2, 1].index(1, 1),
        [1, 2, 1].count(1),
        attempt(lambda: [1].index(2)),
        attempt(lambda: (1,).index(2)),
        1.0 in [1],
        attempt(lambda: [].remove(3)),
    ),
    "the same object is in": lambda x: _nan(),
    "sums": lambda x: (
        [1] + [2],
        (1,) + (2,),
        attempt(lambda: [1] + (2,)),
        attempt(lambda: (1,) + [2]),
        [1] * 3,
        2 * (1,),
        [1] * -1,
        attempt(lambda: [1] * 1.0),
    ),
    "in place": lambda x: _in_place(),
    "comparisons": lambda x: (
        [1, 2] < [1, 3],
        (1,) < (1, 0),
        [1] == (1,),
        [[1]] == [[1]],
        attempt(lambda: [1] < (2,)),
        attempt(lambda: [1] < ["a"]),
    ),
    "insertion": lambda x: _insertion(),
    "grown while it is gone through": lambda x: _grown(),
    "named": lambda x: (
        Point(1),
        Point(y=2, x=1),
        Point(1, 2)._replace(y=5),
        Point(1)._asdict(),
        Point._fields,
        Point(1).x,
        Point._make([3, 4]),
        attempt(lambda: Point()),
    ),
    "named are tuples": lambda x: (
        Point(1, 2) == (1, 2),
        Point(1) + (3,),
        len(Point(1)),
        isinstance(Point(1), tuple),
        attempt(lambda: setattr(Point(1), "x", 3)),
        hash(Point(1, 2)) == hash((1, 2)),
    ),
    "unpacked": lambda x: [
        attempt(
            _two,
        )
        if False
        else attempt(lambda v=v: _two(v))
        for v in ([1, 2], [1], (1, 2, 3), "ab", {1: 2, 3: 4}, 5)
    ],
    "starred": lambda x: [attempt(lambda v=v: _starred(v)) for v in ([1], [1, 2], "abcd", range(3), [])],
    "text": lambda x: (repr([1, "a", (2,)]), str(()), repr(slice(1, None, 2)), repr([[]])),
    "recursive": lambda x: _recursive(),
    "slice objects": lambda x: (
        slice(1) == slice(None, 1, None),
        slice(1, 2).start,
        attempt(lambda: slice(1, "a").indices(3)),
        slice(0, 9, 2).indices(4),
        attempt(lambda: slice(1).indices(-1)),
    ),
    "copies": lambda x: _copies(),
    "ranges": lambda x: (
        range(5)[1:4],
        list(range(5, 0, -2)),
        3 in range(0, 9, 3),
        range(3) == range(0, 3, 1),
        len(range(10, 0)),
        range(9)[-1],
        attempt(lambda: range(3)[5]),
        range(10).index(4),
        attempt(lambda: range(1.5)),
    ),
}


def _nan():
    nan = float("nan")
    return nan in [nan], [nan].index(nan), [nan] == [nan], [float("nan")] == [nan], [nan].count(nan)


def _in_place():
    a, t = [1], (1,)
    b, u = a, t
    a += "bc"
    a *= 2
    t += (2,)
    return a, a is b, t, t is u, attempt(lambda: _add_int([1]))


def _add_int(a):
    a += 5


def _insertion():
    a = [1, 2, 3]
    a.insert(-1, "x")
    a.insert(99, "y")
    a.insert(-99, "z")
    return a, a.pop(), a.pop(0), a.pop(-2), a, attempt(lambda: a.pop(9)), attempt(lambda: [].pop())


def _grown():
    a, seen = [1, 2], []
    for k in a:
        seen.append(k)
        if len(a) < 5:
            a.append(k * 10)
    return a, seen


def _two(v):
    a, b = v
    return a, b


def _starred(v):
    a, *b, c = v
    return a, b, c


def _recursive():
    a = [1]
    a.append(a)
    return a[1] is a, len(a), repr(a)


def _copies():
    a, t = [[1]], (1,)
    b = a.copy()
    return b is a, b[0] is a[0], tuple(t) is t, t[:] is t, list(a) is a, a[:] == a


BROKEN = ("sorted", "named are tuples")
"""Those that end the graph."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_sequences_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in BROKEN)
