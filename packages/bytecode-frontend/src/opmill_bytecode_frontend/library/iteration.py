"""The itertools module, as Python generators over tracked values."""

from __future__ import annotations

import itertools
from typing import Any

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.iterators import STOP, PythonIterator
from ..values.sequence import TupleValue
from .registry import handles

NONE = ConstantValue(None)


def _python_iterator(kind: type, make: Any) -> None:
    handles(kind)(lambda vm, *args, **kwargs: PythonIterator(lambda vm: make(vm, *args, **kwargs), kind))


def _chain(vm: Any, *iterables: Value) -> Any:
    for iterable in iterables:
        inner = vm.iterate(iterable)
        while (item := vm.next(inner)) is not STOP:
            yield item


def _islice(vm: Any, items: Value, *limits: Value) -> Any:
    inner = vm.iterate(items)
    wanted = iter(range(2**62)[slice(*[v.constant() for v in limits])])
    position, following = 0, next(wanted, None)
    while following is not None and (item := vm.next(inner)) is not STOP:
        if position == following:
            yield item
            following = next(wanted, None)
        position += 1


def _product(vm: Any, *iterables: Value, repeat: Value = ConstantValue(1)) -> Any:
    for row in itertools.product(*[vm.unpack(v) for v in iterables], repeat=repeat.constant()):
        yield TupleValue(list(row))


def _combinations(kind: Any) -> Any:
    def make(vm: Any, items: Value, *r: Value) -> Any:
        for row in kind(vm.unpack(items), *[v.constant() for v in r]):
            yield TupleValue(list(row))

    return make


def _repeat(vm: Any, value: Value, *times: Value) -> Any:
    for _ in range(times[0].constant()) if times else itertools.count():
        yield value


def _count(vm: Any, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Any:
    value = start
    while True:
        yield value
        value = vm.binary("+", value, step)


def _cycle(vm: Any, items: Value) -> Any:
    values = vm.unpack(items)
    while values:
        yield from values


def _accumulate(vm: Any, items: Value, func: Value = NONE, *, initial: Value = NONE) -> Any:
    total = None if isinstance(initial, ConstantValue) and initial.value is None else initial
    if total is not None:
        yield total
    for item in vm.unpack(items):
        if total is None:
            total = item
        else:
            total = vm.binary("+", total, item) if isinstance(func, ConstantValue) else vm.call(func, [total, item], {})
        yield total


def _starmap(vm: Any, fn: Value, rows: Value) -> Any:
    inner = vm.iterate(rows)
    while (row := vm.next(inner)) is not STOP:
        yield vm.call(fn, vm.unpack(row), {})


def _zip_longest(vm: Any, *iterables: Value, fillvalue: Value = NONE) -> Any:
    for row in itertools.zip_longest(*[vm.unpack(v) for v in iterables], fillvalue=fillvalue):
        yield TupleValue(list(row))


def _takewhile(vm: Any, fn: Value, items: Value) -> Any:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP and vm.truth(vm.call(fn, [item], {})):
        yield item


def _dropwhile(vm: Any, fn: Value, items: Value) -> Any:
    inner = vm.iterate(items)
    while (item := vm.next(inner)) is not STOP and vm.truth(vm.call(fn, [item], {})):
        pass
    while item is not STOP:
        yield item
        item = vm.next(inner)


def _filterfalse(vm: Any, fn: Value, items: Value) -> Any:
    inner = vm.iterate(items)
    plain = isinstance(fn, ConstantValue) and fn.value is None
    while (item := vm.next(inner)) is not STOP:
        if not vm.truth(item if plain else vm.call(fn, [item], {})):
            yield item


def _compress(vm: Any, items: Value, selectors: Value) -> Any:
    inner, chosen = vm.iterate(items), vm.iterate(selectors)
    while (item := vm.next(inner)) is not STOP and (selector := vm.next(chosen)) is not STOP:
        if vm.truth(selector):
            yield item


def _groupby(vm: Any, iterable: Value, key: Value = NONE) -> Any:
    """Groups are read when they come; what is left of one is skipped when the next is asked for."""
    inner = vm.iterate(iterable)
    plain = isinstance(key, ConstantValue) and key.value is None
    following = vm.next(inner)
    while following is not STOP:
        current = following if plain else vm.call(key, [following], {})
        state = {"item": following, "done": False}

        def group(vm: Any, state: Any = state, current: Value = current) -> Any:
            while not state["done"]:
                item = state["item"]
                state["item"] = vm.next(inner)
                if state["item"] is STOP or not vm.truth(vm.compare("==", state["item"] if plain else vm.call(key, [state["item"]], {}), current)):
                    state["done"] = True
                yield item

        rows = PythonIterator(group, itertools._grouper)  # type: ignore[attr-defined]
        yield TupleValue([current, rows])
        rows.remaining(vm)
        following = state["item"]


@handles(itertools.tee)
def tee(vm: Any, items: Value, n: Value = ConstantValue(2)) -> Value:
    inner = vm.iterate(items)
    seen: list[Any] = []

    def make(vm: Any) -> Any:
        position = 0
        while True:
            if position == len(seen):
                seen.append(vm.next(inner))
            if seen[position] is STOP:
                seen.pop()
                return
            yield seen[position]
            position += 1

    return TupleValue([PythonIterator(make, itertools._tee) for _ in range(n.constant())])  # type: ignore[attr-defined]


for _kind, _make in {
    itertools.filterfalse: _filterfalse, itertools.compress: _compress, itertools.groupby: _groupby,
    itertools.combinations_with_replacement: _combinations(itertools.combinations_with_replacement),
    itertools.chain: _chain, itertools.islice: _islice, itertools.product: _product, itertools.repeat: _repeat, itertools.count: _count,
    itertools.cycle: _cycle, itertools.accumulate: _accumulate, itertools.starmap: _starmap, itertools.zip_longest: _zip_longest,
    itertools.takewhile: _takewhile, itertools.dropwhile: _dropwhile, itertools.combinations: _combinations(itertools.combinations),
    itertools.permutations: _combinations(itertools.permutations), itertools.pairwise: _combinations(itertools.pairwise),
}.items():  # fmt: skip
    _python_iterator(_kind, _make)


@handles(itertools.chain.from_iterable, itertools.chain.__dict__["from_iterable"])
def chain_from_iterable(vm: Any, *args: Value) -> Value:
    outer = vm.iterate(args[-1])

    def make(vm: Any) -> Any:
        while (iterable := vm.next(outer)) is not STOP:
            yield from _chain(vm, iterable)

    return PythonIterator(make, itertools.chain)
