"""Numbers that a graph hands to what goes on behind it, and that the next call will have others of: these are not assumed at all. Nor are
the lengths of lists to which it has appended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from opmill_guards.source import Item, Local, Source

from ..entry.varying import Changing
from ..values.floating import OF_DATA, FloatNumber
from ..values.growing_lists import GrowingList
from ..values.number import SymbolicNumber, is_int
from ..values.sequence import ListValue, TupleValue
from ..values.varying import VaryingNumber

MOST = 64
"""Items of a list or tuple that are looked at."""


def changing(given: Mapping[str, object]) -> Changing:
    """What the parameters of a resume function are given (by name; a text is code that nothing is known of before it runs) that is known to
    change. A float that is asked of the program between two graphs is a measurement; an int there may be a mode, a class or a size."""
    ints: set[Source] = set()
    floats: set[Source] = set()
    lengths: set[Source] = set()
    for name, value in given.items():
        if grows(value):
            lengths.add(Local(name))
        if isinstance(value, str):
            floats.add(Local(name))
        for source, number in numbers_in(value, Local(name)):
            (ints if number is int else floats).add(source)
    return Changing(frozenset(ints), frozenset(floats), frozenset(lengths))


def grows(value: object) -> bool:
    """Whether captured code has appended to a list of before, or has made one."""
    if isinstance(value, GrowingList):
        return bool(value.appended) or not value.only_grew
    return type(value) is ListValue and value.source is None


def numbers_in(value: object, source: Source) -> Iterator[tuple[Source, type]]:
    """Places and types of such numbers in a value, and in the lists and tuples that it is made of."""
    if isinstance(value, SymbolicNumber):
        if not is_int(value.number):
            yield source, float
        elif isinstance(value.number, torch.SymInt) and not value.number.node.has_hint():  # sizes that calls tell are learnt with them
            yield source, int
    elif isinstance(value, FloatNumber) or getattr(value, "symbolic", False) is OF_DATA:
        yield source, float
    elif isinstance(value, VaryingNumber):
        yield source, type(value.obj)
    elif isinstance(value, GrowingList):
        for back, item in enumerate(value.appended[: -MOST - 1 : -1], 1):
            yield from numbers_in(item, Item(source, -back))
    elif type(value) in (TupleValue, ListValue):
        assert isinstance(value, (TupleValue, ListValue)), value
        for place, item in enumerate(value.items[:MOST]):
            yield from numbers_in(item, Item(source, place))
        if type(value) is ListValue and value.items:  # what is read of one that grows is the last
            yield from numbers_in(value.items[-1], Item(source, -1))


__all__ = ["changing"]
