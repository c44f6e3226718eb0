"""The match statement in captured code, against Python."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
from differing import attempt, differs, told


@dataclass
class Point:
    x: int
    y: int = 0


class Odd:
    __match_args__ = ("value", "twice")

    def __init__(self, value):
        self.value = value

    @property
    def twice(self):
        return told(self.value * 2)


class Wrong:
    __match_args__ = ["x"]


Pair = namedtuple("Pair", "a b")
LIMIT = 3


class Names:
    limit = LIMIT


def kind(v):
    match v:
        case None | True | False:
            return "single", v
        case Names.limit:
            return "limit"
        case int(n) if n > told(10):
            return "large", n
        case int() | float():
            return "number"
        case "a" | "b" as letter:
            return "letter", letter
        case str():
            return "text"
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [Point(x=0, y=y), *_]:
            return "on axis first", y
        case Pair(a, [b, *c]):
            return "pair", a, b, c
        case (first, *rest, last):
            return "several", first, rest, last
        case {"k": {"deep": d}, **others}:
            return "deep", d, others
        case {"k": value}:
            return "key", value
        case {}:
            return "mapping"
        case Point(0, 0):
            return "origin"
        case Point(x, y) if x == y:
            return "diagonal", x
        case Point(x):
            return "point", x
        case Odd(v, t):
            return "odd", v, t
        case _:
            return "other"


VALUES = [
    None, True, False, 3, 3.0, 11, 5, 2.5, "a", "c", b"a", [], (), [1], (1,), [Point(0, 4), 2], [Point(1), 2], Pair(1, [2, 3, 4]), Pair(1, 2),
    (1, 2), range(4), {"k": {"deep": 1, "more": 2}, "z": 3}, {"k": 5}, {}, {"z": 1}, Point(0), Point(2, 2), Point(1, 2), Odd(4), {1}, object, iter([1]),
]  # fmt: skip


def wrong(v):
    match v:
        case Wrong(1):
            return 1


def too_many(v):
    match v:
        case Point(1, 2, 3):
            return 1


def twice(v):
    match v:
        case {"a": 1, **rest}:
            return rest
        case [*head, 3]:
            return head
    return "unmatched"


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v).partition(" at 0x")[0])
def test_cases(value):
    differs(lambda x: (kind(value), x + 1))


def test_made_in_captured_code():
    differs(lambda x: ([kind(v) for v in (Point(0, 0), [Point(0, 1)], {"k": 1}, (1, 2, 3), "b", Odd(1))], x + 1))
    differs(lambda x: (twice({"a": 1, "b": 2}), twice([1, 2, 3]), twice((3,)), twice("3"), x + 1))


def test_tensors_are_captured_by_patterns():
    def program(x):
        match (x, 1):
            case (t, 1):
                return t * 2

    differs(program)


def test_patterns_that_are_wrong():
    differs(lambda x: (attempt(lambda: too_many(Point(1, 2))), attempt(lambda: wrong(Wrong())), x + 1), whole=False)
