"""The itertools module, as Python generators over tracked values.

What Python does when the iterator is made (asking for iterators, reading whole pools, looking at numbers) is done then; the rest when items
are asked for: programs see the order of what they run themselves."""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ...values.base import MISSING, Machine, Value, find_in_mro
from ...values.constant import ConstantValue, is_none
from ...values.iterators import STOP, PythonIterator
from ...values.sequence import TupleValue, whole
from ..registry import handles
from . import unfinished

NONE = ConstantValue(None)
Walk = Callable[[Machine, Value, Value, list[Value]], Iterator[Value]]


def each(vm: Machine, iterator: Value) -> Iterator[Value]:
    """The items of an iterator, each taken when it is asked for."""
    while (item := vm.next(iterator)) is not STOP:
        yield item


@handles(itertools.chain)
def chain(vm: Machine, *iterables: Value) -> Value:
    """``itertools.chain()``."""
    left, running = list(iterables), list[Value]()

    def run(vm: Machine) -> Iterator[Value]:
        while left:
            running.append(vm.iterate(left.pop(0)))
            yield from each(vm, running[0])
            running.clear()

    return PythonIterator(run, itertools.chain, lambda: [*running, *left])


@handles(itertools.chain.from_iterable, itertools.chain.__dict__["from_iterable"])
def chain_from_iterable(vm: Machine, *args: Value) -> Value:
    """``itertools.chain.from_iterable()``."""
    outer, running = vm.iterate(args[-1]), list[Value]()

    def run(vm: Machine) -> Iterator[Value]:
        for iterable in each(vm, outer):
            running.append(vm.iterate(iterable))
            yield from each(vm, running[0])
            running.clear()

    return PythonIterator(run, itertools.chain, lambda: [outer, *running], unfinished.chain)


def limit(vm: Machine, value: Value) -> int | None:
    """A limit of ``islice``, which says in its own words what is no number, whatever was raised."""
    if isinstance(value, ConstantValue) and (value.value is None or type(value.value) is int):
        return value.value
    found = vm.attempt(lambda: ConstantValue(whole(vm, value)), Exception)
    return cast("int", object() if found is None else found.constant())  # an object is what islice complains of


@handles(itertools.islice)
def islice(vm: Machine, items: Value, *limits: Value) -> Value:
    """Items up to ``stop`` are taken also where the step leaves the last ones out."""
    if len(limits) > 3:
        vm.throw(TypeError, f"islice expected at most 4 arguments, got {1 + len(limits)}")
    where = [limit(vm, v) for v in limits]
    try:
        itertools.islice((), *where)
    except Exception as exc:
        vm.throw_real(exc)
    start, stop, step = [None, *where, None] if len(where) == 1 else [*where, None, None][:3]
    inner, taken, following, done = vm.iterate(items), 0, start or 0, False

    def run(vm: Machine) -> Iterator[Value]:
        nonlocal taken, following, done
        end = sys.maxsize if stop is None else stop
        while not done:
            wanted = min(following, end) if stop is not None else following
            while taken < wanted and not done:
                done = vm.next(inner) is STOP
                taken += 1
            if done or taken >= end or (item := vm.next(inner)) is STOP:
                break
            taken, following = taken + 1, following + (step or 1)
            yield item
        done = True

    def parts() -> list[Value]:
        left = (0, 0, 1) if done else (following - taken, None if stop is None else stop - taken, step or 1)
        return [inner, *map(ConstantValue, left)]

    return PythonIterator(run, itertools.islice, parts)


@handles(itertools.product)
def product(vm: Machine, *iterables: Value, repeat: Value = ConstantValue(1)) -> Value:
    """``itertools.product()``; its iterables are read at once, as Python's are."""
    return rows(vm, itertools.product, [vm.unpack(v, sized=True) for v in iterables], repeat=repeat)


def _of_pool(kind: type) -> None:
    @handles(kind)
    def make(vm: Machine, iterable: Value, r: Value | None = None) -> Value:
        return rows(vm, kind, [vm.unpack(iterable, sized=True)], **({} if r is None else {"r": r}))


for _kind in (itertools.combinations, itertools.combinations_with_replacement, itertools.permutations):
    _of_pool(_kind)


def rows(vm: Machine, kind: type, pools: list[list[Value]], **numbers: Value) -> Value:
    """What ``kind`` makes of lists whose items it does not look at."""
    named, taken = {name: value.constant() for name, value in numbers.items()}, 0
    try:
        running = kind(*pools, **named)
    except Exception as exc:
        vm.throw_real(exc)

    def run(vm: Machine) -> Iterator[Value]:
        nonlocal taken
        for row in running:
            taken += 1
            yield TupleValue(list(row))

    def parts() -> list[Value]:
        return [ConstantValue(taken), *map(TupleValue, pools)]

    return PythonIterator(run, kind, parts, functools.partial(gone_ahead, functools.partial(kind, **named)))


def gone_ahead(kind: Callable[..., Iterator[object]], steps: int, *given: object) -> object:
    """What ``kind`` makes, when ``steps`` items were taken of it."""
    made = kind(*given)
    for _ in range(steps):
        next(made, None)
    return made


@handles(itertools.repeat)
def repeat(vm: Machine, object: Value, times: Value | None = None) -> Value:
    """``itertools.repeat()``, for ever without ``times``."""
    left = None if times is None else max(0, whole(vm, times))

    def run(vm: Machine) -> Iterator[Value]:
        nonlocal left
        while left != 0:
            left = None if left is None else left - 1
            yield object

    return PythonIterator(run, itertools.repeat, lambda: [object] if left is None else [object, ConstantValue(left)])


@handles(itertools.count)
def count(vm: Machine, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Value:
    """``itertools.count()``."""
    for number in (start, step):
        if not any(hasattr(number.python_type(), name) for name in ("__index__", "__int__", "__float__", "__complex__")):
            vm.throw(TypeError, "a number is required")

    value = start

    def run(vm: Machine) -> Iterator[Value]:
        nonlocal value
        while True:
            now, value = value, vm.binary("+", value, step)
            yield now

    return PythonIterator(run, itertools.count, lambda: [value, step])


@handles(itertools.cycle)
def cycle(vm: Machine, items: Value) -> Value:
    """``itertools.cycle()``."""
    inner, seen, place = [vm.iterate(items)], list[Value](), 0

    def run(vm: Machine) -> Iterator[Value]:
        nonlocal place
        for item in each(vm, inner[0]):
            seen.append(item)
            yield item
        inner.clear()
        while seen:
            item, place = seen[place], (place + 1) % len(seen)
            yield item

    return PythonIterator(run, itertools.cycle, lambda: [TupleValue(list(seen)), ConstantValue(place), *inner], unfinished.cycle)


@handles(itertools.accumulate)
def accumulate(vm: Machine, iterable: Value, func: Value = NONE, *, initial: Value = NONE) -> Value:
    """``itertools.accumulate()``; without a function it adds."""
    inner, total = vm.iterate(iterable), list[Value]()

    def run(vm: Machine) -> Iterator[Value]:
        first = vm.next(inner) if is_none(initial) else initial
        if first is STOP:
            return
        total.append(first)
        yield first
        for item in each(vm, inner):
            total[0] = vm.binary("+", total[0], item) if is_none(func) else vm.call(func, [total[0], item], {})
            yield total[0]

    return PythonIterator(run, itertools.accumulate, lambda: [inner, func, initial, *total], unfinished.accumulate)


@handles(itertools.starmap)
def starmap(vm: Machine, function: Value, items: Value) -> Value:
    """``itertools.starmap()``."""
    inner = vm.iterate(items)
    return PythonIterator(
        lambda vm: (vm.call(function, vm.unpack(row), {}) for row in each(vm, inner)), itertools.starmap, lambda: [function, inner]
    )


@handles(itertools.zip_longest)
def zip_longest(vm: Machine, *iterables: Value, fillvalue: Value = NONE) -> Value:
    """``itertools.zip_longest()``."""
    inner: list[Value | None] = [vm.iterate(v) for v in iterables]

    def run(vm: Machine) -> Iterator[Value]:
        while True:
            row = []
            for place, iterator in enumerate(inner):
                item = STOP if iterator is None else vm.next(iterator)
                if item is STOP:
                    inner[place], item = None, fillvalue
                    if not any(inner):
                        return
                row.append(item)
            if not row:
                return
            yield TupleValue(row)

    return PythonIterator(
        run, itertools.zip_longest, lambda: [fillvalue, *[TupleValue([]) if v is None else v for v in inner]], unfinished.zip_longest
    )


@handles(itertools.pairwise)
def pairwise(vm: Machine, items: Value) -> Value:
    """``itertools.pairwise()``."""
    inner, before = vm.iterate(items), list[Value]()

    def run(vm: Machine) -> Iterator[Value]:
        for item in each(vm, inner):
            row = [*before, item]
            before[:] = [item]
            if len(row) == 2:
                yield TupleValue(row)

    return PythonIterator(run, itertools.pairwise, lambda: [inner, *before], unfinished.pairwise)


def _chosen(kind: type) -> Callable[[Walk], None]:
    """Iterators made of a function and a source of items. ``turned`` holds something once the function is asked no more."""

    def add(run: Walk) -> None:
        @handles(kind)
        def make(vm: Machine, function: Value, items: Value) -> Value:
            inner, turned = vm.iterate(items), list[Value]()
            return PythonIterator(
                lambda vm: run(vm, function, inner, turned),
                kind,
                lambda: [ConstantValue(kind), function, inner, *turned],
                unfinished.chosen,
            )

    return add


@_chosen(itertools.takewhile)
def _takewhile(vm: Machine, function: Value, inner: Value, turned: list[Value]) -> Iterator[Value]:
    for item in each(vm, inner):
        if not vm.truth(vm.call(function, [item], {})):
            turned.append(NONE)
            return
        yield item


@_chosen(itertools.dropwhile)
def _dropwhile(vm: Machine, function: Value, inner: Value, turned: list[Value]) -> Iterator[Value]:
    for item in each(vm, inner):
        if not vm.truth(vm.call(function, [item], {})):
            turned.append(NONE)
            yield item
            break
    yield from each(vm, inner)


@_chosen(itertools.filterfalse)
def _filterfalse(vm: Machine, function: Value, inner: Value, turned: list[Value]) -> Iterator[Value]:
    plain = is_none(function)
    for item in each(vm, inner):
        if not vm.truth(item if plain else vm.call(function, [item], {})):
            yield item


@handles(itertools.compress)
def compress(vm: Machine, data: Value, selectors: Value) -> Value:
    """``itertools.compress()``."""
    inner, chosen = vm.iterate(data), vm.iterate(selectors)

    def run(vm: Machine) -> Iterator[Value]:
        while (item := vm.next(inner)) is not STOP and (selector := vm.next(chosen)) is not STOP:
            if vm.truth(selector):
                yield item

    return PythonIterator(run, itertools.compress, lambda: [inner, chosen])


class Groups:
    """The state that ``groupby`` shares with its groups: the item read last and not given out yet, its key, and the newest group."""

    def __init__(self, inner: Value, key: Value) -> None:
        self.inner = inner
        self.function = key
        self.item: Any = None
        self.key: Any = None
        self.newest: object = None

    def step(self, vm: Machine) -> bool:
        """Read an item and its key; False at the end."""
        item = vm.next(self.inner)
        if item is STOP:
            return False
        self.item, self.key = item, item if is_none(self.function) else vm.call(self.function, [item], {})
        return True

    def run(self, vm: Machine) -> Iterator[Value]:
        wanted: Value | None = None
        while True:
            self.newest = None
            while self.key is None or (wanted is not None and vm.equal(wanted, self.key)):
                if not self.step(vm):
                    return
            wanted = self.key
            mark = self.newest = object()
            group = functools.partial(self.group, wanted=wanted, mark=mark)
            yield TupleValue([wanted, PythonIterator(group, itertools._grouper)])  # type: ignore[attr-defined]

    def group(self, vm: Machine, wanted: Value, mark: object) -> Iterator[Value]:
        while self.newest is mark:
            if self.item is None and not self.step(vm):
                return
            if not vm.equal(wanted, self.key):
                return
            item, self.item = self.item, None
            yield item


@handles(itertools.groupby)
def groupby(vm: Machine, iterable: Value, key: Value = NONE) -> Value:
    """``itertools.groupby()``; a group ends where the next one is asked for."""
    return PythonIterator(Groups(vm.iterate(iterable), key).run, itertools.groupby)


TEE: type = type(itertools.tee(())[0])


@handles(itertools.tee)
def tee(vm: Machine, items: Value, n: Value = ConstantValue(2)) -> Value:
    """``itertools.tee()``: iterators that share what they have read."""
    number = whole(vm, n)
    if number < 0:
        vm.throw(ValueError, "n must be >= 0")
    inner = vm.iterate(items) if number else items
    if isinstance(inner, TeeIterator):
        return TupleValue([inner, *[TeeIterator(inner.inner, inner.seen, inner.position, inner.first) for _ in range(number - 1)]][:number])
    if number and find_in_mro(inner.python_type().__mro__, "__copy__")[1] is not MISSING:
        vm.unsupported("FE010", f"itertools.tee of {inner.describe()}", "it has a way of its own to be copied")
    seen: list[Value] = []
    first = PythonIterator(lambda vm: iter(()), TEE, lambda: [TupleValue(list(seen)), inner], first_of_tee)
    return TupleValue([TeeIterator(inner, seen, 0, first) for _ in range(number)])


def first_of_tee(seen: Iterable[object], inner: Iterable[object]) -> object:
    """The one that nothing was taken of."""
    return itertools.tee(itertools.chain(seen, inner), 1)[0]


class TeeIterator(PythonIterator):
    """One of several iterators over ``inner``, which remember in ``seen`` what was taken from it."""

    def __init__(self, inner: Value, seen: list[Value], position: int, first: PythonIterator) -> None:
        super().__init__(self.run, TEE, lambda: [ConstantValue(self.position), first], functools.partial(gone_ahead, copy.copy))
        self.inner, self.seen, self.position, self.first = inner, seen, position, first

    def run(self, vm: Machine) -> Iterator[Value]:
        while True:
            if self.position == len(self.seen):
                self.seen.append(vm.next(self.inner))
            if self.seen[self.position] is STOP:
                self.seen.pop()
                return
            self.position += 1
            yield self.seen[self.position - 1]
