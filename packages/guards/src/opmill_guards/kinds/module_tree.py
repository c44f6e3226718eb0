"""Trees of modules that have the structure which was found at capture.

The native check compares evidence per tree (see ``native/modules.cpp``); ``coverage.py`` says what that evidence implies. What it does not
imply is checked at every call, whether the guard lists it in ``then`` or in ``tensors``.

Classes are compared with a snapshot of the time when the guard was put into a set: these guards hold as long as every class in the modules'
MROs has the same attributes, and the hooks of all modules are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..guard import Guard, ModuleFacts, ModuleTree, TensorMatch, TypeIs
from ..source import Source
from ..weak import living
from . import tensor_match
from .coverage import HOOKS, TABLES, Coverage
from .kind import Builder, Kind, Read

_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
_IGNORED_ON_CLASSES = frozenset({"__weakref__", "__dict__", "__doc__", "__annotations__", "__annotations_cache__"})


def facts_of(source: Source, module: Any, hooks: bool = True) -> ModuleFacts:
    """What is assumed of a module as it is now, wherever else it may be found. ``hooks``: whether its hooks matter."""
    return ModuleFacts(source, type(module), hooks_of(module) if hooks else None)


def _global_hooks() -> tuple[dict[Any, Any], ...]:
    module = sys.modules.get("torch.nn.modules.module")
    return tuple(getattr(module, name) for name in _GLOBAL_HOOKS if hasattr(module, name))


def _same_items(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is living(y) for x, y in zip(a, b))


def hooks_of(module: Any) -> tuple[tuple[Any, ...], ...]:
    """The hooks of a module by kind, in the order of ``coverage.HOOKS``."""
    own = vars(module)
    return tuple(tuple((own.get(name) or {}).values()) for name in HOOKS)


def _attributes(class_: type, apart: frozenset[tuple[type, str]]) -> dict[str, Any]:
    return {name: value for name, value in class_.__dict__.items() if name not in _IGNORED_ON_CLASSES and (class_, name) not in apart}


class Snapshot(Struct, frozen=True, eq=False):
    """Classes of modules, and the hooks of all modules, at one time."""

    mros: dict[type, tuple[type, ...]]
    attributes: dict[type, dict[str, Any]]
    global_hooks: tuple[Any, ...]
    apart: frozenset[tuple[type, str]] = frozenset()

    @classmethod
    def take(cls, types: set[type], apart: frozenset[tuple[type, str]] = frozenset()) -> Snapshot:
        mros = {type_: type_.__mro__ for type_ in types}
        classes = {class_ for mro in mros.values() for class_ in mro if class_ is not object}
        hooks = tuple(hook for hooks in _global_hooks() for hook in hooks.values())
        return cls(mros, {class_: _attributes(class_, apart) for class_ in classes}, hooks, apart)

    def changed_attributes(self) -> Iterator[tuple[type, str]]:
        """Attributes of classes that are others now."""
        for class_, before in self.attributes.items():
            now = _attributes(class_, self.apart)
            yield from ((class_, name) for name in before.keys() | now.keys() if now.get(name, self) is not before.get(name, self))

    def difference(self) -> str | None:
        """What changed since, None if nothing did."""
        for type_, mro in self.mros.items():
            if type_.__mro__ != mro:
                return f"the bases of class {type_.__qualname__} changed"
        for class_, name in self.changed_attributes():
            return f"class attributes {class_.__qualname__}.{name} changed"
        if not _same_items(tuple(hook for hooks in _global_hooks() for hook in hooks.values()), self.global_hooks):
            return "global module hooks changed"
        return None


def _prepare(guard: ModuleTree) -> ModuleTree:
    if guard.snapshot is not None:
        return guard
    return replace(guard, snapshot=Snapshot.take({facts.type for facts in guard.modules}, guard.apart))


def _sources(guard: ModuleTree) -> tuple[Source, ...]:
    return ()


def _different_module(facts: ModuleFacts, read: Read) -> tuple[str, str] | None:
    """Expected and found, where a module is another one than assumed."""
    try:
        module = read(facts.source)
    except Exception as error:
        return f"{facts.source}: a {facts.type.__qualname__}", f"{facts.source}: nothing there ({error})"
    if type(module) is not facts.type:
        return f"{facts.source}: a {facts.type.__qualname__}", f"{facts.source}: a {type(module).__qualname__}"
    if facts.hooks is not None and not all(map(_same_items, hooks_of(module), facts.hooks)):
        return f"{facts.source}: the hooks that it had", f"hooks of {facts.source} changed"
    return None


def _failing(guard: ModuleTree, read: Read) -> Guard | None:
    from . import kind_of

    for part in (*guard.then, *guard.tensors):
        try:
            if not kind_of(part).check(part, read):
                return part
        except Exception:
            return part
    return None


def _check(guard: ModuleTree, read: Read) -> bool:
    if guard.snapshot is not None and guard.snapshot.difference() is not None:
        return False
    return not any(_different_module(facts, read) for facts in guard.modules) and _failing(guard, read) is None


def _describe(guard: ModuleTree, read: Read) -> tuple[str, str]:
    from . import kind_of

    difference = guard.snapshot.difference() if guard.snapshot is not None else None
    if difference is not None:
        return "the modules as they were", difference
    for facts in guard.modules:
        if (different := _different_module(facts, read)) is not None:
            return different
    part = _failing(guard, read)
    if part is None:
        return "the modules as they were", "no difference"
    source = ", ".join(str(source) for source in kind_of(part).sources(part))
    try:
        expected, found = kind_of(part).describe(part, read)
    except Exception as error:
        return f"{source}: {type(part).__name__}", f"{source}: nothing there ({error})"
    return f"{source}: {expected}", f"{source}: {found}"


def _trees(guard: ModuleTree, module_getattr: Any) -> list[tuple[Coverage, list[ModuleFacts]]]:
    """The modules by the roots from which they are found: those that no other of the modules leads to."""
    modules: dict[Source, ModuleFacts] = {}
    for facts in guard.modules:
        modules.setdefault(facts.source, facts)
    tuples = frozenset(part.source for part in guard.then if type(part) is TypeIs and part.type is tuple)
    trees: list[tuple[Coverage, list[ModuleFacts]]] = []
    for source, facts in sorted(modules.items(), key=lambda pair: _depth(pair[0])):
        found = next((own for coverage, own in trees if coverage.has(source)), None)
        if found is None:
            trees.append((Coverage(source, modules, tuples, module_getattr), [facts]))
        else:
            found.append(facts)
    return trees


def _depth(source: Any) -> int:
    depth = 0
    while hasattr(source, "base"):
        source, depth = source.base, depth + 1
    return depth


def _classes_hold(snapshot: Snapshot) -> Callable[[], bool]:
    return lambda: snapshot.difference() is None


def _compile(guard: ModuleTree, into: Builder) -> None:
    from .. import _native

    guard = _prepare(guard)
    nn = getattr(sys.modules.get("torch"), "nn", None)
    trees = _trees(guard, nn.Module.__dict__["__getattr__"] if nn is not None else None)
    then: list[list[Guard]] = [[] for _ in trees]
    pinned: list[list[TensorMatch]] = [[] for _ in trees]
    for part in (*guard.then, *guard.tensors):
        exact = part if isinstance(part, TensorMatch) else None
        tree = next((k for k, (own, _) in enumerate(trees) if (own.has(exact.source) if exact is not None else own.covers(part))), None)
        if tree is None:
            into.add(part)
        elif exact is not None:
            pinned[tree].append(exact)
        else:
            then[tree].append(part)
    recheck = _classes_hold(guard.snapshot)
    for (coverage, modules), facts, tensors in zip(trees, then, pinned):
        known = sorted(((coverage.number(m.source), m.type, _flat(m.hooks)) for m in modules), key=lambda each: each[0])
        pins = tuple((coverage.number(match.source), tensor_match.description(match)) for match in tensors)
        nested = into.nested(tuple(facts))
        description = tuple(coverage.steps), tuple(known), TABLES, HOOKS, _global_hooks(), nested, pins, recheck
        into.watch(_native.ModuleStructure(description), coverage.root, tuple(match.source for match in tensors))


def _flat(hooks: tuple[tuple[Any, ...], ...] | None) -> tuple[Any, ...]:
    """Empty where they may be any."""
    return () if hooks is None else tuple(item for own in hooks for item in (*own, ...))


KIND = Kind(ModuleTree, 100, _check, _compile, _describe, _sources, _prepare)
