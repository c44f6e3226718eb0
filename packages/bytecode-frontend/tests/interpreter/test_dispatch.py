"""Calls of builtins with arguments of all numbers and kinds: what Python refuses is refused, in its words, and the rest gives the same."""

import builtins
import collections
import copy
import functools
import itertools
import operator
import re
import types

import pytest
import torch
from differing import attempt, run

from opmill_bytecode_frontend import capture

FUNCTIONS = {
    builtins: {
        "abs": (-1,), "all": ([1],), "any": ([0],), "bool": (1,), "callable": (len,), "chr": (65,), "complex": (1, 2), "dict": ([],),
        "divmod": (7, 2), "enumerate": ([1], 1), "filter": (None, [1]), "float": (1,), "format": (1, "d"), "frozenset": ([1],),
        "getattr": ([], "x", 1), "hasattr": ([], "x"), "int": ("1", 10), "isinstance": (1, int), "issubclass": (int, int), "iter": ([1],),
        "len": ([1],), "list": ([1],), "map": (abs, [1]), "max": (1, 2), "min": (1, 2), "oct": (8,), "ord": ("a",), "pow": (2, 3, 5),
        "range": (0, 5, 2), "repr": (1,), "reversed": ([1],), "round": (1.5, 1), "set": ([1],), "slice": (1, 2, 3), "sorted": ([1],),
        "str": (1,), "sum": ([1], 2), "tuple": ([1],), "type": (1,), "vars": (types.SimpleNamespace(a=1),), "zip": ([1], [2]),
    },
    itertools: {
        "accumulate": ([1], operator.add), "chain": ([1],), "combinations": ([1, 2], 1), "compress": ([1], [1]), "count": (1, 2),
        "cycle": ([1],), "filterfalse": (None, [1]), "islice": ([1, 2], 0, 2, 1), "pairwise": ([1],), "product": ([1],), "repeat": (1, 2),
        "starmap": (abs, [(1,)]), "tee": ([1], 2), "zip_longest": ([1],),
    },
    operator: {
        **dict.fromkeys(["add", "sub", "mul", "mod", "pow", "eq", "lt", "and_", "or_", "xor", "is_"], (3, 2)),
        **dict.fromkeys(["getitem", "contains", "countOf", "indexOf", "concat"], ([3], 0)),
        **dict.fromkeys(["neg", "not_", "truth", "abs", "index"], (3,)),
    },
    functools: {"reduce": (operator.add, [1], 1), "partial": (abs,)},
    collections: {"deque": ([1], 2), "OrderedDict": ([],), "defaultdict": (int,), "Counter": ("a",)},
}  # fmt: skip
METHODS = {
    list: ([1, 2], {"append": (1,), "extend": ([1],), "insert": (0, 1), "remove": (1,), "pop": (0,), "index": (1, 0, 2), "count": (1,), "sort": (), "copy": ()}),
    dict: ({"a": 1}, {"get": ("a", 1), "pop": ("a", 1), "setdefault": ("a", 1), "update": ({},), "keys": (), "items": (), "popitem": (), "clear": ()}),
    set: ({1, 2}, {"add": (1,), "remove": (1,), "discard": (1,), "copy": (), "union": ([1],), "issubset": ([1],)}),
    tuple: ((1, 2), {"index": (1, 0, 2), "count": (1,)}),
    str: ("ab", {"split": (" ", 1), "join": (["a"],), "replace": ("a", "b", 1), "find": ("a", 0, 1), "zfill": (3,), "format": (1,)}),
    collections.deque: (collections.deque([1, 2]), {"append": (1,), "insert": (0, 1), "pop": (), "index": (1, 0, 1), "rotate": (1,)}),
    collections.OrderedDict: (collections.OrderedDict(a=1), {"popitem": (True,), "move_to_end": ("a", True)}),
    range: (range(3), {"index": (1,), "count": (1,)}),
    slice: (slice(1), {"indices": (3,)}),
}  # fmt: skip


def variants(args):
    """Fewer arguments, more, and another first one."""
    fewer = [args[:k] for k in range(len(args) + 1)]
    more = [(*args, None), (*args, None, None), (*args, [])]
    return [*fewer, *more, *([(first, *args[1:]) for first in (None, 5, "s", [])] if args else [])]


def seen(result):
    return (type(result).__name__, attempt(lambda: list(itertools.islice(result, 5)))) if hasattr(result, "__next__") else result


def same(program):
    x = torch.ones(1)
    want, got = (re.sub(r"0x[0-9a-f]+", "", str(run(f, x))) for f in (program, capture(program, "eager")))
    assert got == want


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, table in FUNCTIONS.items() for name in table], ids=lambda v: getattr(v, "__name__", v)
)
def test_functions(module, name):
    function, args = getattr(module, name), FUNCTIONS[module][name]
    keywords = [{}, *({word: 1} for word in ("nothing", "key", "default", "start", "strict"))]
    for given, named in [*((v, {}) for v in variants(args)), *((args, words) for words in keywords)]:
        if (module, name, given) != (collections, "OrderedDict", ("s",)):  # whose message is of a class of its own
            same(lambda x, given=given, named=named: (attempt(lambda: seen(function(*copy.copy(given), **named))), x + 1))


@pytest.mark.parametrize(
    ("cls", "name"), [(cls, name) for cls, (_, table) in METHODS.items() for name in table], ids=lambda v: getattr(v, "__name__", v)
)
def test_methods(cls, name):
    owner, table = METHODS[cls]
    for given in variants(table[name]):
        if (name, given[:1]) == ("move_to_end", (None,)):  # Python drops the key from the message
            continue

        def bound(x, given=given):
            it = copy.copy(owner)
            return attempt(lambda: seen(getattr(it, name)(*given))), it, x + 1

        def unbound(x, given=given):
            it = copy.copy(owner)
            return attempt(lambda: seen(getattr(cls, name)(it, *given))), it, x + 1

        same(bound)
        same(unbound)


POWERS = (
    lambda x: pow(x, 2, None),
    lambda x: pow(base=x, exp=2),
    lambda x: pow(2, 5, mod=7),
    lambda x: pow(2, exp=5, mod=None),
    lambda x: pow(2),
    lambda x: pow(x, 2, 3),
    lambda x: pow(2, 3, x),
    lambda x: pow(2.0, 2, 3),
    lambda x: pow(2, -1, 4),
    lambda x: pow(2, 3, by=3),
)


@pytest.mark.parametrize("program", POWERS)
def test_powers_are_called_by_position_and_by_name(program):
    same(lambda x: attempt(lambda: program(x)))


def test_what_classes_have_their_objects_have_not():
    """``type`` has a ``__or__`` and a ``__call__``, and ``None`` and ``5`` have none."""
    same(
        lambda x: (
            [attempt(lambda: None | 2), attempt(lambda: "s" | {1}), attempt(lambda: 5()), attempt(lambda: 1.5 | 2), int | None],
            x + 1,
        )
    )
    same(lambda x: ([attempt(lambda: 1 in 5), attempt(lambda: 1 in None), attempt(lambda: 1 in len), attempt(lambda: 1 not in 1.5)], x + 1))


BESIDE_OPERATORS = (
    "_data_address _has_storage _is_cow_tensor _is_cached_tensor _storage_address _get_tensor_metadata _dispatch_keys".split()
)


@pytest.mark.parametrize("name", BESIDE_OPERATORS)
def test_what_looks_into_a_tensor_without_the_dispatcher_is_given_the_tensor(name):
    """These functions of torch's C++ would look into a fake."""
    ask, x = getattr(torch._C, name), torch.ones(3)

    def program(x):
        y = x * 2
        return str(ask(x)), y + 1

    for _ in range(2):
        told, y = capture(program, "eager")(x)
        assert told == str(ask(x)) and y.tolist() == [3.0] * 3
    with pytest.raises(Exception, match=rf"FE010.*torch\._C\.{name}"):
        capture(program, "eager", fullgraph=True)(x)
