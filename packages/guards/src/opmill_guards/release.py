"""What guards need no more once the capture that recorded them has ended: objects that the program has, and may let go of.

Identity is then asked of weak references, paths begin at them, and what holds such objects and cannot be referred to weakly, a tuple, is
known by what is in it. An entry of which an object has died fits no call any more."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from . import constants
from .guard import DictKeys, Equals, Guard, Is, Length, ModuleFacts, ModuleTree, TypeIs
from .source import Item, Pinned, Source, Step
from .weak import may_die, weak


class Release:
    """One set of guards; paths that guards share stay shared."""

    def __init__(self) -> None:
        self._sources: dict[int, tuple[Source, Source]] = {}
        self._weak: dict[int, tuple[Any, Any]] = {}

    def source(self, source: Source) -> Source:
        """The path without the objects of the program on it; itself where there are none."""
        known = self._sources.get(id(source))
        if known is None:
            known = self._sources[id(source)] = (source, self._path(source))  # the key lives as long as its number is known
        return known[1]

    def _path(self, source: Source) -> Source:
        if type(source) is Pinned:
            held = self.held(source.held) if source.mortal else source.held
            return source if held is source.held else Pinned(held, source.label, True)
        if not isinstance(source, Step):
            return source
        base = self.source(source.base)
        part = self.held(source.part) if type(source) is Item else source.part
        moved: Source = source if base is source.base and part is source.part else source.at(base, part)
        return moved

    def held(self, obj: Any) -> Any:
        """A weak reference to an object that may die, one for all guards; others as they are."""
        known = self._weak.get(id(obj))
        if known is None:
            known = self._weak[id(obj)] = (obj, weak(obj))
        return known[1]

    def guards(self, guard: Guard) -> Iterator[Guard]:
        """What stands for a guard."""
        rule = _RULES.get(type(guard))
        if rule is not None:
            yield from rule(self, guard)
        else:
            yield self.moved(guard)

    def moved(self, guard: Any) -> Any:
        """The same guard on the paths without objects."""
        changed: dict[str, Any] = {}
        after: Any
        for name in guard.__struct_fields__:
            before = getattr(guard, name)
            if name in ("source", "other"):
                after = self.source(before)
            elif name == "sources":
                after = self._each(before, self.source)
            else:
                continue
            if after is not before:
                changed[name] = after
        return replace(guard, **changed) if changed else guard

    @staticmethod
    def _each(values: tuple[Any, ...], of: Callable[[Any], Any]) -> tuple[Any, ...]:
        made = tuple(map(of, values))
        return values if all(map(operator.is_, made, values)) else made

    def identity(self, guard: Is) -> Iterator[Guard]:
        """A tuple cannot be referred to weakly, and which one it is makes no difference where its items are the same."""
        obj, source = guard.object, self.source(guard.source)
        if not holds_mortal(obj):
            held = self.held(obj)
            yield guard if held is obj and source is guard.source else Is(source, held)
            return
        yield TypeIs(source, tuple)
        yield Length(source, len(obj))
        for i, item in enumerate(obj):
            where = Item(source, i)
            if constants.is_constant(item) and item is not None:
                yield Equals(where, item)
            else:
                yield from self.identity(Is(where, item))

    def keys(self, guard: DictKeys) -> Iterator[Guard]:
        """Keys that may die are known by identity."""
        source, keys = self.source(guard.source), self._each(guard.keys, self.held)
        yield guard if source is guard.source and keys is guard.keys else DictKeys(source, keys)

    def module(self, facts: ModuleFacts) -> ModuleFacts:
        """What is assumed of one module: its hooks may die when they are taken away."""
        moved: ModuleFacts = self.moved(facts)
        if not moved.hooks or not any(moved.hooks):
            return moved
        return replace(moved, hooks=tuple(self._each(own, self.held) for own in moved.hooks))

    def modules(self, guard: ModuleTree) -> Iterator[Guard]:
        """The facts about a tree of modules."""
        modules = self._each(guard.modules, self.module)
        tensors = self._each(guard.tensors, self.moved)
        then = tuple(each for fact in guard.then for each in self.guards(fact))
        yield replace(guard, modules=modules, then=then, tensors=tensors)


def holds_mortal(obj: Any) -> bool:
    """Whether it is a tuple with an object that may die, perhaps in another."""
    return type(obj) is tuple and any(may_die(item) or holds_mortal(item) for item in obj)


_RULES: dict[type, Callable[[Release, Any], Iterator[Guard]]] = {
    Is: Release.identity,
    DictKeys: Release.keys,
    ModuleTree: Release.modules,
}


def release(guards: Iterable[Guard], loads: Sequence[Source] = ()) -> tuple[list[Guard], list[Source]]:
    """The guards, and what they load, without the objects that the program may let go of."""
    ends = Release()
    return [made for guard in guards for made in ends.guards(guard)], list(map(ends.source, loads))


__all__ = ["release"]
