"""Classes derived from builtin containers, numbers and texts: each way to make an object of each, and each operation on it, as Python has it."""

from __future__ import annotations

import collections
import copy
import enum

import pytest
import torch

from opmill_bytecode_frontend import capture


def forwarding(base):
    """A class whose ``__init__`` passes on what it is given, and keeps how much there is then."""

    class Forwarding(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.n = len(self)

    return Forwarding


def bare(base):
    return type("Bare", (base,), {})


def iterating(base):
    return type("Iterating", (base,), {"__iter__": lambda self: iter(["x", "y"])})


def keeping(base):
    """One that is made of several arguments, and has an attribute."""

    class Keeping(base):
        def __new__(cls, *args):
            made = super().__new__(cls, *args[:1])
            made.told = len(args)
            return made

        def __init__(self, *args):
            super().__init__(*args[: base is set])

    return Keeping


def reading(base):
    """A mapping that has other keys and items than it holds."""
    own = {"__iter__": lambda self: iter(["x"]), "keys": lambda self: ["x", "y"], "__getitem__": lambda self, key: "got"}
    return type("Reading", (base,), own)


def missing(base):
    return type("Missing", (base,), {"__missing__": lambda self, key: (key, len(self))})


def speaking(base):
    return type("Speaking", (base,), {"__str__": lambda self: "said", "__repr__": lambda self: "shown"})


MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
SEQUENCES = (list, collections.deque)
OF_MAPPINGS = """
c({'a': 1}) | c(a=1, b=2) | c([('a', 1)], b=3) | c() | c(3) | c({}, {}) | c({'a': 1}, {}) | c(list, {'a': 1}) | c(None, a=1) | c(list, a=1)['q']
o.copy() | o.copy() is o | copy.copy(o) | o['q'] | o.get('q') | o.get('a') | dict(o) | {**o} | list(o) | list(o.items()) | len(o) | sorted(o)
dict.copy(o) | list(dict.keys(o)) | o == {'a': 1, 'b': 2} | 'a' in o | o.pop('a') | o.pop('q') | o.popitem() | o.setdefault('q', 5)
o.update(z=1) | o.update({'z': 1}, y=2) | o.clear() | c.fromkeys('ab') | bool(o) | list(reversed(o)) | max(o) | next(iter(o)) | repr(o) | f'{o}'
"""
OF_TUPLES = """
c([1, 2]) ; c() ; c(3) ; c([1], 2) ; c([1], a=2) ; c(a=1) ; c('ab') ; o + (1,) ; (1,) + o ; o * 2 ; o == (3, 1, 2) ; list(o) ; len(o) ; o[0] ; o[:1] ; o[9]
o.index(1) ; o.count(1) ; 1 in o ; hash(o) == hash((3, 1, 2)) ; tuple(o) ; sorted(o) ; max(o) ; bool(o) ; repr(o) ; '%s-%s-%s' % o ; [*o] ; o < (4,)
o in ['a', o] ; o in 'abc' ; o in b'abc' ; None in 'abc' ; [] in 'abc' ; c in b'abc' ; 97 in b'abc' ; 'a' in b'abc' ; copy.copy(o) ; {o: 1}[(3, 1, 2)]
"""
JOINED = ("o | {'z': 1}", "{'z': 1} | o", "o | o", "o.__or__({'z': 1})", "dict.__or__(o, {'z': 1})", "o | 3")
OF_SEQUENCES = """
c([1, 2]) ; c() ; c(3) ; c([1], 2) ; c([1], 2, 3) ; c('ab') ; o.copy() ; copy.copy(o) ; o + c([1]) ; o * 2 ; 2 * o ; o == c([3, 1, 2]) ; list(o) ; len(o)
o[0] ; o[-1] ; o[9] ; o.index(1) ; o.count(1) ; 1 in o ; o.append(5) ; o.extend('ab') ; o.pop() ; o.reverse() ; o.remove(1) ; o.insert(1, 'i')
o.clear() ; bool(o) ; list(reversed(o)) ; max(o) ; sorted(o, key=str) ; repr(o) ; f'{o}' ; tuple(o) ; [*o] ; o.__iadd__([7])
"""
OF_SETS = """
c([1, 2]) ; c() ; c(3) ; c([1], [2]) ; c('a') ; o.copy() ; copy.copy(o) ; o == {1, 2} ; sorted(o, key=str) ; len(o) ; 1 in o ; o - {1} ; {1} - o ; bool(o)
o.union([1]) ; o.issubset([1, 2, 3]) ; max(o, key=str) ; frozenset(o) == o ; o | {1} ; {1} | o ; o & {1} ; o ^ {1}
"""
FORMATS = ("", ">6", "d", ".2f", "s")
SAID = ["str(o)", "repr(o)", "'%s' % (o,)", "'{}'.format(o)", "f'{o!r:>8}'", "f'{o!s:>8}'", "[o]", "o + o", "o * 2", "o == o", "hash(o) == hash(c(o))"] + [
    form.format(spec) for spec in FORMATS for form in ("f'{{o:{}}}'", "format(o, '{}')", "o.__format__('{}')", "'{{:{}}}'.format(o)")
]  # fmt: skip


def split(text, by):
    return [each.strip() for line in text.strip().splitlines() for each in line.split(by)]


class Level(enum.IntEnum):
    LOW = 5

    def __str__(self):
        return "level"


class Name(str, enum.Enum):  # noqa: UP042
    A = "aa"

    def __str__(self):
        return "name"


CASES = (
    {
        f"{kind.__name__} {base.__name__}": (kind(base), f"c({'list, ' * (base is collections.defaultdict)}a=1, b=2)", [*split(OF_MAPPINGS, "|"), *JOINED])
        for base in MAPPINGS
        for kind in (bare, forwarding, iterating, missing, *([reading] if base is not collections.Counter else ()))
    }
    | {
        f"{kind.__name__} {base.__name__}": (kind(base), "c([3, 1, 2])", split(OF_SEQUENCES, ";"))
        for base in SEQUENCES
        for kind in (bare, forwarding, iterating)
    }
    | {f"{kind.__name__} {base.__name__}": (kind(base), "c([1, 2])", split(OF_SETS, ";")) for base in (set, frozenset) for kind in (bare, iterating, keeping)}
    | {f"{kind.__name__} tuple": (kind(tuple), "c([3, 1, 2])", split(OF_TUPLES, ";")) for kind in (bare, keeping)}
    | {f"speaking {type(v).__name__}": (speaking(type(v)), f"c({v!r})", SAID) for v in (5, 2.5, "ab", 1j)}
    | {kind.__name__: (kind, f"c({member.value!r})", SAID) for kind in (Level, Name) for member in kind}
)  # fmt: skip


def outcome(value):
    return type(value).__name__, repr(value), getattr(value, "default_factory", None), repr(getattr(value, "__dict__", None))


def program(made, expressions):
    """A function of each expression in turn, with a new object for each."""
    lines = ["def program(x, c):", "    found = []"]
    for each in expressions:
        lines += [
            "    try:",
            f"        o = {made}",
            f"        found.append(({each}, o))",
            "    except Exception as error:",
            "        found.append((type(error), str(error)))",
        ]
    names = {"copy": copy}
    exec("\n".join([*lines, "    return found, x + 1"]), names)
    return names["program"]


@pytest.mark.parametrize("name", CASES)
def test_as_in_python(name):
    cls, made, expressions = CASES[name]
    function = program(made, expressions)
    x = torch.ones(2)
    want = [tuple(map(outcome, each)) for each in function(x, cls)[0]]
    compiled = capture(function, "eager")
    for _ in range(2):
        got = [tuple(map(outcome, each)) for each in compiled(x, cls)[0]]
        assert [(e, w, g) for e, w, g in zip(expressions, want, got, strict=True) if w != g] == []
