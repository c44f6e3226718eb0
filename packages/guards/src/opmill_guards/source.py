"""Where a value came from, as data: a path from the call's arguments or from a pinned object to the value.

A source is evaluated natively at each check (see ``native/``) and by :func:`opmill_guards.reference.read` in Python.
It prints as the Python expression that a user would write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True, slots=True)
class Local:
    """A local of the guarded code object at its entry, by name: parameters, ``*args`` and ``**kwargs`` included."""

    name: str

    def __str__(self) -> str:
        return self.name


class Pinned:
    """An object that the guards themselves keep alive, compared by identity. Sound wherever the object is implied by something
    else that is guarded: the globals of a function whose identity is guarded, the cells of its closure, a class by type."""

    __slots__ = ("label", "object")

    def __init__(self, object: Any, label: str) -> None:
        self.object = object
        self.label = label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pinned) and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)

    def __str__(self) -> str:
        return self.label

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Attr:
    """``base.name`` by plain lookup (``object.__getattribute__`` semantics of the type are the frontend's to have checked)."""

    base: Source
    name: str

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@dataclass(frozen=True, slots=True)
class InstanceDict:
    """``base.__dict__``: the object's own dictionary, without running descriptors."""

    base: Source

    def __str__(self) -> str:
        return f"{self.base}.__dict__"


@dataclass(frozen=True, slots=True)
class Item:
    """``base[key]`` for exact or subclassed tuples, lists, deques (by position) and dicts (by key), reading the builtin storage."""

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"{self.base}[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class DictKeyAt:
    """The ``position``-th key of a dict in insertion order (for keys that are not constants)."""

    base: Source
    position: int

    def __str__(self) -> str:
        return f"list({self.base})[{self.position}]"


@dataclass(frozen=True, slots=True)
class TypeOf:
    base: Source

    def __str__(self) -> str:
        return f"type({self.base})"


@dataclass(frozen=True, slots=True)
class CellContents:
    """What the closure cell ``base`` holds."""

    base: Source

    def __str__(self) -> str:
        return f"{self.base}.cell_contents"


@dataclass(frozen=True, slots=True)
class TensorProperty:
    """``size``/``stride`` of one dimension or the ``storage_offset`` of a tensor, as an int."""

    base: Source
    property: str
    dim: int = 0

    def __str__(self) -> str:
        return f"{self.base}.{self.property}({self.dim})"


Source = Union[Local, Pinned, Attr, InstanceDict, Item, DictKeyAt, TypeOf, CellContents, TensorProperty]
