"""The identity of a value."""

from __future__ import annotations

from ..guard import Is
from ..texts import short
from ..weak import WeakObject, living
from .kind import Builder, Kind, Read


def _check(guard: Is, read: Read) -> bool:
    return read(guard.source) is living(guard.object)


def _compile(guard: Is, into: Builder) -> None:
    into.leaf(guard.source, "is weak" if type(guard.object) is WeakObject else "is", guard.object, KIND.cost)


def _describe(guard: Is, read: Read) -> tuple[str, str]:
    found = read(guard.source)
    expected_text, found_text = short(guard.object), short(found)
    if expected_text == found_text:
        expected_text, found_text = f"{expected_text} at {id(living(guard.object)):#x}", f"{found_text} at {id(found):#x}"
    return expected_text, found_text


KIND = Kind(Is, 0, _check, _compile, _describe)
