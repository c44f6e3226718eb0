"""``copy.copy`` and ``copy.deepcopy`` in captured code, against Python."""

import array
import ast
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import pathlib
import random
import re
import types
from dataclasses import dataclass, field

import pytest
import torch
from differing import attempt, differs, told

from opmill_bytecode_frontend import capture


@dataclass
class Node:
    value: int
    items: list = field(default_factory=list)
    other: object = None


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Own:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        told("copy")
        return Own(self.v + 1)

    def __deepcopy__(self, memo):
        told("deepcopy")
        return Own(self.v + 2)


class Kept(list):
    pass


Pair = collections.namedtuple("Pair", "a b")


def _shared():
    inner = [1]
    both = [inner, inner, (inner,)]
    deep, flat = copy.deepcopy(both), copy.copy(both)
    return deep[0] is deep[1], deep[2][0] is deep[0], deep[0] is inner, flat[0] is inner, flat is both


def _cycle():
    node = Node(1)
    node.other = node
    node.items.append(node)
    deep = copy.deepcopy(node)
    return deep.other is deep, deep.items[0] is deep, deep is node, copy.copy(node).other is node


def _memo():
    memo = {}
    a = [1]
    b = copy.deepcopy(a, memo)
    return copy.deepcopy(a, memo) is b, b is a


def _subclass():
    a = Kept([1, [2]])
    a.note = [3]
    b, c = copy.copy(a), copy.deepcopy(a)
    return type(b), b == a, b.note is a.note, type(c), c.note, c.note is a.note, c[1] is a[1]


PROGRAMS = {
    "shared parts": lambda x: _shared(),
    "cycles": lambda x: _cycle(),
    "memo": lambda x: _memo(),
    "own methods": lambda x: (copy.copy(Own(1)).v, copy.deepcopy([Own(1)])[0].v),
    "slots": lambda x: (copy.copy(Slotted(3)).a, attempt(lambda: copy.copy(Slotted(3)).b), copy.deepcopy(Slotted([1])).a),
    "derived lists": lambda x: _subclass(),
    "immutable": lambda x: [
        copy.copy(v) is v and copy.deepcopy(v) is v for v in (1, "a", None, (1, 2), frozenset({1}), len, int, 1.5, ...)
    ],
    "tuples of what changes": lambda x: ((t := ([1],)), copy.copy(t) is t, copy.deepcopy(t) is t, copy.deepcopy(Pair([1], 2))),
    "containers": lambda x: [
        copy.deepcopy(v)
        for v in ({"a": [1]}, {1, 2}, collections.deque([1], 3), collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]))
    ],
    "namespaces": lambda x: (copy.copy(types.SimpleNamespace(a=1)), copy.deepcopy(types.SimpleNamespace(a=[1]))),
    "dataclasses": lambda x: (copy.deepcopy(Node(1, [Node(2)])), copy.copy(Node(1)) == Node(1)),
    "tensors": lambda x: [(d := copy.deepcopy([x, x]))[0] is d[1], d[0] is x, d[0] + 1, copy.copy(x) is x],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_copies_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in ("memo", "tensors"))


@dataclasses.dataclass
class Settings:
    rate: float
    count: int = 2
    inner: dict = dataclasses.field(default_factory=dict)


NUMBERS = {
    "a float": "copy.deepcopy(s)",
    "a size": "copy.deepcopy(x.shape[0]), copy.copy(x.shape[0] * 2)",
    "in a list": "copy.deepcopy({'a': [s, (s, x.shape[0])]})",
    "of data classes": "dataclasses.asdict(Settings(s, x.shape[0], {'s': s})), dataclasses.astuple(Settings(s))",
    "sizes": "copy.deepcopy(x.shape), type(copy.copy(x.shape)), copy.deepcopy([x.size()])",
    "computed": "copy.deepcopy(s * x.shape[0] + 1)",
}


@pytest.mark.parametrize("text", NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_change_are_their_own_copies(text):
    names = {"copy": copy, "dataclasses": dataclasses, "Settings": Settings}
    exec(f"def program(x, s):\n    return x * s, {text}", names)
    graphs: list = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(names["program"], backend, fullgraph=True)
    for n in range(3, 8):
        want, got = (call(torch.ones(n), n / 2) for call in (names["program"], compiled))
        assert repr(want) == repr(got)
    assert len(graphs) <= 2


def derived(kind, *args, **kwargs):
    made = types.new_class("Derived", (kind,))(*args, **kwargs)
    made.extra = [1, 2]
    return made


class Letters(enum.StrEnum):
    A = "a"


GIVEN = {
    "a tree": lambda: ast.parse("def f(x: int = 1): return [x]"),
    "a node": lambda: ast.Name("a", ast.Load()),
    "a node without parts": ast.Load,
    "a namespace": lambda: types.SimpleNamespace(a=[1]),
    "a member": lambda: Letters.A,
    "a date": lambda: datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    "a fraction": lambda: fractions.Fraction(1, 3),
    "a decimal": lambda: decimal.Decimal("1.5"),
    "a path": lambda: pathlib.PurePath("a/b"),
    "a stream": lambda: io.BytesIO(b"abc"),
    "a partial": lambda: functools.partial(sorted, [1]),
    "an array": lambda: array.array("i", [1]),
    "a pattern": lambda: re.compile("a+"),
    "an error": lambda: OSError(2, "text", "name"),
} | {
    f"derived from {kind.__name__}": functools.partial(derived, kind, *args)
    for kind, *args in (
        (int, 3), (float, 1.5), (complex, 1j), (str, "a"), (bytes, b"a"), (tuple, (1, [2])), (frozenset, {1}), (list, [1, [2]]), (set, {1}),
        (dict, {"a": [1]}), (collections.OrderedDict, {"a": [1]}), (collections.deque, [1]), (collections.Counter, "aab"), (bytearray, b"a"),
        (array.array, "i", [1]), (decimal.Decimal, "1.5"), (datetime.date, 2020, 1, 2), (random.Random, 1), (ast.Name, "a"),
        (types.SimpleNamespace,), (functools.partial, sorted, [1]), (ValueError, "a"),
    )
}  # fmt: skip


def seen(value, depth=0):
    """What there is to see of an object: its class, its text, its attributes."""
    text = ast.dump(value) if isinstance(value, ast.AST) else re.sub("0x[0-9a-f]+", "", repr(value))
    held = vars(value) if hasattr(value, "__dict__") else {}
    return type(value), text, sorted((name, seen(each, depth + 1)) for name, each in held.items()) if depth < 3 else ()


def flat(value):
    return copy.copy(value)


def deep(value):
    return copy.deepcopy(value)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("program", [flat, deep])
def test_copies_of_what_is_given_are_pythons(program, name):
    own = types.FunctionType(program.__code__.replace(co_name=program.__name__), globals())
    compiled, value = capture(own, "eager"), GIVEN[name]()
    for _ in range(2):
        got, want = compiled(value), program(value)
        assert seen(got) == seen(want)
        assert isinstance(value, datetime.date) or (got is value) == (want is value)  # a date does not change: it may be its own copy
        if hasattr(value, "extra") and hasattr(want, "extra"):
            assert (got.extra is value.extra) == (want.extra is value.extra)
