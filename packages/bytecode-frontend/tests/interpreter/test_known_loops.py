"""Loops and decisions over numbers that a program makes itself, as solvers and samplers have them: whole graphs, with eager's results."""

import pytest
import torch

from opmill_bytecode_frontend import capture


def midpoint(y):
    times, j, seen = torch.linspace(0, 1, 4), 1, [y]
    for begin, end in zip(times[:-1], times[1:]):
        step = end - begin
        y = y + step * torch.tanh(y + step / 2 * torch.tanh(y))
        while j < len(times) and end >= times[j]:
            seen.append(y)
            j += 1
    return torch.stack(seen)


def schedule(x):
    for t in torch.arange(3).flip(0):
        if t > 0:
            x = x * 0.9 + t
    return x


def largest(x):
    values, places = torch.topk(torch.tensor([3.0, 9.0, 4.0]), 2)
    return x * values[0] if places[0] == 1 else x


def unmasked(x):
    mask = torch.ones_like(x, dtype=torch.bool)
    return x * 2 if mask.all() else x[mask]


def in_parts(x):
    for part in torch.arange(6).split([1, 2, 3]):
        x = x + int(part.sum())
    return x


@pytest.mark.parametrize("function", [midpoint, schedule, largest, unmasked, in_parts])
def test_loops_over_known_numbers_are_whole(function):
    compiled = capture(function, "eager", fullgraph=True)
    for size in (3, 5):
        x = torch.linspace(-1, 1, size)
        torch.testing.assert_close(compiled(x), function(x))
