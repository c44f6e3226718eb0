"""Composite operators that torch's kernels in C++ read all sizes for."""

import pytest
import torch
import torch.nn.functional as F

from changing import differs
from opmill_fake_tensors import FakeContext

ROWS = {
    "linear": lambda x: F.interpolate(x[:, :, 0], scale_factor=2, mode="linear"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear, with corners": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, size=(3, 7), mode="bicubic"),
    "of the sizes computed": lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", recompute_scale_factor=True),
    "antialiased": lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=(2, 3)),
    "nearest, exactly": lambda x: F.interpolate(x, size=x.shape[2:], mode="nearest-exact"),
    "trilinear": lambda x: F.interpolate(x[:, :, None], scale_factor=2, mode="trilinear"),
    "channels last": lambda x: F.interpolate(x.contiguous(memory_format=torch.channels_last), scale_factor=2),
    "along": lambda x: torch.take_along_dim(x, x.argsort(-1)[..., :2], -1),
    "along, broadcast": lambda x: torch.take_along_dim(x, torch.ones(1, 1, 1, 2, dtype=torch.int64), 3),
    "along, flat": lambda x: torch.take_along_dim(x, torch.tensor([[1, 2]])),
    "kron": lambda x: torch.kron(x[:, 0, 0], torch.ones(2, 3)),
    "kron from the right": lambda x: torch.kron(torch.ones(2), x[:, 0]),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_as_eager_of_any_size(row):
    assert differs(row, lambda size: torch.rand(size, 2, 4, 6)) is None


VARYING = {
    "over columns": lambda x: torch.cov(x.T),
    "over rows": torch.cov,
    "of one row": lambda x: torch.cov(x[:, 0]),
    "without correction": lambda x: torch.cov(x.T, correction=0),
    "of integers": lambda x: torch.cov((x * 10).long().T),
    "of complex numbers": lambda x: torch.cov(torch.complex(x, x).T),
    "in doubles": lambda x: torch.corrcoef(x.T.double()),
    "correlated over columns": lambda x: torch.corrcoef(x.T),
    "correlated over rows": torch.corrcoef,
    "correlated with itself": lambda x: torch.corrcoef(x[:, 0]),
}


@pytest.mark.parametrize("row", VARYING.values(), ids=VARYING)
def test_what_varies_together_as_eager_of_any_size(row):
    assert differs(row, lambda size: torch.rand(size, 4)) is None


@pytest.mark.parametrize("row", VARYING.values(), ids=VARYING)
def test_what_varies_together_is_what_the_kernel_computes(row, monkeypatch):
    from opmill_fake_tensors import twins

    x = torch.rand(7, 4, generator=torch.Generator().manual_seed(0))
    want = row(x)
    monkeypatch.setattr(torch, "cov", twins.cov)
    monkeypatch.setattr(torch, "corrcoef", twins.corrcoef)
    torch.testing.assert_close(row(x), want)


DIAGONALS = {
    "in rows": lambda x: x.clone(),
    "in columns": lambda x: x.T.clone().T,
    "wide": lambda x: x.T.clone(),
    "with gaps": lambda x: x.repeat(1, 2)[:, ::2],
    "of halves": lambda x: x.half(),
    "of one column": lambda x: x[:, :1].clone(),
}


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("make", DIAGONALS.values(), ids=DIAGONALS)
def test_diagonals_as_eager_of_any_size(make, wrap):
    from opmill_fake_tensors import twins

    assert differs(lambda x: make(x).fill_diagonal_(3.0, wrap=wrap), lambda size: torch.rand(size, 3)) is None
    for size in (1, 2, 3, 4, 5, 8, 9, 13):
        x = torch.rand(size, 3, generator=torch.Generator().manual_seed(size))
        assert torch.equal(twins.fill_diagonal(make(x), 3.0, wrap), make(x).fill_diagonal_(3.0, wrap=wrap))


DOWN = {
    f"{name}, {layout}": (getattr(torch.ops.aten, f"{name}_backward").default, turn)
    for name in "upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa".split()
    for layout, turn in (("in rows", lambda x: x), ("last", lambda x: x.contiguous(memory_format=torch.channels_last)))
}


@pytest.mark.parametrize("row", DOWN.values(), ids=DOWN)
def test_gradients_as_eager_of_any_size(row):
    backward, turn = row
    corners = [False] if any(a.name == "align_corners" for a in backward._schema.arguments) else []
    assert (
        differs(lambda x: backward(turn(x), x.shape[2:], (x.shape[0], 2, 2, 3), *corners), lambda size: torch.rand(size, 2, 4, 6)) is None
    )


def test_a_size_that_changes_is_as_many_times_itself():
    assert differs(lambda x: F.interpolate(x[None, None], scale_factor=2), lambda size: torch.rand(size, 4)) is None


REFUSED = {
    "sizes and factors": lambda x: torch.ops.aten.upsample_nearest2d.vec(x, [2, 2], [2.0, 2.0]),
    "neither": lambda x: torch.ops.aten.upsample_nearest2d.vec(x, None, None),
    "too few": lambda x: torch.ops.aten.upsample_nearest2d.vec(x, [2], None),
    "nothing": lambda x: F.interpolate(x, size=(0, 2)),
    "another type of indices": lambda x: torch.take_along_dim(x, x, 1),
    "other dimensions": lambda x: torch.take_along_dim(x, torch.tensor([1]), 1),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_the_kernels_refuse_is_refused(call):
    from opmill_fake_tensors.symbols import Sizes

    x = torch.rand(5, 2, 4, 6)
    with pytest.raises((RuntimeError, IndexError)) as eager:
        call(x)
    context = FakeContext(Sizes())
    fake = context.from_tensor(x, {0: None})
    with context, pytest.raises(type(eager.value)):
        call(fake)
