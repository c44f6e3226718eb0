"""Numbers that a graph hands to what goes on behind it, and that the next call will have others of: these are not assumed at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from opmill_guards.source import Item, Local, Source

from ..entry.varying import Changing
from ..values.floating import OF_DATA, FloatNumber
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
    for name, value in given.items():
        if isinstance(value, str):
            floats.add(Local(name))
        for source, number in numbers_in(value, Local(name)):
            (ints if number is int else floats).add(source)
    return Changing(frozenset(ints), frozenset(floats))


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
    elif type(value) in (TupleValue, ListValue):
        assert isinstance(value, (TupleValue, ListValue)), value
        for place, item in enumerate(value.items[:MOST]):
            yield from numbers_in(item, Item(source, place))


__all__ = ["changing"]
