"""Sets in captured code, operation by operation, against Python."""

import pytest
from differing import attempt, differs

A, B = frozenset("abcd"), {"c", "d", "e"}
PROGRAMS = {
    "operators": lambda x: [
        attempt(lambda op=op: sorted(op({1, 2, 3}, {2, 3, 4}))) for op in (set.__or__, set.__and__, set.__sub__, set.__xor__)
    ],
    "methods of any iterable": lambda x: [
        sorted({1, 2}.union([3], (4,), {5: 0})),
        sorted({1, 2, 3}.intersection([2, 3], [3])),
        sorted({1, 2, 3}.difference("a", [1])),
        sorted({1, 2}.symmetric_difference([2, 3, 3])),
    ],
    "operators take sets alone": lambda x: [attempt(lambda: {1} | [2]), attempt(lambda: {1} <= [1]), attempt(lambda: frozenset() - ())],
    "comparisons": lambda x: (
        {1} < {1, 2},
        {1} <= {1},
        {1, 2} > {3},
        {1} == frozenset({1}),
        {1} != {2},
        {1}.isdisjoint([2]),
        {1}.issubset([1, 2]),
    ),
    "the left one gives the type": lambda x: [type({1} | frozenset({2})), type(frozenset({1}) | {2}), type(frozenset({1}).union([2]))],
    "in place": lambda x: _in_place(),
    "a frozen one in place is another": lambda x: _frozen_in_place(),
    "keys that are equal": lambda x: ({1, 1.0, True}, {0.0, -0.0, False}, len({float("nan"), float("nan")})),
    "what is no key": lambda x: [
        attempt(lambda: {[]}),
        attempt(lambda: {1}.add({})),
        attempt(lambda: [] in {1}),
        attempt(lambda: {2} in {frozenset({2})}),
    ],
    "removal": lambda x: _removal(),
    "of an empty one": lambda x: [
        attempt(lambda: set().pop()),
        attempt(lambda: set().remove(3)),
        set().discard(3),
        bool(set()),
        len(set()),
    ],
    "comprehensions": lambda x: (sorted({k % 3 for k in range(10)}), {k for k in () if k}, {(k, v) for k, v in {1: 2}.items()}),
    "unpacking": lambda x: sorted({*[1, 2], *(2, 3), *{4: 5}}),
    "changed while it is gone through": lambda x: attempt(lambda: _changed({1, 2})),
    "copies": lambda x: _copies(),
    "hashes": lambda x: (
        hash(frozenset({1, 2})) == hash(frozenset({2, 1})),
        attempt(lambda: hash({1})),
        {frozenset({1}): 2}[frozenset([1])],
    ),
    "of before": lambda x: (sorted(A & B), sorted(B - A), "a" in A, len(B), A.isdisjoint(B)),
    "text": lambda x: (str({1}), repr(frozenset({"a"})), str(set()), repr(frozenset())),
    "wrong arguments": lambda x: [
        attempt(lambda: set(1)),
        attempt(lambda: set([1], [2])),
        attempt(lambda: {1}.add()),
        attempt(lambda: set(x=1)),
    ],
}


def _in_place():
    s = {1, 2, 3}
    t = s
    s |= {4}
    s &= {2, 3, 4}
    s -= {2}
    s ^= {3, 9}
    s.update([5], (6,))
    s.intersection_update([4, 5, 6, 9])
    s.difference_update([5])
    s.symmetric_difference_update([6, 7])
    return sorted(s), s is t


def _frozen_in_place():
    s = frozenset({1})
    t = s
    s |= {2}
    return sorted(s), sorted(t), s is t


def _removal():
    s = {1, 2}
    s.remove(1)
    s.discard(9)
    left = s.pop()
    s.add(3)
    s.clear()
    return left, s, attempt(lambda: s.remove("gone"))


def _changed(s):
    for k in s:
        s.add(k + 10)


def _copies():
    s, f = {1}, frozenset({1})
    return s.copy() is s, f.copy() is f, frozenset(f) is f, set(s) is s


BROKEN = ("operators", "wrong arguments")
"""Those that end the graph."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_sets_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in BROKEN)
