"""Which values of a tree of modules cannot change without a dictionary or class changing that the tree's evidence is about, and how each of
them is found from the root of the tree.

This follows from the paths, the classes of the modules and the guards on tuples alone: it is the same for every tree of the structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..guard import Absent, AllDistinct, DictKeys, Equals, Guard, Is, Length, ModuleFacts, SameObject, TypeIs
from ..source import Attr, InstanceDict, Item, Source

TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
DICT, ITEM, TUPLE_ITEM, ATTRIBUTE = range(4)
"""The steps from value to value, as numbered in ``native/modules.cpp``."""
_HEAP_TYPE = 1 << 9
_GENERIC: Any = object.__dict__["__getattribute__"]


class Uncovered(Exception):
    """The value may change without leaving evidence."""


def _class_attribute(type_: type, name: str) -> tuple[bool, Any]:
    for base in type_.__mro__:
        if name in base.__dict__:
            return True, base.__dict__[name]
    return False, None


class Coverage:
    """One tree: the modules that are found from its root. ``steps``: (kind, number of the value it starts from, key); the value that a step
    finds has the number of the step plus one, the root has number 0."""

    def __init__(self, root: Source, modules: dict[Source, ModuleFacts], tuples: frozenset[Source], module_getattr: Any) -> None:
        self.root = root
        self._modules, self._tuples, self._getattr = modules, tuples, module_getattr
        self.steps: list[tuple[int, int, Any]] = []
        self._numbers: dict[Source, int | None] = {root: 0}

    def number(self, source: Source) -> int:
        """The number of a covered value; raises :class:`Uncovered`."""
        if source not in self._numbers:
            self._numbers[source] = None  # until it is known
            try:
                rule = _STEPS.get(type(source))
                if rule is None:
                    raise Uncovered
                kind, base, key = rule(self, source)
            except Uncovered:
                return self.number(source)
            self.steps.append((kind, base, key))
            self._numbers[source] = len(self.steps)
        found = self._numbers[source]
        if found is None:
            raise Uncovered
        return found

    def has(self, source: Source) -> bool:
        """Whether a value is covered."""
        try:
            self.number(source)
        except Uncovered:
            return False
        return True

    def covers(self, guard: Guard) -> bool:
        """Whether this guard, once true, stays true as long as the evidence holds."""
        rule = _GUARDS.get(type(guard))
        return rule is not None and rule(self, guard)

    def _module(self, source: Source) -> int:
        if source not in self._modules:
            raise Uncovered
        return self.number(source)

    def _instance_dict(self, source: InstanceDict) -> tuple[int, int, Any]:
        return DICT, self._module(source.base), None

    def _is_table(self, source: Source, names: tuple[str, ...]) -> bool:
        """Whether a source is a module's own dictionary, or one of those named in it."""
        if type(source) is InstanceDict:
            return source.base in self._modules
        if type(source) is Item:
            return type(source.base) is InstanceDict and source.base.base in self._modules and source.key in names
        if not isinstance(source, Attr) or type(source) is not Attr:
            return False
        return source.base in self._modules and source.name in names and self._is_plain_attribute(source)

    def _item(self, source: Item) -> tuple[int, int, Any]:
        if self._is_table(source.base, TABLES + HOOKS) and type(source.key) is str:
            return ITEM, self.number(source.base), source.key
        if source.base in self._tuples and type(source.key) is int and source.key >= 0:
            return TUPLE_ITEM, self.number(source.base), source.key
        raise Uncovered

    def _is_plain_attribute(self, source: Attr) -> bool:
        """Whether the instance decides what an attribute is: neither the class nor code of it does."""
        exact = self._modules[source.base].type
        own = _class_attribute(exact, "__getattribute__")[1] is not _GENERIC or _class_attribute(exact, source.name)[0]
        return not own and _class_attribute(exact, "__getattr__")[1] in (None, self._getattr)

    def _attr(self, source: Attr) -> tuple[int, int, Any]:
        base = self._module(source.base)
        if not self._is_plain_attribute(source):
            raise Uncovered
        return ATTRIBUTE, base, source.name

    def _value_settled(self, guard: Any) -> bool:
        return self.has(guard.source)

    def _type_settled(self, guard: TypeIs) -> bool:
        return self.has(guard.source) and (guard.source in self._modules or not guard.type.__flags__ & _HEAP_TYPE)

    def _content_settled(self, guard: Any) -> bool:
        table = self._is_table(guard.source, TABLES) or (type(guard) is Length and guard.source in self._tuples)
        return table and self.has(guard.source)

    def _pair_settled(self, guard: SameObject) -> bool:
        return self.has(guard.source) and self.has(guard.other)

    def _all_settled(self, guard: AllDistinct) -> bool:
        return all(map(self.has, guard.sources))


_STEPS: dict[type, Callable[[Coverage, Any], tuple[int, int, Any]]] = {
    Attr: Coverage._attr,
    InstanceDict: Coverage._instance_dict,
    Item: Coverage._item,
}
_GUARDS: dict[type, Callable[[Coverage, Any], bool]] = {
    Is: Coverage._value_settled,
    Equals: Coverage._value_settled,
    TypeIs: Coverage._type_settled,
    Length: Coverage._content_settled,
    DictKeys: Coverage._content_settled,
    Absent: Coverage._content_settled,
    SameObject: Coverage._pair_settled,
    AllDistinct: Coverage._all_settled,
}
