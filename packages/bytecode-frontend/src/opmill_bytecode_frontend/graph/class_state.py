"""What classes of wrappers read when operators run on their tensors: their code runs while a graph is recorded, so that what it reads of
classes and modules is a part of the graph.

It is noted when a class is first met, and assumed at the end of the capture where it is still the same then: what the class itself changes
(a counter, a list of what it saw) is not what its results depend on. Followed are the program's own functions, from the methods of the
class; of installed packages, what DTensor looks up."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Protocol

import torch

from opmill_fake_tensors import FakeTensor
from opmill_guards.constants import is_constant
from opmill_guards.guard import DictKeys, Equals, Is, Predicate
from opmill_guards.source import Attr, CellContents, InstanceDict, Item, Pinned, Source

from ..interpretation.owners import installed, is_users

Guard = Equals | Is | Predicate | DictKeys
Met = dict[type, list[tuple[Guard, object]]]
"""What classes that were met read."""


class Masks(Protocol):
    """A buffer of masks, of a class that is private to torch."""

    data: torch.Tensor | None
    refcount: int


MOST_ITEMS = 1000
MOST_FUNCTIONS = 200
SWITCHED = "_allow_implicit_replication"
OF_DISPATCHERS = (SWITCHED, "_custom_op_handlers")
"""What context managers of ``torch.distributed.tensor`` change: what operators on DTensors do."""


class Wrappers:
    """The classes that a capture has met, and what they read: guards, and what is looked at by them."""

    def __init__(self) -> None:
        self.classes: Met = {}
        self.masks: list[Masks] = []

    def __bool__(self) -> bool:
        return bool(self.classes)

    def meet(self, tensor: torch.Tensor) -> bool:
        """Notes what its class reads, if that is not known. True."""
        if type(tensor) not in self.classes:
            self.classes[type(tensor)] = list(_Reads(type(tensor)).found())
        self.masks += masks_of(tensor)
        return True

    def forget_masks(self) -> None:
        """Placements outlive a capture, which leaves no fakes in them."""
        for mask in self.masks:
            if type(mask.data) is FakeTensor:
                mask.data, mask.refcount = None, 0

    def assumed(self, before: Mapping[object, tuple[object, ...]]) -> Iterator[Guard]:
        """The guards that hold at the end of a capture. ``before``: torch's switches at its beginning, which captured code may have set
        when it met a class, and may not have set back."""
        for reads in self.classes.values():
            for guard, owner in reads:
                if isinstance(guard.source, Attr) and guard.source.name == SWITCHED and "replication" in before:
                    yield Equals(guard.source, before["replication"][1])
                    continue
                now = _now(guard.source, owner)
                if isinstance(guard, Predicate):
                    kept = guard.function(now)
                elif isinstance(guard, DictKeys):
                    kept = _keys(now) == guard.keys
                else:
                    kept = now is (guard.value if isinstance(guard, Equals) else guard.object)
                if kept:
                    yield guard


def masks_of(tensor: torch.Tensor) -> list[Masks]:
    """What an embedding over a mesh leaves in the placements of its result for the sum that follows: no graph gives that."""
    return [p.mask_buffer for p in getattr(tensor, "placements", ()) if hasattr(p, "mask_buffer")]


class _Reads:
    """Of one class. ``seen``: functions whose reads are known."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.seen: set[types.FunctionType] = set()

    def found(self) -> Iterator[tuple[Guard, object]]:
        for owner in self.cls.__mro__:
            if is_users(owner):
                table = vars(owner)
                for name, raw in list(table.items()):
                    if not (name.startswith("__") and name.endswith("__")) or callable(_function(raw)):
                        yield from self.read(Item(InstanceDict(Pinned(owner, owner.__qualname__)), name), owner, raw)
        dispatcher = getattr(self.cls, "_op_dispatcher", None)
        for name in OF_DISPATCHERS if hasattr(dispatcher, "_custom_op_handlers") else ():
            value, source = getattr(dispatcher, name), Attr(Pinned(dispatcher, "DTensor._op_dispatcher"), name)
            yield (DictKeys(source, tuple(value)) if isinstance(value, dict) else Equals(source, value)), dispatcher

    def read(self, source: Source, owner: object, value: object) -> Iterator[tuple[Guard, object]]:
        """``value`` is what ``owner`` has at the end of ``source``."""
        function = _function(value)
        if is_constant(value):
            yield Equals(source, value), owner
        elif (items := _items(value)) is not None and not any(isinstance(item, torch.Tensor) for item in items):
            yield Predicate(source, functools.partial(_holds_the_same, items), "what it holds"), owner
        elif type(function) is types.FunctionType:
            yield Is(source, value), owner
            yield from self.of_function(function)

    def of_function(self, function: types.FunctionType) -> Iterator[tuple[Guard, object]]:
        if installed(function.__code__.co_filename) or not self.is_new(function):
            return
        globals_read, others = _names(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if (value := _contents(cell)) is not cell:
                yield from self.read(CellContents(Pinned(cell, name)), cell, value)
        table = function.__globals__
        for name in sorted(globals_read & table.keys()):
            value = table[name]
            yield from self.read(Item(Pinned(table, f"globals of {function.__module__}"), name), table, value)
            if isinstance(value, (types.ModuleType, type)) and _is_the_programs(value):
                for inner in sorted(others & vars(value).keys()):
                    place = Item(InstanceDict(Pinned(value, name)), inner)
                    yield from self.read(place, value, vars(value)[inner])

    def is_new(self, function: types.FunctionType) -> bool:
        new = function not in self.seen and len(self.seen) < MOST_FUNCTIONS
        self.seen.add(function)
        return new


def _function(raw: object) -> object:
    return raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)


def _is_the_programs(value: type | types.ModuleType) -> bool:
    if isinstance(value, type):
        return is_users(value)
    file = getattr(value, "__file__", None)
    return file is not None and not installed(file)


def _keys(table: object) -> tuple[object, ...] | None:
    return tuple(table) if isinstance(table, dict) else None


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """The globals that code reads, functions inside of it included, and the attributes."""
    found: tuple[set[str], set[str]] = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found[0].add(str(instruction.argval))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            found[1].add(str(instruction.argval))
    for constant in code.co_consts:
        if type(constant) is CodeType:
            for own, more in zip(found, _names(constant), strict=True):
                own |= more
    return found


def _contents(cell: types.CellType) -> object:
    """The cell itself where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _items(container: object) -> tuple[object, ...] | None:
    """What a dict, a list or a set holds, keys and then values; None of others, and of many."""
    if not (type(container) is dict or type(container) is list or type(container) is set) or len(container) > MOST_ITEMS:
        return None
    return (*container, *container.values()) if type(container) is dict else tuple(container)


def _holds_the_same(kept: tuple[object, ...], now: object) -> bool:
    items = _items(now)
    return items is not None and [*map(id, items)] == [*map(id, kept)]


def _now(source: Source, owner: object) -> object:
    """What is there now; the owner itself where nothing is."""
    if isinstance(source, CellContents):
        return _contents(owner)  # type: ignore[arg-type]
    if isinstance(source, Attr):
        return getattr(owner, source.name, owner)
    assert isinstance(source, Item)
    return (owner if type(owner) is dict else vars(owner)).get(source.key, owner)


__all__ = ["Wrappers", "masks_of"]
