"""What was assumed of a value, as data. One guard is a fact about one source; a set of guards is what a compiled entry relies on.

Build with the classes below, collect in a :class:`opmill_guards.tree.GuardSet`, check natively through a dispatcher.
"""

from __future__ import annotations

from typing import Any, Callable, Union

from msgspec import Struct

from .source import Source


class TypeIs(Struct, frozen=True):
    """``type(source) is type``."""

    source: Source
    type: type


class Is(Struct, frozen=True, eq=False):
    """``source is object`` (None, modules, classes, functions, enum members, singletons). Keeps ``object`` alive, unless that is a
    `WeakObject`: then the guard fails once the object has died."""

    source: Source
    object: Any


class Equals(Struct, frozen=True, eq=False):
    """Same exact type and equal value, for constants: int, bool, str, bytes, float (by bits), complex, and tuples and frozensets of these,
    ``torch.dtype``, ``torch.device``, ``torch.Size``."""

    source: Source
    value: Any


class Length(Struct, frozen=True):
    """``len(source) == length`` of the builtin storage of a tuple, list, dict, set or deque."""

    source: Source
    length: int


ANY_KEY: Any = type("AnyKey", (), {"__slots__": (), "__repr__": lambda self: "<any key>"})()
"""Stands for a key of which other guards say what is assumed: it is found by its position."""


class DictKeys(Struct, frozen=True, eq=False):
    """The dict has exactly these keys in this order (compared by identity, then equality; a `WeakObject` by identity alone;
    ``ANY_KEY`` stands for any)."""

    source: Source
    keys: tuple[Any, ...]


class Absent(Struct, frozen=True):
    """The dict (an instance or class dictionary, globals) has no such key."""

    source: Source
    key: Any


class TensorMatch(Struct, frozen=True, eq=False):
    """Facts of a tensor. ``sizes``/``strides``: None for the whole or for one dimension means any (a dynamic one);
    ``requires_grad`` None: not looked at (grad mode is off and nothing read it). ``type`` is exact. ``dispatch_keys`` (raw) None: any."""

    source: Source
    type: type
    dtype: Any
    device: Any
    layout: Any
    sizes: tuple[int | None, ...] | None
    strides: tuple[int | None, ...] | None
    requires_grad: bool | None = None
    dispatch_keys: int | None = None


class SameObject(Struct, frozen=True):
    """Two sources give one object."""

    source: Source
    other: Source


class AllDistinct(Struct, frozen=True):
    """No two of the sources give the same object."""

    sources: tuple[Source, ...]


class ModuleFacts(Struct, frozen=True, eq=False):
    """A module found at ``source`` is exactly of this class. ``hooks``: its forward and backward hooks and pre-hooks, the objects
    themselves by kind (in the order of ``kinds.coverage.HOOKS``) and in their order; None where they may be any. The module itself is not
    held."""

    source: Source
    type: type
    hooks: tuple[tuple[Any, ...], ...] | None = ((), (), (), ())


class ModuleTree(Struct, frozen=True, eq=False):
    """The structure of ``torch.nn.Module``s that hang together: classes and hooks of ``modules``, and the facts in ``then`` about what was
    read in their instance dictionaries, ``_parameters``, ``_buffers`` and ``_modules``. Which modules these are does not matter: any that
    have the structure fit. Per tree that was found to have it, versions (3.11) or watchers (3.12+) tell that nothing changed since; when
    something did, the tree is looked at again. ``tensors``: facts of tensors of these modules, checked every time (``.data`` can change
    without any dictionary changing)."""

    modules: tuple[ModuleFacts, ...]
    then: tuple[Guard, ...]
    tensors: tuple[TensorMatch, ...] = ()
    snapshot: Any = None
    """Attributes of the classes at capture; taken when the guard is put into a set."""
    apart: frozenset[tuple[type, str]] = frozenset()
    """Attributes of classes that may change: guards of their own say what was assumed of them."""


class GlobalState(Struct, frozen=True):
    """Process- and thread-wide switches that torch reads: grad mode, inference mode, autocast per device (enabled, dtype, cache), default
    dtype and device, deterministic algorithms, torch function modes. Holds the values found at capture; see ``kinds/global_state.py``."""

    values: tuple[tuple[str, Any], ...]


class SizeRelation(Struct, frozen=True, eq=False):
    """A Python expression over integer sources, named ``s0``, ``s1``, ... in ``expression`` in the order of ``sources``, is true.
    ``reason`` says who relies on it: in a set of guards, two relations that differ in it alone are one."""

    expression: str
    sources: tuple[Source, ...]
    reason: str = ""


class Predicate(Struct, frozen=True, eq=False):
    """``function(value of source)`` is true; the last resort for what has no kind of its own. Must not have side effects."""

    source: Source
    function: Callable[[Any], bool]
    label: str


class Remembered(Struct, frozen=True, eq=False):
    """A :class:`Predicate` whose function reads nothing but attributes of the object and of its class, and what these hold. It is not
    called again while all of that is as it was.

    ``names``: attributes that are tensors; their looks are guarded elsewhere. ``settled``: classes whose instances never change.
    ``reads``: objects that the function reads besides. Where an attribute holds what may change unseen, it is called each time."""

    source: Source
    function: Callable[[Any], bool]
    label: str
    names: tuple[str, ...] = ()
    settled: tuple[type, ...] = ()
    reads: tuple[Any, ...] = ()


Guard = Union[
    TypeIs, Is, Equals, Length, DictKeys, Absent, TensorMatch, SameObject, AllDistinct, ModuleTree, GlobalState, SizeRelation, Predicate,
    Remembered,
]  # fmt: skip
