"""What was assumed of a value, as data. One guard is a fact about one source; a set of guards is what a compiled entry relies on.

Build with the classes below, collect in a :class:`opmill_guards.tree.GuardSet`, check natively through a dispatcher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Union

from .source import Source


@dataclass(frozen=True, slots=True)
class TypeIs:
    """``type(source) is type``."""

    source: Source
    type: type


@dataclass(frozen=True, slots=True, eq=False)
class Is:
    """``source is object`` (None, modules, classes, functions, enum members, singletons). Keeps ``object`` alive."""

    source: Source
    object: Any


@dataclass(frozen=True, slots=True, eq=False)
class Equals:
    """Same exact type and equal value, for constants: int, bool, str, bytes, float (by bits), complex, and tuples and frozensets of these,
    ``torch.dtype``, ``torch.device``, ``torch.Size``."""

    source: Source
    value: Any


@dataclass(frozen=True, slots=True)
class Length:
    """``len(source) == length`` of the builtin storage of a tuple, list, dict, set or deque."""

    source: Source
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class DictKeys:
    """The dict has exactly these keys in this order (compared by identity, then equality)."""

    source: Source
    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """The dict (an instance or class dictionary, globals) has no such key."""

    source: Source
    key: Any


@dataclass(frozen=True, slots=True, eq=False)
class TensorMatch:
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


@dataclass(frozen=True, slots=True)
class SameObject:
    """Two sources give one object."""

    source: Source
    other: Source


@dataclass(frozen=True, slots=True)
class AllDistinct:
    """No two of the sources give the same object."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModuleTree:
    """Nothing in the instance dictionaries of these ``torch.nn.Module``s changed: attributes, ``_parameters``, ``_buffers``, ``_modules``,
    hooks; nor their classes. ``modules`` pairs each module with its source. Checked by versions (3.11) or watchers (3.12+): when
    something did change, the guards in ``then`` (facts about what was really used) are checked one by one, and on success the
    new versions are remembered. Tensors of these modules that were used have their own :class:`TensorMatch` in ``tensors``,
    checked every time (``.data`` can change without any dictionary changing)."""

    modules: tuple[tuple[Source, Any], ...]
    then: tuple[Guard, ...]
    tensors: tuple[TensorMatch, ...] = ()
    snapshot: Any = field(default=None, repr=False)
    """Hooks and classes of the modules at capture; taken when the guard is put into a set."""


@dataclass(frozen=True, slots=True)
class GlobalState:
    """Process- and thread-wide switches that torch reads: grad mode, inference mode, autocast per device (enabled, dtype, cache), default dtype and
    device, deterministic algorithms, torch function modes. Holds the values found at capture; see ``kinds/global_state.py``."""

    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SizeRelation:
    """A Python expression over integer sources, named ``s0``, ``s1``, ... in ``expression`` in the order of ``sources``, is true.
    ``reason`` says who relies on it; two relations that differ in it alone are one."""

    expression: str
    sources: tuple[Source, ...]
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """``function(value of source)`` is true; the last resort for what has no kind of its own. Must not have side effects."""

    source: Source
    function: Callable[[Any], bool]
    label: str


Guard = Union[
    TypeIs, Is, Equals, Length, DictKeys, Absent, TensorMatch, SameObject, AllDistinct, ModuleTree, GlobalState, SizeRelation, Predicate
]
