"""What iterators of Python's own give next, read natively and in Python, without moving them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from opmill_guards import GuardSet, reference
from opmill_guards.guard import Equals, Is
from opmill_guards.source import Ahead, Inside, Item, Iterated, Local

CONTAINERS: dict[str, Any] = {"list": [4, 5, 6], "tuple": (4, 5, 6), "dict": {4: 1, 5: 2, 6: 3}, "values": {1: 4, 2: 5, 3: 6}}


def made(name: str, container: Any) -> Any:
    return iter(container.values() if name == "values" else container)


def holds(guard: Any, value: object) -> bool:
    return bool(GuardSet([guard]).native(["it"]).check(value))


@pytest.mark.parametrize("taken", range(5))
@pytest.mark.parametrize("name", CONTAINERS)
def test_what_is_ahead(name: str, taken: int) -> None:
    container = CONTAINERS[name]
    iterator = made(name, container)
    for _ in range(taken):
        next(iterator, None)
    rest = [4, 5, 6][taken:]
    for distance in range(-1, 4):
        source = Ahead(Local("it"), distance)
        if 0 <= distance < len(rest):
            assert reference.read(source, {"it": iterator}) == rest[distance] and holds(Equals(source, rest[distance]), iterator)
        else:
            with pytest.raises(reference.Unreadable):
                reference.read(source, {"it": iterator})
            assert not any(holds(Equals(source, value), iterator) for value in (4, 5, 6, None))
    if taken < 4:
        assert reference.read(Iterated(Local("it")), {"it": iterator}) is container and holds(
            Is(Iterated(Local("it")), container), iterator
        )
    else:
        assert not holds(Is(Iterated(Local("it")), container), iterator)
    assert list(iterator) == rest


@pytest.mark.parametrize("name", ["dict", "values"])
def test_deleted_keys_are_passed_over_and_a_changed_dict_has_nothing_ahead(name: str) -> None:
    container: dict[int, int] = {k: k + 3 for k in range(6)}
    del container[2], container[0]
    iterator = made(name, container)
    next(iterator)
    expected = list(container.values() if name == "values" else container)[1]
    assert holds(Equals(Ahead(Local("it"), 0), expected), iterator)
    assert reference.read(Ahead(Local("it"), 0), {"it": iterator}) == expected
    container[9] = 9
    assert not holds(Equals(Ahead(Local("it"), 0), expected), iterator)
    with pytest.raises(reference.Unreadable):
        reference.read(Ahead(Local("it"), 0), {"it": iterator})


@pytest.mark.parametrize("other", [iter(OrderedDict(a=1)), iter({4}), reversed([4]), enumerate([4]), [4], 4])
def test_of_other_iterators_nothing_is_known(other: object) -> None:
    for source in (Ahead(Local("it"), 0), Iterated(Local("it"))):
        assert not holds(Equals(source, 4), other)
        with pytest.raises(reference.Unreadable):
            reference.read(source, {"it": other})


def test_items_of_a_dict() -> None:
    container = {"a": [1], "b": [2]}
    iterator = iter(container.items())
    next(iterator)
    source = Ahead(Local("it"), 0)
    assert reference.read(source, {"it": iterator}) == ("b", [2])
    assert holds(Is(Item(source, 1), container["b"]), iterator) and not holds(Is(Item(source, 1), container["a"]), iterator)
    container["c"] = [3]
    assert not holds(Is(Item(source, 1), container["b"]), iterator)


def test_what_composed_iterators_are_made_of() -> None:
    one, two = [4, 5], (6, 7)
    iterators = iter(one), iter(two)
    made: dict[Any, tuple[object, ...]] = {
        enumerate(iterators[0], 3): (iterators[0], 3),
        zip(*iterators): iterators,
        zip(*iterators, strict=True): iterators,
        map(max, *iterators): (max, *iterators),
    }
    for iterator, parts in made.items():
        for position, part in enumerate(parts):
            source = Inside(Local("it"), position)
            expected = Equals(source, part) if part == 3 else Is(source, part)
            assert reference.read(source, {"it": iterator}) is part and holds(expected, iterator)
        for position in (-1, len(parts)):
            source = Inside(Local("it"), position)
            assert not holds(Is(source, parts[0]), iterator)
            with pytest.raises(reference.Unreadable):
                reference.read(source, {"it": iterator})
    numbered = enumerate(one)
    next(numbered)
    assert holds(Equals(Inside(Local("it"), 1), 1), numbered) and holds(Equals(Ahead(Inside(Local("it"), 0), 0), 5), numbered)


@pytest.mark.parametrize("other", [iter([4]), reversed([4]), filter(None, [4]), [4], type("Own", (enumerate,), {})([4])])
def test_of_others_nothing_is_known(other: object) -> None:
    assert not holds(Equals(Inside(Local("it"), 0), 4), other)
    with pytest.raises(reference.Unreadable):
        reference.read(Inside(Local("it"), 0), {"it": other})
