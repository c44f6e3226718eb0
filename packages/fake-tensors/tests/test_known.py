"""Values of fakes that come from numbers of the program alone: those that the operators give, also behind writes."""

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.errors import DataDependent

PROGRAMS = {
    "steps": lambda: torch.linspace(0, 1, 5),
    "large": lambda: torch.arange(5000) % 7,
    "filled": lambda: torch.zeros(3, dtype=torch.int64) + 2,
    "written": lambda: torch.zeros(4).fill_(3).mul_(2),
    "several": lambda: torch.stack(torch.arange(6).split(2)),
    "like": lambda: torch.full_like(torch.empty(3), 2.5),
    "ones": lambda: torch.arange(3).new_ones(2, 2),
    "chosen": lambda: torch.arange(10)[torch.arange(10) > 6],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    want = PROGRAMS[name]()
    with FakeContext():
        got = PROGRAMS[name]()
        assert got.tolist() == want.tolist() and got.dtype is want.dtype


def test_what_a_view_wrote_is_not_told_as_it_was():
    with FakeContext():
        x = torch.arange(4)
        x[1:].add_(5)
        try:
            assert x.tolist() == [0, 6, 7, 8]
        except DataDependent:
            pass


def test_tensors_from_outside_are_not_known():
    x = torch.arange(3)
    with FakeContext() as context:
        fake = context.from_tensor(x)
        for unknown in (lambda: fake[0].item(), lambda: (fake + 1)[0].item(), lambda: torch.zeros(3).add_(fake)[0].item()):
            with pytest.raises(DataDependent):
                unknown()


def test_numbers_that_are_drawn_are_not_known():
    with FakeContext(), pytest.raises(DataDependent):
        torch.zeros(2).uniform_()[0].item()
