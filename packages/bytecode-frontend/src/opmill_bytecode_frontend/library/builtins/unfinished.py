"""Iterators of itertools that go on where captured code has left them: real ones, which read what they walk over when they are asked."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator


def chain(outer: Iterator[Any], *running: Iterator[Any]) -> Iterator[Any]:
    """``chain.from_iterable``, perhaps in the midst of one iterable."""
    rest = itertools.chain.from_iterable(outer)
    return itertools.chain(*running, rest) if running else rest


def cycle(seen: tuple[object, ...], place: int, *inner: Iterator[Any]) -> Iterator[Any]:
    """A cycle that has ``seen`` these items: all that there are, or the first ones of ``inner``."""
    made = itertools.cycle(itertools.chain(seen, *inner))
    for _ in range(len(seen) if inner else place):
        next(made)
    return made


def accumulate(inner: Iterator[Any], function: Any, initial: object, *total: Any) -> Iterator[Any]:
    """An accumulation that gave ``total`` last."""
    if not total:
        return itertools.accumulate(inner, function, initial=initial)
    made = itertools.accumulate(itertools.chain(total, inner), function)
    next(made)
    return made


def zip_longest(fill: Any, *inner: Any) -> Iterator[Any]:
    return itertools.zip_longest(*inner, fillvalue=fill)


def called(function: Callable[[], Any], sentinel: object, *ended: None) -> Iterator[Any]:
    """``iter`` of a function and what it gives last; ``ended``: it has given that."""
    made = iter((lambda: sentinel) if ended else function, sentinel)
    if ended:
        next(made, None)
    return made


def zip_strict(*inner: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*inner, strict=True)


def pairwise(inner: Iterator[Any], *before: object) -> Iterator[Any]:
    """Pairs that begin with ``before``."""
    return itertools.pairwise(itertools.chain(before, inner) if before else inner)


def chosen(kind: Callable[..., Iterator[Any]], function: object, inner: Iterator[Any], *turned: object) -> Iterator[Any]:
    """Of a ``kind`` that takes or drops while a function says so; ``turned``: it has said no."""
    if not turned:
        return kind(function, inner)
    return itertools.chain(inner) if kind is itertools.dropwhile else itertools.takewhile(bool, ())
