"""``collections.deque`` in captured code, against Python."""

from collections import deque

import pytest
from differing import attempt, differs


def _both_ends():
    d = deque([1, 2, 3])
    d.append(4)
    d.appendleft(0)
    d.extend([5, 6])
    d.extendleft([-1, -2])
    return list(d), d.pop(), d.popleft(), list(d)


def _bounded():
    d = deque([1, 2, 3, 4], maxlen=3)
    seen = [list(d)]
    d.append(5)
    d.appendleft(9)
    d.extend([6, 7])
    seen.append(list(d))
    return seen, d.maxlen, attempt(lambda: d.insert(1, 2)), d.copy().maxlen


def _turned():
    d = deque(range(5))
    d.rotate(2)
    first = list(d)
    d.rotate(-7)
    d.reverse()
    return first, list(d)


def _changed():
    d = deque([1, 2])
    for k in d:
        d.append(k)


def _items():
    d = deque("abcab")
    d[1] = "x"
    del d[0]
    d.insert(1, "y")
    d.remove("a")
    return (
        list(d),
        d.index("x"),
        d.count("b"),
        d[-1],
        attempt(lambda: d[9]),
        attempt(lambda: d.remove("z")),
        attempt(lambda: d.index("x", 1)),
    )


PROGRAMS = {
    "both ends": lambda x: _both_ends(),
    "bounded": lambda x: _bounded(),
    "turned": lambda x: _turned(),
    "items": lambda x: _items(),
    "no slices": lambda x: attempt(lambda: deque([1, 2])[0:1]),
    "empty": lambda x: [
        attempt(lambda: deque().pop()),
        attempt(lambda: deque().popleft()),
        bool(deque()),
        len(deque([1])),
        attempt(lambda: deque(maxlen=-1)),
    ],
    "comparisons": lambda x: (deque([1]) == deque([1], 5), deque([1]) == [1], deque([1]) < deque([2]), attempt(lambda: deque([1]) < [2])),
    "sums": lambda x: (list(deque([1]) + deque([2])), attempt(lambda: deque([1]) + [2]), list(deque([1, 2]) * 2), list(2 * deque([1], 1))),
    "in place": lambda x: _in_place(),
    "changed while it is gone through": lambda x: attempt(_changed),
    "of tensors": lambda x: [t.sum() for t in deque([x, x * 2, x * 3], maxlen=2)],
    "text": lambda x: (repr(deque([1, 2])), repr(deque([], 3))),
    "reversed and in": lambda x: (list(reversed(deque([1, 2]))), 2 in deque([1, 2]), 3 not in deque()),
}


def _in_place():
    d = deque([1], maxlen=4)
    e = d
    d += [2, 3]
    d *= 2
    return list(d), d is e, d.maxlen


@pytest.mark.parametrize("name", PROGRAMS)
def test_deques_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1))
