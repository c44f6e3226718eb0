"""What fakes know of their values: computed when asked for, through writes and views, and forgotten where memory is shared with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.errors import DataDependent
from opmill_fake_tensors.symbolic import item_at
from opmill_fake_tensors.symbols import Sizes


def mask(n: int) -> torch.Tensor:
    return torch.ones(1, n)


PROGRAMS = {
    "large": lambda: (mask(600) > 0).any().item(),
    "through views": lambda: mask(600)[:, None, None, :].expand(1, 1, 3, 600)[:, 0, 0, :].sum().item(),
    "arithmetic": lambda: (torch.arange(1000) % 7).sum().item(),
    "chosen": lambda: torch.where(mask(600) == 0, torch.tensor(-3.0), torch.tensor(0.5)).max().item(),
    "mixed sizes": lambda: (torch.arange(300).float().mean() + torch.tensor(2.0)).item(),
    "rows": lambda: [float(b) for a, b in zip(torch.linspace(0, 1, 5)[:-1], torch.linspace(0, 1, 5)[1:], strict=True) if a < b],
    "parts": lambda: [part.sum().item() for part in torch.arange(100).split(30)],
    "one of several": lambda: (
        torch.sort(torch.arange(100) % 7, descending=True)[1][0].item(),
        torch.topk(torch.arange(9.0), 2).values.tolist(),
    ),
    "filled alike": lambda: (
        torch.ones_like(torch.rand(300)).all().item(),
        torch.full_like(torch.rand(3), 2.5).tolist(),
        torch.rand(2).new_full((2,), 7).tolist(),
    ),
    "list": lambda: torch.arange(100)[::30].tolist(),
}


def written() -> list[float]:
    found = []
    own = torch.zeros(1, 600)
    part = own[:, 5:20]
    part[part == 0] = 2.0
    found.append(part.sum().item())
    part += torch.arange(15)
    found.append(part.sum().item())
    part[0].fill_(3.0)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_values_are_those_of_eager(name: str) -> None:
    with FakeContext():
        found = PROGRAMS[name]()
    assert found == PROGRAMS[name]()


def test_a_tensor_that_is_written_in_place_knows_what_it_holds() -> None:
    with FakeContext():
        found = written()
    assert found == written()


def test_other_views_forget_what_was_written_through_one() -> None:
    with FakeContext():
        own = torch.zeros(4, 30)
        row, other = own[0], own[1]
        row.fill_(1.0)
        assert row.sum().item() == 30
        for stale in (own, other):
            with pytest.raises(DataDependent):
                stale.sum().item()
        other.add_(torch.rand(30))
        with pytest.raises(DataDependent):
            row.sum().item()


def test_what_is_written_by_chance_or_from_unknown_values_is_not_known() -> None:
    real = torch.ones(3)
    with FakeContext() as context:
        own, outside = torch.zeros(3), context.from_tensor(real)
        own.normal_()
        with pytest.raises(DataDependent):
            own.sum().item()
        own = torch.zeros(3)
        own.add_(outside)
        with pytest.raises(DataDependent):
            own.sum().item()


def test_values_computed_before_a_write_stay() -> None:
    with FakeContext():
        own = torch.zeros(600)
        doubled = own + 1
        own.fill_(7.0)
        assert doubled.sum().item() == 600


def test_known_tensors_from_outside_tell_who_is_asked() -> None:
    asked: list[str] = []
    flag, other = torch.tensor([1, 0]), torch.tensor(3)
    with FakeContext() as context:
        context.know(flag, lambda: asked.append("flag"))
        context.know(other, lambda: asked.append("other"))
        fake, more = context.from_tensor(flag), context.from_tensor(other)
        total = fake.sum() + 1
        assert asked == []
        assert total.item() == 2 and asked == ["flag"]
        assert (more * fake[0]).item() == 3 and sorted(asked) == ["flag", "flag", "other"]


def test_known_tensors_from_outside_are_forgotten_where_one_that_shares_memory_is_written() -> None:
    base = torch.zeros(8)
    part, apart = base[2:3], torch.zeros(1)
    with FakeContext() as context:
        for known in (part, apart):
            context.know(known, lambda: None)
        context.from_tensor(base)[:4].add_(context.from_tensor(torch.rand(4)))
        with pytest.raises(DataDependent):
            context.from_tensor(part).item()
        assert context.from_tensor(apart).item() == 0


def test_a_known_value_that_cannot_be_computed_is_not_known() -> None:
    with FakeContext():
        picked = torch.arange(100)[torch.full((70,), 200)]
        with pytest.raises(DataDependent):
            picked.sum().item()


VIEWS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "a row that data choose": lambda m, i: item_at(m, i),
    "rows up to one that data choose": lambda m, i: m[:i],
    "rows from one that data choose, of some columns": lambda m, i: m[i:, 1:],
    "several of one operator": lambda m, i: m.unbind(0)[1],
    "split": lambda m, i: m.split(2)[0],
    "a view of a view": lambda m, i: m.t()[1:].unbind(0)[0][:i],
    "iterated": lambda m, i: next(iter(m)),
}


@pytest.mark.parametrize("write", [lambda v: v.fill_(1), lambda v: v.add_(1), lambda v: v.copy_(torch.ones(1)), lambda v: v.zero_()])
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_known_is_forgotten_where_a_view_of_unknown_contents_is_written(name: str, write: Any) -> None:
    two = torch.tensor(2)
    with FakeContext(data=Sizes()) as context:
        number = context.from_tensor(two).item()
        m = torch.zeros(4, 3)
        assert m.sum().item() == 0
        write(VIEWS[name](m, number))
        with pytest.raises(DataDependent):
            m.tolist()


def test_parts_of_a_known_tensor_forget_what_was_written_through_one() -> None:
    with FakeContext():
        own = torch.zeros(4, 30)
        first, second, *_ = own.unbind()
        first.fill_(1.0)
        assert first.sum().item() == 30
        for stale in (own, second):
            with pytest.raises(DataDependent):
                stale.sum().item()
