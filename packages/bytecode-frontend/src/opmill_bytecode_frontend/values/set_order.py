"""In which order a set gives its items: that of a real set with the same past, of stand-ins that have the same hashes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from opmill_guards.storage import items_of

from .base import MISSING, NotConstant, Value, program_hash
from .constant import LITERALS

Layout = set[Hashable] | frozenset[Hashable]
Keyed = dict[Any, Value]
"""The values of a set by their keys."""
Made = Callable[[list[Hashable], type], Layout]
PLAIN = frozenset(LITERALS)
"""Classes whose objects are the keys of themselves."""


class StandIn:
    """Stands in a set where an object with this hash would."""

    __slots__ = ("key", "number")

    def __init__(self, key: Hashable, number: int) -> None:
        self.key = key
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and other.key == self.key


def stands_for_itself(obj: object) -> bool:
    """Whether an object's hash and comparison are Python's own: a plain constant, or a tuple of such."""
    kind = type(obj)
    return kind in PLAIN or (kind is tuple and all(map(stands_for_itself, cast("tuple[object, ...]", obj))))


def stand_in(key: Hashable, value: Value) -> Hashable:
    """What stands in a set for a value with this key, or MISSING where its hash is not known."""
    if type(key) in PLAIN:
        return key
    number = program_hash(key)
    if number is None:
        try:
            real: Hashable = value.constant()
            number = hash(real)
        except (NotConstant, TypeError):
            return MISSING
        if stands_for_itself(real) and real == key:
            return key
    return StandIn(key, number)


def stand_ins(items: Keyed) -> list[Hashable] | None:
    """Real objects that are hashed and compared as the items are; None where one item has none."""
    found = [stand_in(key, value) for key, value in items.items()]
    return None if any(each is MISSING for each in found) else found


def key_of(stands: Hashable) -> Hashable:
    """The key of what a stand-in stands for."""
    return stands.key if isinstance(stands, StandIn) else stands


def layout_of(items: Keyed) -> Layout | None:
    """That of a set to which the items were added one by one."""
    found = stand_ins(items)
    if found is None:
        return None
    layout: set[Hashable] = set()
    for each in found:
        layout.add(each)
    return layout


def own_layout(obj: Layout, keys: Iterable[object]) -> Layout | None:
    """A real set is its own layout where its objects are the keys of themselves."""
    own = items_of(obj)
    return obj if all(map(stands_for_itself, own)) and set(own) == set(keys) else None


@dataclass(frozen=True)
class Way:
    """How a set of a class is made anew of a list: a text, and what it makes."""

    text: str
    make: Made
    filling: tuple[int, ...] = ()
    """Items that make room in its table first, and go again."""


def _copied(items: list[Hashable], cls: type) -> Layout:
    first = set(iter(items))
    return cast("Layout", cls(first))


def _with_room(count: int) -> Way:
    """A set whose table is as large as one of ``count`` more items needs: items that leave a set do not make its table smaller."""
    filling = tuple(-(1 << 40) - k for k in range(count))  # no object has such a hash
    text = "{cls}({filling}) ^ {set}({items}).union({filling})"
    return Way(text, lambda items, cls: cls(filling) ^ set(iter(items)).union(filling), filling)


WAYS = (
    Way("{cls}({items})", lambda items, cls: cast("Layout", cls(iter(items)))),
    Way("{cls}({set}({items}))", _copied),
    Way("{cls}({dict}.fromkeys({items}))", lambda items, cls: cast("Layout", cls(dict.fromkeys(items)))),
)
Step = tuple[Callable[..., object], tuple[Iterable[Hashable] | None, ...]]
"""What a set went through: a function, and what it was given behind the set; the first step makes it."""


def same_past(layout: Layout | None, steps: Sequence[Step]) -> bool:
    """Whether these steps, made once more of the same constants, give a set in the order of the layout."""
    if (
        not layout
        or not steps
        or not all(map(stands_for_itself, itertools.chain.from_iterable(part or () for _, given in steps for part in given)))
    ):
        return False
    first, *others = steps
    made = first[0](*first[1])
    for step, given in others:
        step(made, *given)
    return type(made) is type(layout) and list(made) == list(layout)


ROOMS = (5, 8, 16, 32, 64)
"""Numbers of items that a table of 16 places or the next power of two and so on is made for."""
FEW = 5
"""Items that are tried in every order."""


def as_added(items: Keyed) -> tuple[Way, list[Value]]:
    """A set to which the items are added one by one."""
    return WAYS[0], list(items.values())


def same_order(layout: Layout | None, items: Keyed) -> tuple[Way, list[Value]] | None:
    """How a set of these items is made anew that gives them in the order of the layout, where that is found."""
    if layout is not None:
        wanted = list(layout)
        ways = [*WAYS, *(_with_room(room - len(wanted)) for room in ROOMS if room > len(wanted))]
        orders = itertools.chain((stand_ins(items), wanted), itertools.permutations(wanted) if len(wanted) <= FEW else ())
        for stands in (each for each in orders if each):
            for way in ways:
                if list(way.make(list(stands), set)) == wanted:
                    return way, [items[key_of(each)] for each in stands]
    return None
