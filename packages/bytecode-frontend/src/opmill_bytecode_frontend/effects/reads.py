"""What a backward reads of the program's own objects, noted while it is recorded: it runs later, when they may be others."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from ..graph import pending
from ..interpretation.owners import exempt
from ..values.base import MISSING, Value
from ..values.classes import ClassValue, ModuleObject
from ..values.functions import BuiltinValue, CellValue, FunctionValue, MethodValue
from ..values.mapping import DictValue
from ..values.modules import ModuleValue
from ..values.objects import ObjectValue
from ..values.sequence import SequenceValue, TupleValue
from ..values.sets import SetValue

SETTLED = (FunctionValue, MethodValue, BuiltinValue, ClassValue, ModuleValue, ModuleObject)
"""Functions, classes and modules are what they were, as elsewhere between forward and backward."""
CONTAINERS = (SequenceValue, DictValue, SetValue)
OWNERS = (ClassValue, ModuleValue, ModuleObject, FunctionValue)
LASTING = ("torch", "opmill_bytecode_frontend", "dataclasses", "inspect", "re")
"""Packages whose objects programs do not write to."""

Reads = list[tuple[object, Any, str]]
"""How a value is read (`graph.pending`), of which object, under which name."""


def note_attribute(reads: Reads, owner: Value, name: str, found: Value) -> None:
    """A backward that is recorded reads an attribute."""
    if isinstance(owner, ObjectValue):
        if not is_lasting(owner) and not isinstance(found, SETTLED):
            reads.append((None, owner, name))
        note_contents(reads, found)
    elif isinstance(owner, OWNERS) and not exempt(home(owner)):
        note(reads, pending.attribute, owner, name, found)


def is_lasting(owner: ObjectValue) -> bool:
    """Whether the attributes of an object stay what they are."""
    frozen = getattr(getattr(owner.cls, "__dataclass_params__", None), "frozen", False)
    return bool(frozen) or issubclass(owner.cls, enum.Enum) or str(owner.cls.__module__).split(".")[0] in LASTING


def home(owner: Value) -> str:
    """The module that a class is of; those of torch hold what the program gave them."""
    if isinstance(owner, ModuleObject):
        return str(owner.obj.__name__)
    return str(owner.obj.__module__) if isinstance(owner, ClassValue) else ""


def note_global(reads: Reads, namespace: dict[str, object], name: str, found: Value) -> None:
    """It reads a global variable of the program's."""
    if exempt(str(namespace.get("__name__", ""))):
        return
    if isinstance(found, CONTAINERS) and pending.contents(namespace, name) is not MISSING:
        reads += [(pending.global_name, namespace, name), (pending.contents, namespace, name)]
    else:
        note(reads, pending.global_name, namespace, name, found)


def note_cell(reads: Reads, owner: CellValue, name: str, found: Value) -> None:
    """It reads a variable of a function around it."""
    note(reads, pending.cell, owner, name, found)


def note(reads: Reads, kind: object, owner: object, name: str, found: Value) -> None:
    """A backward that is recorded reads something of this kind."""
    if not isinstance(found, SETTLED):
        reads.append((kind, owner, name))
        note_contents(reads, found)


def note_contents(reads: Reads, found: Value) -> None:
    """It reads what containers hold."""
    reads += [(None, each, "") for each in containers(found, [])]


def containers(value: object, above: Sequence[object]) -> Iterator[Value]:
    """The outermost ones that can change."""
    if isinstance(value, TupleValue):
        for item in value.items if all(value is not each for each in above) else ():
            yield from containers(item, [*above, value])
    elif isinstance(value, CONTAINERS) or (isinstance(value, ObjectValue) and isinstance(value.storage, CONTAINERS)):
        yield value


__all__ = ["note_attribute", "note_cell", "note_global"]
