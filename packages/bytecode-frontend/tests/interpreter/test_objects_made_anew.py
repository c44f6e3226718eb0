"""Objects of classes of C (futures, generators of random numbers, work that is under way) of which each call has another one: after some
calls nothing is captured any more, and the limit of captures is not reached."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

Future = type(torch.futures.Future().then(lambda done: None))
"""The class of C, not that of Python which `torch.futures` has."""


@torch.compiler.disable
def under_way(x: torch.Tensor) -> Any:
    done: Any = torch.futures.Future()
    done.set_result(x)
    return done.then(lambda done: done.value() * 2)


def chained(x: torch.Tensor) -> Any:
    return under_way(x + 1).wait() + 1


def continued(x: torch.Tensor) -> Any:
    return under_way(x + 1).then(lambda done: done.value() + 3).wait() * x


def of_a_variable(x: torch.Tensor) -> Any:
    first = under_way(x + 1)
    second = first
    y = x * 2
    return second.wait() + y, first is second, first == second


def of_a_list(x: torch.Tensor) -> Any:
    for each in [under_way(x), under_way(x * 2)]:
        x = x + each.wait()
    return x


def as_a_key(x: torch.Tensor) -> Any:
    first = under_way(x)
    found = {first: 1}
    return x + found[first], under_way(x) in found


def as_a_truth(x: torch.Tensor) -> Any:
    first = under_way(x)
    y = first.value() if first else x
    return y + 1 if first.done() else y


def drawn(x: torch.Tensor) -> Any:
    source = torch.Generator().manual_seed(3)
    y = x + torch.rand(3, generator=source)
    return y * torch.randn(3, generator=source), source.initial_seed()


def given(x: torch.Tensor) -> Any:
    return used(x * 2, under_way(x)) + 1


def used(y: torch.Tensor, other: Any) -> torch.Tensor:
    return y + other.wait() * 3


def written(x: torch.Tensor) -> Any:
    text = io.StringIO()
    text.write(str(x.tolist()))
    return x * len(text.getvalue())


PROGRAMS = [chained, continued, of_a_variable, of_a_list, as_a_key, as_a_truth, drawn, given, written]


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else [plain(v) for v in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program) -> None:
    assert type(under_way(torch.ones(1))) is Future
    made = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    compiled = capture(program, backend)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(16):
            x = torch.arange(3.0) + k % 4
            assert plain(compiled(x)) == plain(program(x))
            if k == 11:
                known = len(made)
    assert known == len(made)
    assert not [each for each in found if "FE090" in str(each.message)]
