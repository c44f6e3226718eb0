"""Operators and the operator module in captured code, against Python: which method of which operand is asked, and in which order."""

import operator

import pytest
from differing import attempt, differs, told

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul"]
COMPARED = ["lt", "le", "eq", "ne", "gt", "ge"]


def _asked(name, answer):
    def method(self, other):
        told((type(self).__name__, name, type(other).__name__))
        return answer

    return method


def made(label, bases=(object,), answers=NotImplemented, reflected=NotImplemented):
    table = {}
    for name in BINARY:
        plain = name.rstrip("_")
        table |= {f"__{plain}__": _asked(plain, answers), f"__r{plain}__": _asked(f"r{plain}", reflected)}
    table |= {f"__{name}__": _asked(name, answers) for name in COMPARED}
    return type(label, bases, table)


Left, Right = made("Left"), made("Right", reflected="right")
Base = made("Base", answers="base")
Derived = made("Derived", (Base,), reflected="derived")
Same = type("Same", (Base,), {})
NUMBERS = [0, 1, -7, 2.5, -0.0, True, 3 + 1j, 10**20]


@pytest.mark.parametrize(
    "pair",
    [(Left, Right), (Left, Left), (Base, Derived), (Base, Same), (Derived, Base), (Right, Left)],
    ids=lambda p: f"{p[0].__name__} {p[1].__name__}",
)
def test_methods_are_asked_in_pythons_order(pair):
    def program(x):
        left, right = pair[0](), pair[1]()
        return [attempt(lambda name=name: getattr(operator, name)(left, right)) for name in (*BINARY, *COMPARED[:4])], x + 1

    differs(program)


@pytest.mark.parametrize("name", [*BINARY, *COMPARED])
def test_numbers_among_each_other(name):
    function = getattr(operator, name)

    def program(x):
        return [
            attempt(lambda a=a, b=b: function(a, b)) for a in NUMBERS for b in NUMBERS if not (name in ("lshift", "pow") and b == 10**20)
        ], x + 1

    differs(program)


def _in_place():
    class Counted:
        def __init__(self):
            self.seen = []

        def __iadd__(self, other):
            self.seen.append(other)
            return self

        def __sub__(self, other):
            return "minus"

    c = d = Counted()
    c += 1
    e = c
    e -= 2
    return c is d, c.seen, e


PROGRAMS = {
    "in place": lambda x: _in_place(),
    "items": lambda x: (
        operator.getitem([1, 2], -1),
        attempt(lambda: operator.setitem((1,), 0, 2)),
        operator.itemgetter(0, -1)([1, 2, 3]),
        operator.itemgetter("a")({"a": 1}),
        attempt(lambda: operator.itemgetter(5)([1])),
    ),
    "attributes": lambda x: (
        operator.attrgetter("real", "imag")(2 + 1j),
        attempt(lambda: operator.attrgetter("a.b")(1)),
        operator.methodcaller("split", ",", maxsplit=1)("a,b,c"),
        attempt(lambda: operator.attrgetter(1)),
    ),
    "unary": lambda x: [
        attempt(lambda f=f, v=v: f(v))
        for f in (operator.neg, operator.pos, operator.invert, operator.abs, operator.index, operator.not_)
        for v in (3, -2.5, True, "a", None)
    ],
    "searches": lambda x: (
        operator.contains("abc", "b"),
        operator.countOf([1, 2, 1.0], 1),
        operator.indexOf((3, 4), 4),
        attempt(lambda: operator.indexOf([1], 2)),
        operator.length_hint(iter([1, 2])),
        operator.length_hint(5, 3),
    ),
    "chains": lambda x: (1 < 2 < 3, 1 < 3 < 2, 3 > 2 != 2, attempt(lambda: 1 < "a" < None), 1 == 1.0 != None),
    "short circuits": lambda x: (told(0) and told(1), told(0) or told(2), not told([]), told("") or told(None) or told(3)),
    "texts": lambda x: (
        "a" * 3,
        2 * "b",
        operator.mod("%s-%d", ("x", 3)),
        attempt(lambda: "a" + 1),
        attempt(lambda: operator.mod("%d", "a")),
        "ab" < "b",
        attempt(lambda: "a" < 1),
    ),
    "with tensors": lambda x: [
        1 + x,
        2 - x,
        x**2,
        2**x,
        x // 2,
        7 % x,
        -x,
        abs(-x),
        x < 2,
        (x == x).all(),
        operator.matmul(x, x),
        operator.truediv(1, x),
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in ("items", "attributes", "searches"))
