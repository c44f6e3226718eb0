"""Where an input begins in its storage is asked for by programs, and differs from view to view: what is answered holds for that call."""

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture


def asked(x):
    return x + x.storage_offset()


def of_the_class(x):
    return x * torch.Tensor.storage_offset(x)


def of_a_view(x):
    return x[1:] + x[1:].storage_offset()


def strided(x):
    return x.as_strided((2,), (1,), x.storage_offset()) + 0


def decided(x):
    return x + 1 if x.storage_offset() else x - 1


def written(x):
    y = x.as_strided((2,), (x.stride(0),), x[1:].storage_offset())
    y.mul_(-1)
    return x.sum()


def of_what_is_made(x):
    y = torch.empty(7)[3:]
    return x + y.storage_offset()


PROGRAMS = (asked, of_the_class, of_a_view, strided, decided, written, of_what_is_made)
INPUTS = {
    "one size": [lambda n=n: torch.arange(20.0)[n : n + 4] for n in (0, 1, 3, 1, 5)],
    "growing": [lambda n=n: torch.arange(40.0)[n : 4 + 2 * n] for n in (0, 1, 2, 3, 5)],
    "columns": [lambda n=n: torch.arange(200.0).reshape(10, 20)[:, n] for n in (0, 7, 1, 19, 7)],
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("inputs", INPUTS)
def test_views_from_other_places(inputs: str, program) -> None:
    compiled = capture(program)
    for made in INPUTS[inputs]:
        ours, theirs = made(), made()
        assert torch.equal(compiled(ours), program(theirs))
        assert torch.equal(ours._base if ours._base is not None else ours, theirs._base if theirs._base is not None else theirs)


def test_what_does_not_ask_is_one_graph() -> None:
    compiled = capture(lambda x: x * 2 + 1)
    for made in INPUTS["one size"]:
        assert torch.equal(compiled(made()), made() * 2 + 1)
    assert len(compiled.entries) == 1
