"""Dictionaries and their views in captured code, against Python."""

from collections import ChainMap, Counter, OrderedDict, defaultdict
from types import MappingProxyType

import pytest
from differing import attempt, differs


def _order():
    d = {"a": 1, "b": 2}
    d["a"] = 3
    d.pop("b")
    d["c"] = 4
    d["b"] = 5
    return list(d), list(reversed(d)), d.popitem(), d


def _views():
    d = {"a": 1, "b": 2}
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    return (
        list(keys),
        list(values),
        list(items),
        "c" in keys,
        ("a", 1) in items,
        3 in values,
        sorted(keys & {"a", "z"}),
        sorted(keys | "z"),
        sorted(items - {("a", 1)}),
        keys == {"a", "b", "c"},
        len(items),
    )


def _changed():
    d = {1: 2}
    for k in d:
        d[k + 1] = 0


def _default():
    d = defaultdict(list, a=[0])
    d["a"].append(1)
    d["b"].append(2)
    return d, "c" in d, d.get("c"), d, d.default_factory, attempt(lambda: defaultdict()["x"]), attempt(lambda: defaultdict(3))


def _ordered():
    d = OrderedDict(a=1, b=2, c=3)
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    return list(d.items()), d.popitem(last=False), d == {"b": 2, "a": 1}, d == OrderedDict(a=1, b=2), attempt(lambda: d.move_to_end("z"))


def _counted():
    c = Counter("abracadabra")
    c.update("zz")
    c.subtract("aaaaaaa")
    return (
        c.most_common(2),
        c["nothing"],
        "nothing" in c,
        +c,
        c - Counter("b"),
        sum(c.values()),
        sorted(c.elements()),
        c & Counter("br"),
        attempt(lambda: Counter(a="x") + Counter()),
    )


def _merged():
    d = {"a": 1}
    e = d
    d |= {"b": 2}
    d.update({"a": 3}, c=4)
    d.update([("d", 5)])
    return (
        d,
        d is e,
        {"a": 1} | {"a": 2},
        {**d, "a": 0},
        attempt(lambda: d.update([1])),
        attempt(lambda: d.update(["abc"])),
        attempt(lambda: d | [1]),
    )


def _proxy():
    d = {"a": 1}
    p = MappingProxyType(d)
    d["b"] = 2
    return dict(p), p["b"], "b" in p, attempt(lambda: p.__setitem__("c", 3)), p == d, p | {"z": 0}


class Keyed(dict):
    def __missing__(self, key):
        return key * 2


PROGRAMS = {
    "order": lambda x: _order(),
    "views": lambda x: _views(),
    "changed while it is gone through": lambda x: attempt(_changed),
    "defaultdict": lambda x: _default(),
    "OrderedDict": lambda x: _ordered(),
    "Counter": lambda x: _counted(),
    "merged": lambda x: _merged(),
    "proxies": lambda x: _proxy(),
    "missing keys": lambda x: [
        attempt(lambda: {}["a"]),
        attempt(lambda: {}.pop("a")),
        {}.pop("a", 3),
        {}.get("a", 4),
        {}.setdefault("a", 5),
        attempt(lambda: {}.popitem()),
        attempt(lambda: {}.__delitem__(1)),
    ],
    "__missing__": lambda x: (Keyed(a=1)["a"], Keyed()["b"], Keyed().get("b"), attempt(lambda: Keyed()[3]), "b" in Keyed()),
    "keys that are equal": lambda x: (dict([(1, "a"), (1.0, "b"), (True, "c")]), {0.0: 1}[-0.0], {"a": 1} == {"a": 1.0}),
    "what is no key": lambda x: [attempt(lambda: {[]: 1}), attempt(lambda: {}[{}]), attempt(lambda: [] in {}), attempt(lambda: {}.get([]))],
    "made of pairs": lambda x: (
        dict([("a", 1)]),
        dict(zip("ab", range(2))),
        dict({"a": 1}, b=2),
        dict.fromkeys("ab", 0),
        attempt(lambda: dict([(1, 2, 3)])),
        attempt(lambda: dict(5)),
        attempt(lambda: dict({}, {})),
    ),
    "comprehensions": lambda x: ({k: v for k, v in zip("ab", "cd")}, {v: k for k, v in {"a": 1}.items() if v}),
    "twice in a call": lambda x: attempt(lambda one={"a": 1}, two={"a": 2}: dict(**one, **two)),
    "ChainMap": lambda x: (
        ChainMap({"a": 1}, {"a": 2, "b": 3})["b"],
        dict(ChainMap({"a": 1}, {"a": 2, "b": 3})),
        attempt(lambda: ChainMap({})["z"]),
    ),
    "text": lambda x: (
        repr({"a": [1]}),
        str({}),
        repr(OrderedDict(a=1)),
        repr(defaultdict(int, a=1)),
        repr({}.keys()),
        repr(Counter("aab")),
    ),
    "copies": lambda x: _copies(),
    "of tensors": lambda x: {k: v.sum() for k, v in {"one": x, "two": x * 2}.items()},
}


def _copies():
    d = {"a": [1]}
    e = d.copy()
    return e is d, e["a"] is d["a"], dict(d) == d, type(Counter(a=1).copy()), type(defaultdict(int).copy())


BROKEN = ("text",)
"""Those that end the graph."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_dictionaries_are_pythons(name):
    differs(lambda x: (PROGRAMS[name](x), x + 1), whole=name not in BROKEN)
