"""Objects that are assumed to be different ones: what is written to one of them must not be seen in another. Tensors that are assumed to be
one: what is inside of wrappers may be elsewhere, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opmill_guards.guard import AllDistinct, SameObject
from opmill_guards.source import Iterated, Pinned

from ..values.deques import DequeValue
from ..values.loops import ComposedIterator, LoopIterator, MovedIterator
from ..values.mapping import DictValue
from ..values.objects import ObjectValue
from ..values.sequence import ListValue
from ..values.sets import SetValue

if TYPE_CHECKING:
    from opmill_guards.source import Source

    from ..interpretation.machine import Interpreter
    from ..values.base import Value


CHANGEABLE = (ListValue, DictValue, SetValue, DequeValue, ObjectValue)


def kept_apart(vm: Interpreter) -> list[AllDistinct]:
    """Guards that objects of one class are different ones, where the captured code changes one of them, or compared two."""
    changed = {id(value) for value in vm.effects.changed}
    groups: dict[type, list[Value]] = {}
    for obj, value in vm.known.values():
        if value.source is not None and isinstance(value, CHANGEABLE):
            groups.setdefault(type(obj), []).append(value)
    found = [AllDistinct(pair) for pair in vm.compared]
    for values in groups.values():
        sources = tuple(dict.fromkeys(value.source for value in values))
        if (
            len(sources) > 1
            and not all(type(source) is Pinned for source in sources)
            and any(is_changed(value, changed) for value in values)
        ):
            found.append(AllDistinct(sources))
    moved = [value for _, value in vm.known.values() if isinstance(value, MovedIterator)]
    if len(moved) > 1 and any(isinstance(value, ComposedIterator) for value in moved):
        found.append(AllDistinct(tuple(value.source for value in moved)))
    for loop in [value for value in moved if isinstance(value, LoopIterator) and value.over is not None]:
        alike = [each for each in vm.effects.changed if each.source is not None and type(each.real()) is type(loop.over)]
        found += [AllDistinct((each.source, Iterated(loop.source))) for each in alike if each.real() is not loop.over]
    return found


def guard_shared(vm: Interpreter) -> list[AllDistinct]:
    """Assumes of tensors inside of wrappers that those which are one object, as that is passed to the function or is inside of another, are
    one again. Gives guards that those which say where rows of jagged tensors lie are different ones otherwise: rows of one are as long as
    rows of another where they are one."""
    if not vm.recorder.inside:
        return []
    plain = [(v.obj, v.source) for v in vm.recorder.by_fake.values() if v.obj is not None and v.scalar is None]
    places: dict[int, list[Source]] = {}
    for tensor, source in [*vm.recorder.inside, *plain]:
        places.setdefault(id(tensor), []).append(source)
    for sources in places.values():
        for other in dict.fromkeys(sources):
            if other != sources[0]:
                vm.guard(SameObject(other, sources[0]))
    rows = [sources[0] for key, sources in places.items() if vm.recorder.context.has_rows(key)]
    return [AllDistinct(tuple(rows))] if len(rows) > 1 else []


def is_changed(value: object, changed: set[int]) -> bool:
    """Whether an object is among the changed ones, or its instance dictionary or the container that it is."""
    parts = (value, value.storage, value.__dict__.get("_attrs")) if isinstance(value, ObjectValue) else (value,)
    return any(id(part) in changed for part in parts)
