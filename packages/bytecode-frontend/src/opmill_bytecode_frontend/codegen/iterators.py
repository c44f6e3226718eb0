"""How iterators and generators leave captured code: real ones, which see what their containers become."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Callable

from ..breaks.bodies import suspended
from ..errors import Unsupported
from ..values.base import MISSING, Value
from ..values.constant import ConstantValue
from ..values.iterators import STOP, GeneratorValue, ItemsIterator, PythonIterator
from ..values.mapping import SetValue
from ..values.sequence import SequenceValue
from .rebuild import Rebuilder, rebuilds

#: Items of an unfinished iterator that are made ahead at most.
LONGEST = 10_000


@rebuilds(GeneratorValue)
def generator(r: Rebuilder, value: GeneratorValue) -> str:
    """A generator: where it stood if it had begun, else a new one by a call of its function."""
    function, args, kwargs = value.origin
    if value.frame.pc > 0 and not value.finished:
        if value in r.unfinished:
            raise Unsupported("FE070", "a running generator leaves the captured code", "it refers to itself", "turn it into a list")
        r.unfinished.append(value)
        made, given = suspended(value.frame, value.frame.handled)
        parts = [r.constants.name(made), *[r.expr(ConstantValue(None) if a is None else a) for a in given]]
        return r.assign(value, f"{r.constants.name(begun)}({', '.join(parts)})")
    parts = [*[r.expr(a) for a in args], *[f"{k}={r.expr(v)}" for k, v in kwargs.items()]]
    name = r.assign(value, f"{r.expr(function)}({', '.join(parts)})")
    if value.finished:
        r.body.append(f"{name}.close()")
    return name


def begun(function: Callable[..., Generator[object, object, object]], *args: object) -> object:
    """A generator that has come to its first yield."""
    made = function(*args, (function, *args))
    next(made)
    return made


@rebuilds(ItemsIterator)
def items_iterator(r: Rebuilder, value: ItemsIterator) -> str:
    """An iterator over a container, put to the position that it had."""
    if value.owner is not None:
        if not value.finished:
            assert isinstance(value.owner, SequenceValue), value.owner
            value.owner.there_before(r.vm, value.position)
        name = r.assign(
            value, f"iter({'()' if value.finished and value.kind is type(iter(())) else [] if value.finished else r.expr(value.owner)})"
        )
        r.body.append(f"next({name}, None)" if value.finished else f"{name}.__setstate__({value.position})")
        return name
    if value.walks is not None and not value.finished and not is_of_program(value.walks[0]):
        return walking(r, value, *value.walks)
    return remaining(r, value, lambda position: value.read(r.vm, position), value.position)


def walking(r: Rebuilder, value: ItemsIterator, of: Value, as_it_was: Callable[[], bool]) -> str:
    """A real iterator over a container, which sees how that changes later. What was captured may not have changed it meanwhile."""
    table: Any = getattr(of, "owner", of)
    changed = any(each is table for each in r.vm.effects.changed) and list(table.items) != list(table.before or ())
    if changed or not as_it_was() or not keeps_order(of):
        why = "its changes come after the iterator is made"
        raise Unsupported("FE070", f"an iterator over a changed {of.python_type().__name__} leaves the captured code", why)
    over = r.expr(of)
    if (known := r.known(value)) is not None:  # what it walks over holds it, and it went ahead there
        return known
    name = r.assign(value, f"{r.constants.name(value.maker)}({over})")
    if value.position:
        r.body.append(f"{r.constants.name(go_ahead)}({name}, {value.position})")
    return name


def keeps_order(value: Value) -> bool:
    """Whether a set that is made anew has its items where an iterator that has given some expects them."""
    if not isinstance(value, SetValue) or value.source is not None:
        return True
    return len(value.items) <= 1 or (value.version == 0 and all(type(key) is int and 0 <= key < 8 for key in value.items))


def is_of_program(value: Value) -> bool:
    """Whether it is the part of an object of the program's class that a builtin class knows, and not an object itself."""
    table = getattr(value, "owner", value)
    return table.source is not None and table.real() is not MISSING and type(table.real()) is not table.python_type()


def go_ahead(iterator: Iterator[object], steps: int) -> None:
    """Takes ``steps`` items of an iterator."""
    for _ in range(steps):
        next(iterator)


def remaining(r: Rebuilder, value: Value, read: Callable[[int], object], position: int = 0) -> str:
    """An iterator over the items that are left. Making them must not run code of the program: it would run too early."""
    rest: list[object] = []
    steps, item = r.vm.steps, None
    while item is not STOP:
        if (item := read(position)) is not STOP:
            rest.append(item)
            position += 1
        if r.vm.steps != steps or len(rest) > LONGEST:
            raise Unsupported(
                "FE070", f"an unfinished {value.python_type().__name__} leaves the captured code", "what is left of it cannot be made ahead"
            )
    return r.assign(value, f"iter([{r.list(rest)}])")


@rebuilds(PythonIterator)
def python_iterator(r: Rebuilder, value: PythonIterator) -> str:
    """An iterator of itertools or a builtin one: made of its parts where these are known, else of the items that are left."""
    if value.parts is not None:
        return r.assign(value, f"{r.constants.name(value.maker)}({r.list(value.parts())})")
    return remaining(r, value, lambda position: value.next(r.vm))
