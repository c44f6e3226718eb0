"""Views without elements, which may begin behind the end of the memory that they are of."""

from __future__ import annotations

import pytest
import torch

import opmill

PROGRAMS = {
    "behind the end": lambda a: (a.narrow(0, a.shape[0], 0)[:, 1:], a[a.shape[0] :].mT),
    "of another type": lambda a: (a.narrow(0, a.shape[0], 0).view(torch.int32)[:, 1:],),
    "of a result": lambda a: ((a * 2).narrow(0, a.shape[0], 0)[:, 1:],),
    "of a view": lambda a: (a.t()[:, a.shape[0] :][2:],),
    "read": lambda a: (a.narrow(0, a.shape[0], 0)[:, 1:].sum(0), a + 1),
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_lie_as_in_eager(name: str, dynamic: bool, left_to_torch: list[str]) -> None:
    """What is written is written once: the program ran again where the plan had refused the view behind the write."""

    def function(a: torch.Tensor, written: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.mul(written, 2, out=written)
        return PROGRAMS[name](a)

    compiled = opmill.compile(function, dynamic=dynamic)
    for rows in (3, 5):
        a = torch.arange(6.0 * rows).view(rows, 6)
        ours, theirs = torch.ones(4, 3, dtype=torch.complex64), torch.ones(4, 3, dtype=torch.complex64)
        got, wanted = compiled(a, ours), function(a, theirs)
        assert torch.equal(ours, theirs)
        for x, y in zip(got, wanted, strict=True):
            assert torch.equal(x, y) and (x.stride(), x.storage_offset(), x.dtype) == (y.stride(), y.storage_offset(), y.dtype)
    assert not left_to_torch
