"""Inputs of one size that lie otherwise at each call: what is cut out of tensors that grow. Their strides are no part of what is assumed."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F

from opmill_bytecode_frontend.entry.capture import capture
from opmill_bytecode_frontend.errors import CaptureWarning

FORMS = {
    "rows of other widths": lambda n: torch.arange(4.0 * n).reshape(4, n)[:, :3],
    "a column": lambda n: torch.arange(4.0 * n).reshape(4, n)[:, 2],
    "the last column": lambda n: torch.arange(4.0 * n).reshape(4, n)[:, -1:],
    "one element": lambda n: torch.arange(1.0 * n).reshape(1, n)[:, 2:3],
    "a cache's first places": lambda n: torch.arange(2.0 * 3 * n * 4).reshape(2, 3, n, 4)[:, :, :5],
    "each n-th": lambda n: torch.arange(8.0 * n)[::n],
    "turned": lambda n: torch.arange(4.0 * n).reshape(4, n)[:, :4].t(),
    "a diagonal": lambda n: torch.arange(1.0 * n * n).reshape(n, n).diagonal()[:6],
    "a row given to all": lambda n: torch.arange(3.0 * n).reshape(3, n)[:, :1].expand(3, 5),
    "numbers": lambda n: torch.arange(4 * n).reshape(4, n)[:, :3],
}


def laid(x):
    return x.stride(), x.is_contiguous(), x.reshape(-1) * 2


def written(x):
    x.select(-1, 0).mul_(3)
    x[..., :1].add_(1)
    return x.sum(), x


def viewed(x):
    y = x.unsqueeze(0).transpose(0, -1)
    return y, y.contiguous(), x.flatten().sum(), torch.empty_like(x).zero_(), x.clone()


def strided(x):
    return x.as_strided((2,), (1,)) + x.as_strided((2,), (x.stride(0),), x.storage_offset())


def multiplied(x):
    y = x.float()
    y = y.unsqueeze(-1) if y.dim() == 1 else y
    return y @ y.mT, F.linear(y, torch.ones(2, y.shape[-1])), torch.cat([y, y + 1]), y.softmax(-1)


def decided(x):
    if x.stride(0) > 12:
        return x + 1
    return x - 1


PROGRAMS = (laid, written, viewed, strided, multiplied, decided)
NUMBERS = (10, 11, 12, 13, 17, 14)


def seen(result):
    values = result if isinstance(result, tuple) else (result,)
    return [(v.tolist(), v.stride(), v.storage_offset(), v.is_contiguous()) if isinstance(v, torch.Tensor) else v for v in values]


def outcome(function, x):
    try:
        return seen(function(x))
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize(("form", "program"), itertools.product(FORMS, PROGRAMS), ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_is_what_eager_does(form: str, program) -> None:
    compiled = capture(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        for n in NUMBERS:
            ours, theirs = FORMS[form](n), FORMS[form](n)
            assert outcome(compiled, ours) == outcome(program, theirs), n
            assert ours._base.tolist() == theirs._base.tolist()
    most = {decided: 4, strided: 6 if form == "the last column" else 3}.get(program, 2)  # beginnings that are asked for are assumed
    assert len(compiled.entries) <= most, [str(e.guards) for e in compiled.entries]


@pytest.mark.parametrize("form", [name for name in FORMS if name != "numbers"])
def test_gradients_are_eagers(form: str) -> None:
    def step(x):
        return (x.sin() * x).sum()

    compiled = capture(step)
    for n in NUMBERS:
        shown, found = FORMS[form](n), []
        for function in (compiled, step):
            base = shown._base.clone().requires_grad_()
            view = base.as_strided(shown.shape, shown.stride(), shown.storage_offset())
            found.append(torch.autograd.grad(function(view), base)[0])
        assert torch.equal(*found)
    assert len(compiled.entries) <= 2


def test_the_next_token_of_a_model_that_slices_positions() -> None:
    """As OPT does: the mask is as long as what was read, and the piece behind ``.item()`` is given the last place of it."""

    def step(mask, past):
        positions = (torch.cumsum(mask, 1) * mask - 1).long()
        seen = past.item()
        return positions[:, seen:] + 2

    compiled = capture(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        for n in range(16, 32):
            mask = torch.ones(1, n + 1, dtype=torch.int64)
            assert torch.equal(compiled(mask, torch.tensor(n)), step(mask, torch.tensor(n)))
