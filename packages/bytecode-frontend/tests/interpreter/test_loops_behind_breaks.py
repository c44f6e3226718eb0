"""Loops that a graph ends in: the rest of a turn and the beginning of the next one are one graph, and what they go over may change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture


def B(x: Any) -> Any:
    """Breaks the graph."""
    return x + 0.5


B._torchdynamo_disable = True  # type: ignore[attr-defined]


class Halting(torch.nn.Module):
    def forward(self, x):
        return B(x) * 2


LAYERS = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(8)).requires_grad_(False)


def numbers(x, given):
    for i in range(9):
        x = B(x + i) * 2
    return x


def layers(x, given):
    kept = []
    for layer in LAYERS:
        x = B(layer(x)) * 2
        kept.append(x)
    return x, kept


def keys(x, given):
    table = {"a": 1.0, "b": 2.0, "c": 3.0}
    for key in table:
        x = B(x * table[key])
    return x


def given_list(x, given):
    for n in given:
        x = B(x * n)
    return x, given


def grown(x, given):
    for n in given:
        x = B(x * n)
        if len(given) < 6:
            given.append(n + 4)
    return x, given


def shrunk(x, given):
    for n in given:
        x = B(x * n)
        given.pop()
    return x, given


def grown_behind_the_last_item(x, given):
    for n in given:
        x = B(x * n)
        y = x + 1
        if n == 3:
            given += [10, 20]
    return x, y


def dict_changed(x, given):
    table, told = {"a": 1.0, "b": 2.0, "c": 3.0}, []
    try:
        for key in table:
            x = B(x * table[key])
            if key == "b":
                table["z"] = 1.0
    except RuntimeError as error:
        told.append(str(error))
    return x, told, list(table)


def taken_inside(x, given):
    iterator = iter([1, 2, 3, 4, 5])
    for n in iterator:
        x = B(x * n) + next(iterator, 7)
    return x, next(iterator, "end")


def left_early(x, given):
    iterator = iter([1, 2, 3, 4, 5])
    for n in iterator:
        x = B(x * n)
        if n == 3:
            break
    return x, list(iterator)


def nested(x, given):
    for n in (1, 2, 3):
        for m in [1, 2]:
            x = B(x * n) + m
        x = x - 1
    return x


def one_turn_only(x, given):
    for n in range(20):
        x = x + n
        if n == 3:
            x = B(x)
    return x


def raising(x, given):
    told = []
    for n in [1, 2, 0, 4]:
        try:
            x = B(x) * (1 // n)
        except ZeroDivisionError:
            told.append(n)
    return x, told


def enumerated(x, given):
    for i, n in enumerate(given, 5):
        x = B(x * n) + i
    return x


def zipped(x, given):
    first, second = iter(given), iter((7, 8))
    for n, m in zip(first, second):
        x = B(x * n) + m
    return x, list(first), list(second)


def zipped_strictly(x, given):
    told = []
    try:
        for n, m in zip(given, (7, 8), strict=True):
            x = B(x * n) + m
    except ValueError as error:
        told.append(str(error))
    return x, told


def zipped_with_itself(x, given):
    iterator = iter([*given, 9, 8, 7])
    for n, m in zip(iterator, iterator):
        x = B(x * n) + m
    return x


def mapped(x, given):
    told = []

    def twice(n, m):
        told.append(n)
        return n * 2 + m

    first, second = iter(given), iter([5, 6])
    for n in map(twice, first, second):
        x = B(x * n) + 1
        told.append("turn")
    return x, told, list(first), list(second)


def enumerated_pairs(x, given):
    for i, (n, m) in enumerate(zip(given, [4.0, 5.0, 6.0])):
        x = B(x * n) + m * i
    return x


def items(x, given):
    table, told = {"a": 1.0, "b": 2.0, "c": 3.0}, []
    for pair in table.items():
        x = B(x * pair[1]) + len(pair[0])
        told.append(pair)
    return x, told


def items_changed(x, given):
    table, told = {"a": 1.0, "b": 2.0, "c": 3.0}, []
    try:
        for key, value in table.items():
            x = B(x * value)
            table[key + "z"] = 1.0
    except RuntimeError as error:
        told.append(str(error))
    return x, told, list(table)


def enumerated_and_taken_inside(x, given):
    iterator = iter([1, 2, 3, 4, 5, 6, 7])
    for i, n in enumerate(iterator):
        x = B(x * n) + next(iterator, 7) * i
    return x


def enumerated_in_a_loop_over_the_same(x, given):
    iterator = iter([1, 2, 3, 4, 5, 6, 7])
    told = []
    for n in iterator:
        x = B(x * n)
        for i, m in enumerate(iterator):
            x = B(x + m) * i
            told.append((n, i, m))
            if i == 1:
                break
    return x, told


def left_and_gone_on_with(x, given):
    numbered, told = enumerate([3, 4, 5, 6]), []
    for i, n in numbered:
        x = B(x * n)
        if i == 1:
            break
    for i, n in numbered:
        x = B(x * n) + i
        told.append(i)
    return x, told, next(numbered, "end")


def grown_while_enumerated(x, given):
    for i, n in enumerate(given):
        x = B(x * n)
        if len(given) < 6:
            given.append(i)
    return x, given


def failing_in_a_map(x, given):
    told = []
    try:
        for n in map(lambda n: 1 // n, [1, 2, 0, 4]):
            x = B(x + n)
    except ZeroDivisionError as error:
        told.append(str(error))
    return x, told


def enumerated_layers(x, given):
    for i, layer in enumerate(LAYERS):
        x = B(layer(x)) * 2 + i
    return x


def pairs_of_layers(x, given):
    for layer, other in zip(LAYERS, LAYERS[1:]):
        x = B(layer(x)) * 2 + other.bias
    return x


def bias_of(layer):
    return layer.bias * 2


def mapped_layers(x, given):
    for bias in map(bias_of, LAYERS):
        x = B(x + bias) * 2
    return x


def mapped_by_what_the_call_makes(x, given):
    for y in map(lambda layer: layer(x), LAYERS):
        x = B(y) * 2
    return x


PROGRAMS = [
    enumerated, zipped, zipped_strictly, zipped_with_itself, mapped, enumerated_pairs, items, items_changed, enumerated_and_taken_inside,
    enumerated_in_a_loop_over_the_same, left_and_gone_on_with, grown_while_enumerated, failing_in_a_map, enumerated_layers, pairs_of_layers,
    mapped_layers, mapped_by_what_the_call_makes,
    numbers, layers, keys, given_list, grown, shrunk, grown_behind_the_last_item, dict_changed, taken_inside, left_early, nested, one_turn_only,
    raising,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_do_as_they_do_plainly(program):
    compiled = capture(program, "eager")
    for k in range(4):
        x = torch.full((3,), 1.0 + k)
        want, got = [f(x.clone(), [1, 2, 3][: 3 - k % 2]) for f in (program, compiled)]
        assert same(want, got)


def counted(program: Any, *args: Any) -> tuple[int, int]:
    """Graphs of the first call, and how many later calls add."""
    graphs: list[object] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(program, backend)
    want = program(*copy.deepcopy(args))
    found = []
    for _ in range(3):
        assert same(want, compiled(*copy.deepcopy(args)))
        found.append(len(graphs))
    return found[0], found[-1] - found[0]


def test_equal_turns_share_a_graph_and_there_is_one_between_two_breaks():
    first, later = counted(layers, torch.ones(3), [])
    assert first <= 4 and later == 0  # before the loop, the turns behind, the list that is there before, and the end


@pytest.mark.parametrize("program", [pairs_of_layers, mapped_layers], ids=lambda program: program.__name__)
def test_turns_of_composed_iterators_share_one_too(program):
    first, later = counted(program, torch.ones(3), [])
    assert first <= 4 and later == 0


def test_turns_that_are_counted_share_one_when_the_number_is_seen_to_change():
    first, later = counted(enumerated_layers, torch.ones(3), [])
    assert first <= 5 and later == 0


def test_the_rest_of_a_loop_without_breaks_is_one_graph():
    assert counted(one_turn_only, torch.ones(3), []) == (2, 0)


def test_layers_of_many_kinds_have_the_limit_each_for_its_own():
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(n, n + 1), Halting()) for n in range(2, 14)),
    ).requires_grad_(False)
    with torch.no_grad():
        first, later = counted(lambda x: model(x), torch.ones(2))
    assert first >= 13 and later == 0


def test_what_a_loop_goes_over_and_what_it_fills_may_be_one_list_in_another_call():
    def program(x, given, filled):
        for n in given:
            x = B(x * n)
            if len(filled) < 6:
                filled.append(n + 4)
        return x, given, filled

    compiled = capture(program, "eager")
    for together in (False, True, False, True):
        results = []
        for f in (program, compiled):
            given = [1, 2, 3]
            results.append(f(torch.ones(2), given, given if together else []))
        assert same(*results)
