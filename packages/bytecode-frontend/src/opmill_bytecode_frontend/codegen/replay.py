"""Statements that make the recorded changes of pre-existing objects."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING

from opmill_guards.guard import Is

from ..effects.changes import Effects
from ..interpretation.identity import root_is_pinned
from ..values.base import MISSING, Lazy, program_hash
from ..values.constant import ConstantValue
from ..values.deques import DequeValue
from ..values.exceptions import ExceptionObject
from ..values.functions import CellValue
from ..values.growing_lists import GrowingList
from ..values.mapping import DictValue, Gone, SetValue
from ..values.objects import ObjectValue, builtin_base
from ..values.sequence import ListValue
from .exceptions import written_field
from .rebuild import Rebuilder

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter
    from ..values.base import Value


#: So many changes of the keys of a dictionary are made one by one.
MOST_STEPS = 200


def replay(r: Rebuilder, effects: Effects) -> None:
    """Rebuild all new contents first, then store them: what is stored must not be read again afterwards."""
    stores: list[str] = []
    if effects.handles:
        r.first_handle()
    for value in effects.changed:
        for kind, emit in KINDS.items():
            if isinstance(value, kind):
                emit(r, value, stores)
                break
    for namespace, name, new in effects.globals.values():
        where = r.constants.name(namespace)
        stores.append(f"{where}.pop({name!r}, None)" if new is None else f"{where}[{name!r}] = {r.expr(new)}")
    for cls, name, _, new, again in effects.attributes.values():
        where = r.constants.name(cls)
        deleting = (
            f"if {name!r} in {where}.__dict__: type.__delattr__({where}, {name!r})"  # what was assigned and deleted again may not be there
        )
        if new is None or again:
            stores.append(deleting)
        if new is not None:
            stores.append(f"type.__setattr__({where}, {name!r}, {r.expr(new)})")
    calls: list[str] = []
    for call in effects.calls:
        function, args, kwargs = call
        given = [*map(r.expr, args), *(f"{k}={r.expr(v)}" for k, v in kwargs.items())]
        calls.append(f"{r.constants.name(function)}({', '.join(given)})")
        if call is effects.first:
            stores, calls = [*calls, *stores], []
    r.body.extend([*stores, *calls])


def replay_list(r: Rebuilder, value: ListValue, stores: list[str]) -> None:
    """A list of before the call gets the items that it has now; one that only grew is extended."""
    target = r.source(value.source)
    if isinstance(value, GrowingList) and value.only_grew:
        stores.append(f"{target}.extend([{r.list(list(value.appended))}])")  # where it is a bounded deque, the first go
        return
    items = f"[{r.list(value.items)}]"
    if isinstance(value, DequeValue) and value.version == 0:  # which iterators do not mind
        new, before = r.temporary(), value.before or []
        r.body.append(f"{new} = {items}")
        other = [i for i, (old, now) in enumerate(zip(before, value.items)) if not same_item(r.vm, old, now)]
        stores += [f"{r.constants.name(value.cls)}.__setitem__({target}, {i}, {new}[{i}])" for i in other]
    elif value.cls is list:
        stores.append(f"list.__setitem__({target}, slice(None), {items})")
    else:
        new = r.temporary()
        r.body.append(f"{new} = {items}")
        base = r.constants.name(value.cls)
        stores += [f"{base}.clear({target})", f"{base}.extend({target}, {new})"]


def same_item(vm: Interpreter, before: object, now: Value) -> bool:
    """Whether an item is what it was, wherever the guards hold: nothing is known of one that was not looked at but where it is found."""
    if before is now:
        return True
    if type(now) is ConstantValue and type(before) is ConstantValue:
        return before.value is now.value or (
            type(before.value) is type(now.value) and type(now.value) in (int, str, bytes) and before.value == now.value
        )
    if type(before) is not Lazy:
        return False
    if (
        type(now) is ConstantValue
        and before.obj is now.value
        and (now.value is None or type(now.value) is bool)
        and before.source is not None
        and (root_is_pinned(before.source) or vm.of_module(before.source))
    ):
        vm.guard(Is(before.source, before.obj))  # a switch that is put back where it was: written, it would look changed at each call
        return True
    return now.source is not None and now.source == before.source


def replay_dict(r: Rebuilder, value: DictValue, stores: list[str]) -> None:
    """A dictionary of before the call gets what changed; where the order did, too, its keys go and come as they did in the program."""
    target = r.source(value.source)
    before = value.before or {}
    deleted = [k for k in before if k not in value.items]
    kept = [k for k in before if k in value.items]
    went = {id(step.key) for step in value.history if isinstance(step, Gone)}
    reordered = (
        kept != [k for k in value.items if k in before][: len(kept)]
        or list(value.items)[: len(kept)] != kept
        or any(id(before[k][0]) in went for k in kept)
    )
    kind = builtin_base(type(value.obj))  # a subclass may have methods of its own, which have run already
    base = r.constants.name(kind)
    steps = as_it_went(r, value, target, base) if reordered else None
    anew = reordered and steps is None
    if steps is not None:
        stores += steps
        before = {k: (key, None) for k, (key, _) in value.items.items()}
    elif anew:
        stores.append(f"{base}.clear({target})")
    else:
        stores += [f"{base}.__delitem__({target}, {r.expr(before[k][0])})" for k in deleted]
    order = list(value.items)
    if not reordered and not value.keys_guarded:  # where what was stored was not there, the first one stored is the first one there
        order = [k for k in order if k not in value.unseen] + [k for k in value.unseen if k in value.items]
    for hashed in order:
        key, item = value.items[hashed]
        if anew or hashed not in before or not same_item(r.vm, before[hashed][1], item):
            plain = f"{base}.__setitem__({target}, {r.expr(key)}, {r.expr(item)})"
            stores.append(r.stored(target, hashed, key, item, plain) if kind in (dict, collections.defaultdict) else plain)


def as_it_went(r: Rebuilder, value: DictValue, target: str, base: str) -> list[str] | None:
    """Statements that take keys out of a dictionary and put them in as the program did, so that iterators over it see that; None where
    that is long, or keys are the program's own."""
    keys = [step.key if isinstance(step, Gone) else step for step in value.history]
    if len(keys) > MOST_STEPS or value.cls is collections.OrderedDict or not all(type(key) is ConstantValue for key in keys):
        return None
    return [
        f"{base}.__delitem__({target}, {r.expr(key)})" if isinstance(step, Gone) else f"{base}.__setitem__({target}, {r.expr(key)}, None)"
        for step, key in zip(value.history, keys)
    ]


def replay_set(r: Rebuilder, value: SetValue, stores: list[str]) -> None:
    """A set of before the call loses and gets single items, or where these are many all of its own."""
    target = r.source(value.source)
    before = value.before or {}
    gone, came = [k for k in before if k not in value.items], [k for k in value.items if k not in before]
    steps = value.lasting()
    if len(steps) <= MOST_STEPS and not any(program_hash(key) is not None for key in (*before, *value.items)):
        stores += [f"set.{step.method}({', '.join([target, *map(r.expr, step.given)])})" for step in steps]
        return
    if len(gone) + len(came) <= MOST_STEPS and not any(program_hash(key) is not None for key in (*gone, *came)):
        stores += [f"set.discard({target}, {r.expr(before[key])})" for key in gone]
        stores += [f"set.add({target}, {r.expr(value.items[key])})" for key in came]
        return
    new = r.expr(SetValue(dict(value.items)))
    stores += [f"set.clear({target})", f"set.update({target}, {new})"]


def replay_cell(r: Rebuilder, value: CellValue, stores: list[str]) -> None:
    """Writes a variable of a function around."""
    target = r.source(value.source)
    stores.append(f"del {target}.cell_contents" if value.content is MISSING else f"{target}.cell_contents = {r.expr(value.content)}")


def replay_slots(r: Rebuilder, value: ObjectValue, stores: list[str]) -> None:
    """Writes what captured code put into slots."""
    target, base = r.source(value.source), r.constants.name(builtin_base(value.cls))
    for name, item in value.slots.items():
        stores.append(f"{base}.__setattr__({target}, {name!r}, {r.expr(item)})")


def replay_exception(r: Rebuilder, value: ExceptionObject, stores: list[str]) -> None:
    """Writes the attributes of an exception."""
    target = r.source(value.source)
    stores += [written_field(r.constants, value.cls, target, name, r.expr(value.fields[name])) for name in value.written]
    replay_slots(r, value, stores)


KINDS: dict[type, Callable[..., None]] = {
    ListValue: replay_list,
    DictValue: replay_dict,
    SetValue: replay_set,
    ExceptionObject: replay_exception,
    CellValue: replay_cell,
    ObjectValue: replay_slots,
}
