"""Sets of guards: without repetitions, cheapest first, as a native tree that shares the paths to values, and explained when one fails."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from . import constants, probe, reference
from . import source as s
from .errors import GuardError
from .guard import Guard, ModuleTree
from .kinds import kind_of
from .storage import is_of
from .texts import of_error, short
from .weak import DEAD, WeakObject, living

if TYPE_CHECKING:
    from . import _native

_SOURCES = frozenset(
    {
        s.Local,
        s.Pinned,
        s.Attr,
        s.InstanceDict,
        s.Item,
        s.DictKeyAt,
        s.DictValueAt,
        s.Ahead,
        s.Iterated,
        s.Inside,
        s.ContextValue,
        s.TypeOf,
        s.CellContents,
        s.Referent,
        s.TensorProperty,
    }
)


class Failure(Struct, frozen=True):
    """The first guard that did not hold: on what, what it expected, and what it found."""

    guard: Guard
    source: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        return f"{place}expected {self.expected}, found {self.found}"


_OWN = f"{__package__}."


_REASONS = frozenset({"reason"})
"""Fields that tell no guards apart."""


@functools.cache
def _compared(cls: Any) -> tuple[str, ...]:
    """The fields by which guards and their parts differ."""
    return tuple(name for name in cls.__struct_fields__ if name not in _REASONS)


def _key(value: Any) -> Any:
    cls: Any = type(value)
    if cls in _SOURCES:
        return value
    if cls in constants.ATOMS:
        return constants.key(value)
    if cls is tuple:
        return tuple([_key(item) for item in value])
    if cls is not ModuleTree and str(cls.__module__).startswith(_OWN) and issubclass(cls, Struct):  # no objects of the user
        return cls, *[_key(getattr(value, name)) for name in _compared(cls)]
    return constants.key(value) if constants.is_constant(value) else id(value)  # a tree of modules holds much, and there is one


_FIRST = operator.itemgetter(0)


class _Node(Struct, eq=False):
    access: str
    key: Any
    index: int
    slot: int = -1
    leaves: list[tuple[int, str, Any]] = []
    children: list[_Node] = []

    def freeze(self) -> tuple[int, tuple[Any, ...]]:
        """The cost of its cheapest check, and what ``_native.Tree`` takes."""
        leaves = sorted(self.leaves, key=_FIRST)
        children = sorted([child.freeze() for child in self.children], key=_FIRST)
        costs = [leaf[0] for leaf in leaves[:1]] + [cost + 1 for cost, _ in children[:1]]
        checks = tuple([(kind, operand) for _, kind, operand in leaves])
        return min(costs, default=0), (self.access, self.key, self.index, self.slot, checks, tuple([frozen for _, frozen in children]))


_STEPS: dict[type, Callable[[Any], tuple[str, Any, int]]] = {
    s.Pinned: lambda source: ("weak" if type(source.held) is WeakObject else "pinned", source.held, 0),
    s.Attr: lambda source: ("attr", source.name, 0),
    s.InstanceDict: lambda source: ("dict", None, 0),
    s.Item: lambda source: ("item of weak" if type(source.key) is WeakObject else "item", source.key, 0),
    s.DictKeyAt: lambda source: ("key_at", None, source.position),
    s.DictValueAt: lambda source: ("value_at", None, source.position),
    s.Ahead: lambda source: ("ahead", None, source.distance),
    s.Iterated: lambda source: ("iterated", None, 0),
    s.Inside: lambda source: ("inside", None, source.position),
    s.ContextValue: lambda source: ("context", None, 0),
    s.TypeOf: lambda source: ("type", None, 0),
    s.CellContents: lambda source: ("cell", None, 0),
    s.Referent: lambda source: ("referent", None, 0),
    s.TensorProperty: lambda source: ("tensor", source.property, source.dim),
}


class TreeBuilder:
    """Collects what the kinds compile to, as the description that ``_native.Tree`` takes. See ``kinds/kind.py`` for the methods."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._nodes: dict[s.Source, _Node] = {}
        self._roots: list[_Node] = []
        self._first: list[tuple[str, Any]] = []
        self._relations: list[tuple[str, Any, tuple[int, ...], tuple[int, ...]]] = []
        self._watches: list[tuple[Any, int]] = []
        self._pins: dict[s.Source, tuple[int, int]] = {}
        self._slots = 0
        self._seen: set[Any] = set()

    def _node(self, source: s.Source) -> _Node:
        node = self._nodes.get(source)
        if node is not None:
            return node
        if isinstance(source, s.Local):
            if source.name not in self.names:
                raise GuardError(
                    "GU002", what=f"no local {source.name!r}", why=f"the function has {', '.join(self.names) or 'no parameters'}."
                )
            node = _Node("local", None, self.names.index(source.name))
            self._roots.append(node)
        else:
            step = _STEPS.get(type(source))
            if step is None:
                raise GuardError("GU003", what=f"{source!r} is no source", why="there is no accessor for its class")
            node = _Node(*step(source))
            (self._roots if isinstance(source, s.Pinned) else self._node(source.base).children).append(node)
        self._nodes[source] = node
        return node

    def leaf(self, source: s.Source, kind: str, operand: Any, cost: int) -> None:
        self._node(source).leaves.append((cost, kind, operand))

    def first(self, kind: str, operand: Any) -> None:
        self._first.append((kind, operand))

    def relation(self, kind: str, function: Callable[..., bool] | None, sources: tuple[s.Source, ...], code: tuple[int, ...] = ()) -> None:
        self._relations.append((kind, function, tuple(map(self._slot, sources)), code))

    def _slot(self, source: s.Source) -> int:
        """Where the value of a source is kept during a check."""
        node = self._node(source)
        if node.slot < 0:
            node.slot = self._slots
            self._slots += 1
        return node.slot

    def watch(self, structure: Any, root: s.Source, tensors: tuple[s.Source, ...]) -> None:
        for k, source in enumerate(tensors):
            self._pins.setdefault(source, (len(self._watches), k))
        self._watches.append((structure, self._slot(root)))

    def add(self, guard: Guard) -> None:
        key = _key(guard)
        if key not in self._seen:
            self._seen.add(key)
            kind_of(guard).compile(guard, self)

    def nested(self, guards: tuple[Guard, ...]) -> _native.Tree:
        builder = TreeBuilder(self.names)
        for guard in guards:
            builder.add(guard)
        return builder.build()

    def read(self, source: s.Source, values: tuple[Any, ...]) -> Any:
        return reference.read(source, dict(zip(self.names, values)))

    def check(self, guard: Guard, values: tuple[Any, ...]) -> bool:
        return reference.check(guard, dict(zip(self.names, values)))

    def build(self, loads: Iterable[s.Source] = ()) -> _native.Tree:
        """``loads``: sources whose values the tree gives when its guards hold."""
        from . import _native

        probe.configure()
        loaded = tuple([self._pins.get(source) or (-1, self._slot(source)) for source in loads])
        roots = sorted([root.freeze() for root in self._roots], key=_FIRST)
        return _native.Tree(
            (tuple(self._first), tuple([frozen for _, frozen in roots]), self._slots, tuple(self._relations), tuple(self._watches), loaded)
        )


class GuardSet:
    """What one compiled entry relies on. Guards that say the same are kept once; cheap ones go first."""

    def __init__(self, guards: Iterable[Guard], loads: Iterable[s.Source] = ()) -> None:
        """``loads``: what the target of an entry with these guards is given in front of its arguments, as one tuple, unless there is
        nothing; the tensors of a ``ModuleTree`` are at hand after its check."""
        self.loads = tuple(loads)
        unique: dict[Any, Guard] = {}
        for guard in guards:
            unique.setdefault(_key(guard), guard)
        prepared = [kind_of(guard).prepare(guard) for guard in unique.values()]
        self.guards: tuple[Guard, ...] = tuple(sorted(prepared, key=lambda guard: kind_of(guard).cost))

    def native(self, names: Iterable[str]) -> _native.Tree:
        """The native tree for a function whose locals at entry are ``names``, in this order. GuardError GU002 for a local not among them.
        A tree remembers what it saw of modules: each call makes a new one, as of the present."""
        builder = TreeBuilder(tuple(names))
        for guard in self.guards:
            builder.add(guard)
        return builder.build(self.loads)

    def check(self, local_values: Mapping[str, Any]) -> bool:
        """Whether all guards hold, in Python."""
        return all(reference.check(guard, local_values) for guard in self.guards)

    def explain(self, local_values: Mapping[str, Any]) -> Failure | None:
        """The first guard that does not hold, None if all do."""
        for guard in self.guards:
            if not reference.check(guard, local_values):
                return _failure(guard, local_values)
        return None

    def is_over(self) -> bool:
        """Whether an object has died that the guards ask for: then they never hold again."""
        return any(living(each) is DEAD for guard in self.guards for each in _weakly_held(guard))

    def __len__(self) -> int:
        return len(self.guards)

    def __iter__(self) -> Any:
        return iter(self.guards)

    def __str__(self) -> str:
        return "\n".join(describe(guard) for guard in self.guards)


def _weakly_held(part: Any) -> Iterator[WeakObject]:
    """The weak references in a guard, or in a part of one."""
    if type(part) is WeakObject:
        yield part
    elif type(part) is tuple:
        for each in part:
            yield from _weakly_held(each)
    elif type(part) is s.Pinned:
        yield from _weakly_held(part.held)
    elif isinstance(part, s.Step):
        yield from _weakly_held(part.part)
        yield from _weakly_held(part.base)
    elif isinstance(part, Struct) and str(type(part).__module__).startswith(_OWN):
        for name in _compared(type(part)):
            yield from _weakly_held(getattr(part, name))


def describe(guard: Guard) -> str:
    """One line that says what the guard holds."""
    sources = ", ".join(str(source) for source in kind_of(guard).sources(guard))
    return f"{type(guard).__name__}({', '.join([sources] * bool(sources) + _facts(guard))})"


def _facts(of: Struct) -> list[str]:
    hidden = ("source", "other", "sources", "snapshot", "apart")
    values = {name: getattr(of, name) for name in of.__struct_fields__ if name not in hidden}
    return [f"{name}={_text(value)}" for name, value in values.items() if not _is_empty(value)]


def _is_empty(value: Any) -> bool:
    return value is None or (is_of(value, str) and not value)


def _text(value: Any) -> str:
    """What a field of a guard holds: the program's own objects are not asked."""
    if is_of(value, tuple) and len(value) > 8:
        return f"<{len(value)} of them>"
    if is_of(value, tuple) and any(is_of(each, Struct) for each in value):
        text = f"({', '.join(map(_text, value))})"
    elif is_of(value, Struct):
        source = [str(value.source)] if hasattr(value, "source") else []
        text = f"{type(value).__name__}({', '.join([*source, *_facts(value)])})"
    else:
        text = type.__dict__["__qualname__"].__get__(value) if is_of(value, type) else short(value, 200)
    return text if len(text) <= 200 else text[:197] + "..."


def _expected(guard: Guard) -> str:
    """What a guard expects, where there is nothing that could be told beside it."""
    try:
        return kind_of(guard).describe(guard, lambda source: None)[0]
    except Exception:  # of some kinds it is told by what differs
        return describe(guard)


def _failure(guard: Guard, local_values: Mapping[str, Any]) -> Failure:
    kind = kind_of(guard)
    where = ", ".join(str(source) for source in kind.sources(guard))
    try:
        expected, found = kind.describe(guard, lambda source: reference.read(source, local_values))
    except reference.Unreadable as error:
        expected, found = _expected(guard), f"nothing there: {str(error).removeprefix(f'{where}: ')}"
    except Exception as error:
        expected, found = describe(guard), f"an error: {of_error(error)}"
    return Failure(guard, where, expected, found)
