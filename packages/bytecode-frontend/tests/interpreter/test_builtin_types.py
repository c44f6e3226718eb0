"""Builtin containers and generators at their edges: changes during iteration, exceptions and their arguments, classes of results,
identity."""

from __future__ import annotations

import copy
import importlib.metadata
from collections import OrderedDict, defaultdict, deque

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture


class Ordered(OrderedDict):
    pass


class Defaults(defaultdict):
    pass


class Queue(deque):
    pass


class Items(list):
    pass


class Doubled(dict):
    def __setitem__(self, key, value):
        dict.__setitem__(self, key, value * 2)


class Reversed(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys


class Counting:
    """Compares by identity, and counts."""

    def __init__(self):
        self.hashed = self.compared = 0

    def __hash__(self):
        self.hashed += 1
        return 42

    def __eq__(self, other):
        self.compared += 1
        return self is other


class Unequal:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise KeyError(3)


class Sending:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 2:
            raise StopIteration(42)
        return self.n

    def send(self, value):
        return ("sent", value)


def tried(*actions):
    out = []
    for action in actions:
        try:
            out.append(action())
        except Exception as exc:
            out.append((type(exc), exc.args))
    return out


class Pairs:
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return i * 2


def backwards(a, b):
    given = (
        reversed(range(2**64)),
        reversed("abc"),
        reversed((1, 2)),
        reversed([1, 2]),
        reversed(b"ab"),
        reversed({1: 2}),
        reversed(Pairs()),
    )
    kinds = [type(each).__name__ for each in given]
    firsts = [next(each) for each in given]
    return kinds, firsts, tried(lambda: reversed(5), lambda: reversed({1}), lambda: len(range(2**70))), next(iter(range(2**70))), a + 1


def divided(a, b):
    return tried(lambda: divmod(a, 2), lambda: divmod("a", 2), lambda: round(a), lambda: divmod(7, 2), lambda: divmod(7.5, 2)), a + 1


def walking(a, b):
    def replace_key():
        d = {0: 0}
        for _ in d:
            del d[0]
            d[0] = 0

    def grow():
        d = {0: 0}
        for k, _ in d.items():
            d[k + 1] = 0

    def reorder():
        d = OrderedDict(a=1, b=2)
        for k in d:
            d.move_to_end(k)

    def grow_set():
        s = {1}
        for _ in s:
            s.add(5)

    def grow_deque():
        q = deque([1])
        for _ in q:
            q.append(2)

    return tried(replace_key, grow, reorder, grow_set, grow_deque), a + 1


def iterators(a, b):
    items = [1]
    done = iter(items)
    list(done)
    items.append(3)
    backwards = reversed(items)
    items.pop()
    return list(done), list(backwards), list(reversed(deque([1, 2]))), a + 1


def keys_of_the_program(a, b):
    first, second = Counting(), Counting()
    d = {first: 5}
    d.setdefault(second, 1)
    return (
        first.hashed,
        second.hashed,
        first.compared + second.compared,
        set(d) == {first, second},
        tried(lambda: {Unequal(): 1} == {1: 1}),
        a + 1,
    )


def classes_of_results(a, b):
    o, d, q = Ordered([(1, 2)]), Defaults(list, {1: [2]}), Queue([1, 2, 3], 3)
    made = [
        o.copy(),
        o | {3: 4},
        {5: 6} | o,
        d.copy(),
        d | {},
        {} | defaultdict(int),
        q.copy(),
        q + deque([3]),
        q * 2,
        Doubled.fromkeys("xy", 2),
        dict.fromkeys([1]),
    ]
    return [type(v) for v in made], [list(v) for v in made], d.copy().default_factory, q.copy().maxlen, dict(Reversed(a=1, b=2)), a + 1


class Unique(set):
    pass


ITEMS, UNIQUE, QUEUE, ORDERED = Items([1, 2]), Unique([1, 2]), Queue([1, 2]), Ordered(a=1)


def operators_of_derived_classes(a, b):
    m, u, q, o = Items([1, 2]), Unique([1, 2]), Queue([1, 2]), Ordered(a=1)
    lists = [
        m == ITEMS,
        m == [1, 2],
        [1, 2] == ITEMS,
        ITEMS < Items([3]),
        [0] + m,
        m + [0],
        m + ITEMS,
        m != Items([5]),
        ITEMS in [m],
        [ITEMS].index(m),
    ]
    sets = [
        u == UNIQUE,
        u == {1, 2},
        {1, 2} == u,
        UNIQUE | {3},
        {3} | UNIQUE,
        u & UNIQUE,
        {1} <= u,
        u.union(UNIQUE),
        {1, 2, 3} - u,
        u ^ {5},
        UNIQUE.issubset(u),
    ]
    deques = [q == QUEUE, q == deque([1, 2]), deque([1, 2]) == QUEUE, QUEUE + deque([1]), q < Queue([3])]
    return lists, sets, deques, [o == ORDERED, o == {"a": 1}, {"a": 1} == o, o != ORDERED], a + 1


def bounded(a, b):
    q = deque([1, 2, 3], maxlen=3)
    out = tried(
        lambda: q.insert(0, 5),
        lambda: q[0:1],
        lambda: q + [1],
        lambda: q.remove(9),
        lambda: q.index(9),
        lambda: q == [1, 2, 3],
        lambda: q == deque([1, 2, 3]),
    )
    q *= 2
    q.rotate(1)
    q.extendleft([7, 8])
    return out, q, q.maxlen, repr(q), Queue([1, 2], 1).maxlen, a + 1


def refused(a, b):
    items = [1, 2, 3, 4]

    def stretch():
        items[::2] = [1]

    again = Items([1])
    again.__init__([5, 6])
    actions = [lambda: Items(sequence=1), lambda: Items(1, 2), lambda: items.index(7), lambda: items[5], lambda: a.shape[3:][3], stretch]
    return tried(*actions), list(again), repr(defaultdict(int, {1: 2})), a + 1


def identities(a, b):
    t, f = (1, 2), frozenset([1])
    return t[:] is t, t * 1 is t, tuple(t) is t, frozenset(f) is f, f.copy() is f, a + 1


def changed_while_compared(a, b):
    class_of = []

    class_of.append([1] == [1])
    return [1, 2] < [1, 3], [1, 2] <= [1, 2], (1,) < (1, 2), class_of, a + 1


def annotations(a, b):
    def g(x: int, *, y: str = "x") -> float: ...

    g.__annotations__["z"] = 1
    return sorted(g.__annotations__), a + 1


def log_of(log):
    try:
        while True:
            try:
                log.append((yield 1))
            except KeyError:
                log.append("key")
                yield 5
            except ValueError:
                return 7
    finally:
        log.append("end")


def delegating(a, b):
    log = []

    def outer():
        log.append((yield from log_of(log)))
        yield 9

    g = outer()
    next(g)
    log += [g.send(3), g.throw(KeyError("x")), next(g), g.throw(ValueError())]
    g.close()
    h = outer()
    next(h)
    h.close()
    return log, a + 1


def sending_to_other_iterators(a, b):
    def outer():
        yield ("returned", (yield from Sending()))

    g = outer()
    return [next(g), g.send(5), next(g), next(g)], a + 1


def stop_iteration_inside(a, b):
    def g():
        yield 1
        raise StopIteration(3)

    return tried(lambda: list(g())), a + 1


def contexts_of_exceptions(a, b):
    def g():
        try:
            raise KeyError("a")
        except KeyError:
            yield 1
            raise IndexError

    out = []
    first, second = g(), g()
    next(first), next(second)
    try:
        first.throw(ValueError)
    except ValueError as exc:
        out.append(repr(exc.__context__))
    try:
        raise TypeError
    except TypeError:
        try:
            next(second)
        except IndexError as exc:
            out += [repr(exc.__context__), repr(exc.__context__.__context__)]
    return out, a + 1


PROGRAMS = [
    operators_of_derived_classes, backwards, divided, walking, iterators, keys_of_the_program, classes_of_results, bounded, refused, identities, changed_while_compared, annotations, delegating,
    sending_to_other_iterators, stop_iteration_inside, contexts_of_exceptions,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_program(fn, check):
    check(fn)


def test_the_content_of_a_deque_is_guarded():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(lambda q, x: x + q[0], backend, fullgraph=True)
    x = torch.ones(2)
    for first, count in ((1, 1), (1, 1), (5, 2), (1, 2)):
        assert torch.equal(compiled(Queue([first, 2]), x), x + first)
        assert len(graphs) == count


class Hashed(list):
    """A key with a hash of its own, as functools makes them."""

    __slots__ = ("value",)

    def __init__(self, items):
        self[:] = items
        self.value = hash(items)

    def __hash__(self):
        return self.value


def test_keys_of_a_derived_class_are_found_again():
    cache, hits = {}, []

    def cached(x, *args):
        key = Hashed(args)
        found = cache.get(key)
        if found is None:
            found = cache[key] = sum(args)
        else:
            hits.append(args)
        return x + found

    compiled = capture(cached, "eager", fullgraph=True)
    for args in ((1, 2), (0, 1), (1, 2), (0, 1)):
        assert torch.equal(compiled(torch.zeros(2), *args), torch.full((2,), float(sum(args))))
    assert hits == [(1, 2), (0, 1)] and len(cache) == 2


def for_other_exceptions(log):
    try:
        try:
            yield 1
            yield 2
        except IndexError:
            log.append("index")
        except KeyError as error:
            log.append(error)
    except ValueError:
        log.append("value")


def with_an_end(log):
    try:
        yield 1
        yield 2
    finally:
        log.append("end")


def for_all_exceptions(log):
    try:
        try:
            yield 1
            yield 2
        except IndexError:
            log.append("index")
    except BaseException:
        log.append("all")
        raise


@pytest.mark.parametrize(("generator", "taken"), [(for_other_exceptions, True), (with_an_end, False), (for_all_exceptions, False)])
def test_generators_dropped_half_way(generator, taken):
    def f(x, log):
        return x + next(generator(log))

    want, got = [], []
    f(torch.ones(2), want)
    if taken:
        capture(f, "eager", fullgraph=True)(torch.ones(2), got)
    else:
        with pytest.raises(Unsupported, match="FE076"):
            capture(f, "eager", fullgraph=True)(torch.ones(2), got)
        got.clear()
        capture(f, "eager")(torch.ones(2), got)
    assert got == want


def test_copies_of_ordered_dictionaries_have_their_attributes():
    given = OrderedDict(a=1)
    given.note = "given"

    def f(x):
        made = OrderedDict(b=2)
        made.note = "made"
        return x + 1, copy.copy(given), copy.deepcopy(made)

    for _ in range(2):
        _, first, second = capture(f, "eager")(torch.zeros(2))
        assert (first.note, second.note) == ("given", "made")


def test_what_is_stored_and_taken_again_leaves_nothing_behind():
    def f(x, d):
        d["t"] = x
        d.pop("t", None)
        return x + 1

    compiled = capture(f, "eager", fullgraph=True)
    for given in ({"t": 1}, {}, {"a": 1}, {"t": 2, "a": 1}, {}):
        compiled(torch.ones(2), given)
        assert "t" not in given


def test_lists_of_other_classes_that_the_library_makes(caplog):
    def f(x):
        return x + len(importlib.metadata.entry_points())

    assert torch.equal(capture(f, "eager")(torch.ones(2)), f(torch.ones(2))) and not caplog.records
