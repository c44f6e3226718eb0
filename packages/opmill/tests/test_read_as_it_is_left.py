"""What a graph writes to and its backward reads: the backward reads the tensor, as autograd does, with what it holds by then."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import opmill


def _hidden(x: torch.Tensor) -> None:
    x.data[0] -= 1.0


def _hidden_twice(x: torch.Tensor) -> None:
    x.data.mul_(0.5)
    x.data.add_(1.0)


def _hidden_through_a_view(x: torch.Tensor) -> None:
    x.data[1:].view(-1).copy_(torch.ones(3))


def _hidden_by_a_copy(x: torch.Tensor) -> None:
    x.data.copy_(x.detach().exp())


def _by_detaching(x: torch.Tensor) -> None:
    x.detach().mul_(2.0)


WRITES = {each.__name__.strip("_"): each for each in (_hidden, _hidden_twice, _hidden_through_a_view, _hidden_by_a_copy, _by_detaching)}


def _before(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    y = (x * x).sum()
    write(x)
    return y


def _behind(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    write(x)
    return (x * x).sum()


def _around(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    y = (x * x * x).sum()
    write(x)
    return y + (x[1:] * x[:-1]).sum() + x.exp().sum()


def _of_a_part(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    y = (x[:2] * x[2:]).sum()
    write(x)
    return y


def _of_its_result(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    y = x.exp().sin()
    write(x)
    return y.sum()


def _beside_a_product(x: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    y = x.outer(x) @ x
    write(x)
    return y.sum() + x.sum()


READS = {each.__name__.strip("_"): each for each in (_before, _behind, _around, _of_a_part, _of_its_result, _beside_a_product)}


def _counted(x: torch.Tensor) -> None:
    with torch.no_grad():
        x.add_(1.0)


AFTERWARDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda x: None,
    "set back": lambda x: x.data[0].add_(1.0),
    "zeros": lambda x: x.data.zero_(),
    "counted": _counted,
}


def _outcome(function: Callable[..., torch.Tensor], write: Any, afterwards: Callable[[torch.Tensor], Any]) -> list[Any]:
    found: list[Any] = []
    for _ in range(2):
        x = torch.arange(1.0, 5.0).requires_grad_()
        try:
            y = function(x, write)
            found.append(x._version)
            afterwards(x)
            y.backward()
            found += [y.detach(), x.detach().clone(), x.grad]
        except RuntimeError as error:
            found.append("modified by an inplace operation" in str(error))
    return found


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("write", WRITES)
def test_of_a_leaf(write: str, reads: str, afterwards: str) -> None:
    theirs, ours = (
        _outcome(call, WRITES[write], AFTERWARDS[afterwards]) for call in (READS[reads], opmill.compile(READS[reads], fullgraph=True))
    )
    torch.testing.assert_close(ours, theirs)


class Averages(torch.nn.Module):
    """A buffer that is written once, twice, or written through ``data``, and read by what is differentiated."""

    average: torch.Tensor

    def __init__(self, how: str, read: str) -> None:
        super().__init__()
        self.how, self.read = how, read
        self.register_buffer("average", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "once":
            self.average.mul_(0.5)
        elif self.how == "twice":
            self.average.mul_(0.5)
            self.average.add_(x.detach())
        elif self.how == "copied":
            self.average.copy_(x.detach() * 3)
        elif self.how == "a part":
            self.average[1:].add_(1.0)
        else:
            self.average.data.mul_(0.5)
        if self.read == "itself":
            return (x * self.average).sum()
        if self.read == "a part":
            return (x[1:] * self.average[1:]).sum()
        return (x * self.average.exp()).sum()


@pytest.mark.parametrize("afterwards", ["nothing", "another call", "zeros", "counted"])
@pytest.mark.parametrize("read", ["itself", "a part", "a result"])
@pytest.mark.parametrize("how", ["once", "twice", "copied", "a part", "hidden"])
def test_of_a_buffer(how: str, read: str, afterwards: str) -> None:
    outcomes = []
    for compiled in (False, True):
        module = Averages(how, read)
        call = opmill.compile(module, fullgraph=True) if compiled else module
        found: list[Any] = []
        for step in range(3):
            x = (torch.arange(4.0) + step).requires_grad_()
            y = call(x)
            found += [y.detach(), module.average._version, module.average.clone()]
            if afterwards == "another call":
                call(x)
            elif afterwards == "zeros":
                module.average.data.zero_()
            elif afterwards == "counted":
                _counted(module.average)
            try:
                y.backward()
                found.append(x.grad)
            except RuntimeError as error:
                found.append("modified by an inplace operation" in str(error))
        outcomes.append(found)
    torch.testing.assert_close(outcomes[1], outcomes[0])
