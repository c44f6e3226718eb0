"""Operators that take positions, on tensors without dimensions, without elements, and of shapes that do not fit: compiled they refuse what
eager refuses, and give what it gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opmill

Case = tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]

OPERATORS: dict[str, Callable[[torch.Tensor, int, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_add": lambda x, dim, i, s: x.index_add(dim, i, s),
    "index_copy": lambda x, dim, i, s: x.index_copy(dim, i, s),
    "index_reduce": lambda x, dim, i, s: x.index_reduce(dim, i, s, "prod"),
    "index_reduce_": lambda x, dim, i, s: x.clone().index_reduce_(dim, i, s, "mean", include_self=False),
    "index_select": lambda x, dim, i, s: x.index_select(dim, i),
    "index_fill": lambda x, dim, i, s: x.index_fill(dim, i, 3.0),
    "index_put": lambda x, dim, i, s: x.index_put((i,), s),
    "scatter": lambda x, dim, i, s: x.scatter(dim, i, s),
    "scatter_reduce": lambda x, dim, i, s: x.scatter_reduce(dim, i, s, "amax"),
    "put": lambda x, dim, i, s: x.put(i, s),
    "take": lambda x, dim, i, s: x.take(i),
}
SHAPES: list[tuple[tuple[int, ...], ...]] = [
    *itertools.product([()], [(), (1,), (2,)], [(), (1,), (2,), (1, 1)]),
    *itertools.product([(1,), (3,)], [(), (1,), (2,), (1, 2)], [(), (1,), (2,)]),
    *itertools.product([(0,), (0, 3)], [(), (1,), (0,)], [(), (1,), (0,), (1, 3)]),
    *itertools.product([(2, 3)], [(0,), (2,)], [(), (2,), (2, 3), (2, 2)]),
]


def cases() -> list[Case]:
    made = []
    for sizes, dim in itertools.product(SHAPES, (0, 1)):
        x, i, s = (torch.arange(torch.Size(n).numel()).reshape(n) for n in sizes)
        made.append((x.float() + 2, dim, i % 2, s.float() + 5))
    return made


def outcome(call: Callable[..., Any], case: Case) -> Any:
    try:
        result = call(*case)
    except Exception as error:
        return type(error)
    return tuple(result.shape), result.tolist()


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", OPERATORS)
def test_refused_as_eager_refuses(name: str) -> None:
    function = OPERATORS[name]
    told: set[Any] = set()
    for case in cases():
        expected = outcome(function, case)
        kind = expected if isinstance(expected, type) else "taken", *(t.dim() for t in case if isinstance(t, torch.Tensor))
        if (kind, case[0].numel() == 0) in told:
            continue  # one of each kind: every case is compiled
        told.add((kind, case[0].numel() == 0))
        assert outcome(opmill.compile(function), case) == expected, [t if isinstance(t, int) else tuple(t.shape) for t in case]


LABELS = torch.tensor([[1, 0, -1, 2]])


@pytest.mark.parametrize("label", [-2, 4])
@pytest.mark.parametrize("place", range(4))
def test_labels_of_margins_are_classes_or_end_the_row(label: int, place: int) -> None:
    target = LABELS.clone()
    target[0, place] = label
    loss = opmill.compile(torch.nn.functional.multilabel_margin_loss)
    for call in (torch.nn.functional.multilabel_margin_loss, loss):
        with pytest.raises(RuntimeError, match="target.* is out of range"):
            call(torch.randn(1, 4), target)
    assert loss(torch.zeros(1, 4), LABELS).item() == 1
