"""Where a value came from, as data: a path from the call's arguments or from a pinned object to the value.

A source is evaluated natively at each check (see ``native/``) and by :func:`opmill_guards.reference.read` in Python.
It prints as the Python expression that a user would write.

Sources are the keys of what is found out while a function is captured. Each computes its hash once, and paths share what they have in
common: a path costs its last step. None is changed once made.
"""

from __future__ import annotations

from typing import Any, Union, cast

from .texts import short
from .weak import DEAD, living

CELL = "the cell of "
"""How the texts of cells begin that have a name."""


class Local:
    """A local of the guarded code object at its entry, by name: parameters, ``*args`` and ``**kwargs`` included."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Local) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def root(self) -> Root:
        return self


class Pinned:
    """An object that the guards themselves keep alive, compared by identity. Sound wherever the object is implied by something
    else that is guarded: the globals of a function whose identity is guarded, the cells of its closure, a class by type.

    ``mortal``: the program has it, where something else that is guarded says, so that the guards need not keep it (``release.py``)."""

    __slots__ = ("_hash", "held", "label", "mortal")

    def __init__(self, held: Any, label: str, mortal: bool = False) -> None:
        self.label = label
        self.held = held
        self.mortal = mortal
        self._hash = id(self.object)

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        return isinstance(other, Pinned) and other.object is self.object is not DEAD

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.label

    __repr__ = __str__

    @property
    def object(self) -> Any:
        """The object; ``DEAD`` where it is held weakly and has died."""
        return living(self.held)

    @property
    def root(self) -> Root:
        return self


class Step:
    """A step away from ``base``; ``part`` says which one. ``root``: where the path begins."""

    __slots__ = ("_hash", "_text", "base", "part", "root")

    def __init__(self, base: Source, part: Any = None) -> None:
        self.base = base
        self.part = part
        self.root: Root = base.root
        self._text: str | None = None  # what steps from here on begin with
        self._hash: int | None = None  # a key of the program's own may run its code: not before somebody asks

    def at(self, base: Source, part: Any) -> Any:
        """This step from ``base``; ``part`` says which one."""
        made = object.__new__(type(self))
        Step.__init__(made, base, part)
        made._text = str(self)
        return made

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Step) or type(self) is not type(other):
            return False
        return (self.part is other.part or self.part == other.part) and (self.base is other.base or self.base == other.base)

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((type(self), self.part, self.base))
        return found

    def __repr__(self) -> str:
        return str(self)


class Attr(Step):
    """``base.name`` by plain lookup (``object.__getattribute__`` semantics of the type are the frontend's to have checked)."""

    __slots__ = ()

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base, name)

    @property
    def name(self) -> str:
        return cast(str, self.part)

    def __str__(self) -> str:
        if self._text is None:
            self._text = f"{self.base}.{self.part}"
        return self._text


class InstanceDict(Step):
    """``base.__dict__``: the object's own dictionary, without running descriptors."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.base}.__dict__"


class Item(Step):
    """``base[key]`` for exact or subclassed tuples, lists, deques (by position) and dicts (by key), reading the builtin storage."""

    __slots__ = ()

    def __init__(self, base: Source, key: Any) -> None:
        super().__init__(base, key)

    @property
    def key(self) -> Any:
        return self.part

    def called(self, text: str) -> Item:
        """This source, which prints as ``text``."""
        self._text = text
        return self

    def __str__(self) -> str:
        if self._text is None:
            self._text = f"{self.base}[{short(self.part)}]"
        return self._text


class _Positioned(Step):
    __slots__ = ()

    def __init__(self, base: Source, position: int) -> None:
        super().__init__(base, position)

    @property
    def position(self) -> int:
        return cast(int, self.part)


class DictKeyAt(_Positioned):
    """The ``position``-th key of a dict in insertion order (for keys that are not constants)."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"list({self.base})[{self.position}]"


class DictValueAt(_Positioned):
    """What a dict has for its ``position``-th key."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"list({self.base}.values())[{self.position}]"


class Ahead(Step):
    """The item that an iterator over a list, a tuple, a dict or a view of one gives next, or that many behind it (``distance``); the
    iterator stays where it is."""

    __slots__ = ()

    def __init__(self, base: Source, distance: int) -> None:
        super().__init__(base, distance)

    @property
    def distance(self) -> int:
        return cast(int, self.part)

    def __str__(self) -> str:
        return f"the item {self.distance} behind the next of {self.base}" if self.distance else f"the next item of {self.base}"


class Iterated(Step):
    """What such an iterator goes over; there is nothing where it has come to its end."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"what {self.base} goes over"


class Inside(_Positioned):
    """What an ``enumerate``, a ``zip`` or a ``map`` was made of, by ``position``: the iterator and the number of the next item; the
    iterators; the function and the iterators."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.base}.__reduce__()[1][{self.position}]"


class ContextValue(Step):
    """What a ``contextvars.ContextVar`` gives in the running context, its default where it is not set."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.base}.get()"


class TypeOf(Step):
    """``type(base)``."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"type({self.base})"


class CellContents(Step):
    """What the closure cell ``base`` holds; prints as the variable where that has a name."""

    __slots__ = ()

    def __str__(self) -> str:
        base = str(self.base)
        return base.removeprefix(CELL) if base.startswith(CELL) else f"{base}.cell_contents"


class Referent(Step):
    """The living object of the weak reference ``base``, which is not of a class derived from ``weakref.ref`` that answers otherwise."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.base}()"


class TensorProperty(Step):
    """``size``/``stride`` of one dimension or the ``storage_offset`` of a tensor, as an int."""

    __slots__ = ()

    def __init__(self, base: Source, property: str, dim: int = 0) -> None:
        super().__init__(base, (property, dim))

    @property
    def dim(self) -> int:
        return cast(int, self.part[1])

    @property
    def property(self) -> str:
        return cast(str, self.part[0])

    def __str__(self) -> str:
        return f"{self.base}.{self.property}({self.dim})"


Root = Union[Local, Pinned]
Source = Union[
    Local,
    Pinned,
    Attr,
    InstanceDict,
    Item,
    DictKeyAt,
    DictValueAt,
    Ahead,
    Iterated,
    Inside,
    ContextValue,
    TypeOf,
    CellContents,
    Referent,
    TensorProperty,
]
