"""Trees of modules that did not change.

The native check compares evidence (see ``native/modules.cpp``); ``coverage.py`` says what that evidence implies. What it does not imply is checked
at every call, whether the guard lists it in ``then`` or in ``tensors``.

Hooks and classes are compared with a snapshot of the time when the guard was put into a set: these guards hold as long as the hooks are the same
objects in the same order and every class in the modules' MROs has the same attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..guard import Guard, Is, ModuleTree, TensorMatch, TypeIs
from ..source import Pinned, Source
from . import tensor_match
from .coverage import HOOKS, TABLES, Coverage, Uncovered
from .kind import Builder, Kind, Read

_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
_IGNORED_ON_CLASSES = frozenset({"__weakref__", "__dict__", "__doc__", "__annotations__", "__annotations_cache__"})


def _global_hooks() -> tuple[dict[Any, Any], ...]:
    module = sys.modules.get("torch.nn.modules.module")
    return tuple(getattr(module, name) for name in _GLOBAL_HOOKS if hasattr(module, name))


def _same_items(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def _hooks(module: Any) -> tuple[Any, ...]:
    own = vars(module)
    return tuple(hook for name in HOOKS for hook in (own.get(name) or {}).values())


def _attributes(class_: type, apart: frozenset[tuple[type, str]]) -> dict[str, Any]:
    return {name: value for name, value in class_.__dict__.items() if name not in _IGNORED_ON_CLASSES and (class_, name) not in apart}


class Snapshot(Struct, frozen=True, eq=False):
    """Hooks and classes of the modules at one time."""

    types: tuple[tuple[type, tuple[type, ...]], ...]
    attributes: dict[type, dict[str, Any]]
    hooks: tuple[tuple[Any, ...], ...]
    global_hooks: tuple[Any, ...]
    apart: frozenset[tuple[type, str]] = frozenset()

    @classmethod
    def take(cls, modules: tuple[Any, ...], apart: frozenset[tuple[type, str]] = frozenset()) -> Snapshot:
        types = tuple((type(module), type(module).__mro__) for module in modules)
        classes = {class_ for _, mro in set(types) for class_ in mro if class_ is not object}
        return cls(
            types,
            {class_: _attributes(class_, apart) for class_ in classes},
            tuple(_hooks(module) for module in modules),
            tuple(hook for hooks in _global_hooks() for hook in hooks.values()),
            apart,
        )

    def changed_attributes(self) -> Iterator[tuple[type, str]]:
        """Attributes of classes that are others now."""
        for class_, before in self.attributes.items():
            now = _attributes(class_, self.apart)
            yield from ((class_, name) for name in before.keys() | now.keys() if now.get(name, self) is not before.get(name, self))

    def difference(self, modules: tuple[tuple[Source, Any], ...]) -> str | None:
        """What changed since, None if nothing did."""
        for (source, module), (type_, mro), hooks in zip(modules, self.types, self.hooks):
            if type(module) is not type_ or type_.__mro__ != mro:
                return f"the class of {source} or its bases changed"
            if not _same_items(_hooks(module), hooks):
                return f"hooks of {source} changed"
        for class_, name in self.changed_attributes():
            return f"class attributes {class_.__qualname__}.{name} changed"
        if not _same_items(tuple(hook for hooks in _global_hooks() for hook in hooks.values()), self.global_hooks):
            return "global module hooks changed"
        return None


def _prepare(guard: ModuleTree) -> ModuleTree:
    if guard.snapshot is not None:
        return guard
    return replace(guard, snapshot=Snapshot.take(tuple(module for _, module in guard.modules), guard.apart))


def _parts(guard: ModuleTree) -> tuple[Guard, ...]:
    return (*(Is(source, module) for source, module in guard.modules), *guard.then, *guard.tensors)


def _sources(guard: ModuleTree) -> tuple[Source, ...]:
    return ()


def _failing(guard: ModuleTree, read: Read) -> Guard | None:
    from . import kind_of

    for part in _parts(guard):
        try:
            if not kind_of(part).check(part, read):
                return part
        except Exception:
            return part
    return None


def _check(guard: ModuleTree, read: Read) -> bool:
    if guard.snapshot is not None and guard.snapshot.difference(guard.modules) is not None:
        return False
    return _failing(guard, read) is None


def _describe(guard: ModuleTree, read: Read) -> tuple[str, str]:
    from . import kind_of

    difference = guard.snapshot.difference(guard.modules) if guard.snapshot is not None else None
    if difference is not None:
        return "the modules as they were", difference
    part = _failing(guard, read)
    if part is None:
        return "the modules as they were", "no difference"
    source = ", ".join(str(source) for source in kind_of(part).sources(part))
    try:
        expected, found = kind_of(part).describe(part, read)
    except Exception as error:
        return f"{source}: {type(part).__name__}", f"{source}: nothing there ({error})"
    return f"{source}: {expected}", f"{source}: {found}"


def _split(guard: ModuleTree, coverage: Coverage) -> tuple[list[Guard], list[Guard], list[TensorMatch]]:
    """(checked at every call, checked when something changed, tensors that are pinned)."""
    always: list[Guard] = []
    on_change: list[Guard] = []
    pinned: list[TensorMatch] = []
    for source, module in guard.modules:
        same = Is(source, module)
        if type(source) is Pinned and source.object is module:
            continue
        try:
            (on_change if coverage.derived(source) is module else always).append(same)
        except Uncovered:
            always.append(same)
    for part in (*guard.then, *guard.tensors):
        if type(part) is not TensorMatch:
            (on_change if coverage.covers(part) else always).append(part)
            continue
        try:
            coverage.value(part.source)
            pinned.append(part)
        except Uncovered:
            always.append(part)
    return always, on_change, pinned


def _recheck(guard: ModuleTree, pinned: list[TensorMatch], types: tuple[Guard, ...], into: Builder) -> Callable[..., Any]:
    def recheck(*values: Any) -> tuple[Any, ...] | None:
        if not all(into.check(part, values) for part in (*types, guard)):
            return None
        return tuple(into.read(match.source, values) for match in pinned)

    return recheck


def _compile(guard: ModuleTree, into: Builder) -> None:
    from .. import _native

    guard = _prepare(guard)
    torch = sys.modules.get("torch")
    nn = getattr(torch, "nn", None)
    coverage = Coverage(guard.modules, nn.Module.__dict__["__getattr__"] if nn is not None else None)
    always, on_change, pinned = _split(guard, coverage)
    for part in always:
        into.add(part)
    types = tuple(TypeIs(source, exact) for source, exact in coverage.containers.items())
    tensors = [coverage.value(match.source) for match in pinned]
    then = into.nested((*types, *on_change, *(Is(match.source, tensor) for match, tensor in zip(pinned, tensors))))
    modules = tuple({id(module): module for _, module in guard.modules}.values())
    pins = tuple((tensor, tensor_match.description(match)) for match, tensor in zip(pinned, tensors))
    recheck = _recheck(guard, pinned, types, into)
    into.watch(_native.ModuleWatch((modules, TABLES + HOOKS, len(TABLES), _global_hooks(), then, pins, recheck)))


KIND = Kind(ModuleTree, 100, _check, _compile, _describe, _sources, _prepare)
