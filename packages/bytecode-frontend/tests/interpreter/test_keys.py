"""Keys whose hash the program tells, searches, proxies, metaclasses."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types

from differing import attempt, differs, told

# ---- keys whose hash the program tells ---------------------------------------------------------------------------------------------


class Key:
    def __init__(self, v):
        self.v = v
        self.fails = False

    def __hash__(self):
        told(("hash", self.v))
        return self.missing if self.fails else self.v % 8

    def __eq__(self, other):
        return told(self.v) == other.v

    def __repr__(self):
        return f"K{self.v}"


def keyed(x):
    d = collections.defaultdict(list)
    d[Key(2)].append(3)
    failing = Key(1)
    e = {failing: 1, (Key(3), 4): 5}
    failing.fails = True
    return dict(d), e, {Key(3), Key(1)}, [k for k in {Key(3), Key(1)}], frozenset([Key(4)]), attempt(lambda: e[failing]), x + 1


def test_hashes_are_asked_for_as_often_as_in_python():
    differs(keyed)


def test_keys_of_classes_made_in_captured_code_cross_a_break():
    def f(x):
        class Failed(Exception):
            pass

        class Bad:
            fails = False

            def __hash__(self):
                if self.fails:
                    raise Failed
                return 42

        bad = Bad()
        d = {bad: 1}
        bad.fails = True
        n = x.sum().tolist()
        try:
            d.setdefault(bad, n)
        except Failed:
            return len(d), x + 1

    differs(f, whole=False)


class Shrinking:
    def __init__(self, items):
        self.items = items

    def __eq__(self, other):
        told(len(self.items))
        self.items[1:] = []
        return False


def shrinking(x):
    out = []
    for ask in (lambda i: i.index(3), lambda i: i.count(3), lambda i: 3 in i, lambda i: i.remove(3)):
        items = []
        items += [Shrinking(items), 1, 3]
        out += [attempt(lambda ask=ask, items=items: ask(items)), len(items)]
    return out, [1, 2, 1, 3].index(1, -2), [1, 2].index(2, -9, 9), x + 1


def test_lists_that_shrink_while_they_are_searched():
    differs(shrinking)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 0


class Refusing(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value):
        if value == "bad":
            return 5
        raise ZeroDivisionError(value)


def contexts(x):
    out = []
    for value in ("bad", "worse"):
        try:
            Refusing(value)
        except Exception as exc:
            out.append((type(exc).__name__, type(exc.__context__).__name__))
    return out, x + 1


def test_errors_of_builtins_keep_what_they_were_raised_in_the_midst_of():
    differs(contexts)


def test_hashes_are_numbers_as_large_as_the_program_gives_them():
    differs(lambda x: (hash(Frozen()) == hash((0,)), hash(()), {Frozen(2): 3}[Frozen(2)], x + 1))


def proxied(x):
    d = {"a": 1}
    v = types.MappingProxyType(d)
    d["b"] = 2
    d["a"] = 7

    def store():
        v["z"] = 1

    return v["a"], list(v), len(v), list(reversed(v)), v == d, v | {"c": 1}, v.copy(), attempt(store), attempt(lambda: v.pop("a")), d, x + 1


def test_a_mapping_proxy_shows_the_dictionary_as_it_is_now():
    differs(proxied)


class Answering(type):
    def __call__(cls, *args):
        told("call")
        return super().__call__(*args)

    def __getattr__(cls, name):
        return told(name)

    def __bool__(cls):
        return told(False)

    def __eq__(cls, other):
        return told(True)

    def __hash__(cls):
        return 1


class Answered(metaclass=Answering):
    def __init__(self, v):
        self.v = v


def made_by_metaclass(x):
    class Local(type):
        def __new__(meta, name, bases, names):
            return super(Local, meta).__new__(meta, told(name), bases, names)  # noqa: UP008

    class Made(metaclass=Local):
        pass

    return Made.__name__, type(Made).__name__, x + 1


def test_metaclasses_answer_for_their_classes():
    differs(lambda x: (Answered(3).v, Answered.zz, bool(Answered), 1 if Answered else 2, Answered == 3, x + 1))
    differs(made_by_metaclass, whole=False)


class Shown:
    def __repr__(self):
        return told("shown")


KEY = Shown()
TABLE, SET, PLACES = {KEY: 1}, {KEY}, {"k": 1}
PROXY = types.MappingProxyType(PLACES)


def test_objects_are_not_asked_what_they_are_called():
    differs(lambda x: (len(TABLE), len(SET), KEY in TABLE, TABLE[KEY], x + 1))


def stored(x):
    PLACES["z"] = PLACES.get("z", 0) + 1
    return PROXY["z"] == PLACES["z"], len(PROXY), x + 1


def test_a_proxy_of_before_the_call_shows_what_the_call_changes():
    differs(stored)


def test_ordered_dictionaries_compare_their_order():
    O = collections.OrderedDict
    differs(lambda x: (O(a=1, b=2) == O(b=2, a=1), O(a=1, b=2) == dict(b=2, a=1), O(a=1) != O(a=1), x + 1))
