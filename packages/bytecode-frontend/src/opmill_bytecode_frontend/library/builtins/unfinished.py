"""Iterators of itertools that go on where captured code has left them: real ones, which read what they walk over when they are asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator


def chain(outer: Iterator[Iterator[object]], *running: Iterator[object]) -> Iterator[object]:
    """``chain.from_iterable``, perhaps in the midst of one iterable."""
    rest = itertools.chain.from_iterable(outer)
    return itertools.chain(*running, rest) if running else rest


def cycle(seen: tuple[object, ...], place: int, *inner: Iterator[object]) -> Iterator[object]:
    """A cycle that has ``seen`` these items: all that there are, or the first ones of ``inner``."""
    made = itertools.cycle(itertools.chain(seen, *inner))
    for _ in range(len(seen) if inner else place):
        next(made)
    return made


def accumulate(inner: Iterator[object], function: Callable[..., object], initial: object, *total: object) -> Iterator[object]:
    """An accumulation that gave ``total`` last."""
    if not total:
        return itertools.accumulate(inner, function, initial=initial)
    made = itertools.accumulate(itertools.chain(total, inner), function)
    next(made)
    return made


def zip_longest(fill: object, *inner: Iterator[object]) -> Iterator[object]:
    """``itertools.zip_longest()`` with its fill value in front."""
    return itertools.zip_longest(*inner, fillvalue=fill)


def called(function: Callable[[], object], sentinel: object, *ended: None) -> Iterator[object]:
    """``iter`` of a function and what it gives last; ``ended``: it has given that."""
    made = iter((lambda: sentinel) if ended else function, sentinel)
    if ended:
        next(made, None)
    return made


def zip_strict(*inner: Iterator[object]) -> Iterator[tuple[object, ...]]:
    """``zip(strict=True)``."""
    return zip(*inner, strict=True)


def pairwise(inner: Iterator[object], *before: object) -> Iterator[object]:
    """Pairs that begin with ``before``."""
    return itertools.pairwise(itertools.chain(before, inner) if before else inner)


def chosen(kind: Callable[..., Iterator[object]], function: object, inner: Iterator[object], *turned: object) -> Iterator[object]:
    """Of a ``kind`` that takes or drops while a function says so; ``turned``: it has said no."""
    if not turned:
        return kind(function, inner)
    return itertools.chain(inner) if kind is itertools.dropwhile else itertools.takewhile(bool, ())
