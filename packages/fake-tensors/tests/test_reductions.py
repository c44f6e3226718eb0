"""Reductions, normalisations and orders beside eager."""

from __future__ import annotations

import pytest
import torch
from beside_eager import as_eager, layouts

F = torch.nn.functional
NAMES = (
    "sum nansum prod mean amax amin argmax argmin max min any all std var std_mean var_mean logsumexp cumsum cumprod softmax median mode"
)
DIMS = [(), (0,), (-1,), (1, True), (-3, True), (3,), (None,), ((0, 1),), ((-1, 0), True), ((0, 0),), ([],)]
DTYPES = [torch.float32, torch.int32, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES.split())
def test_reductions(name, dtype):
    for x in layouts(2, 3, 4, dtype=dtype):
        for dims in DIMS:
            as_eager(lambda x, dims=dims: getattr(torch, name)(x, *dims), x)


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (2, 0, 3), (1, 0)], ids=str)
@pytest.mark.parametrize("name", NAMES.split())
def test_reductions_of_nothing_and_of_one(name, sizes):
    for x in layouts(*sizes):
        for dims in DIMS:
            as_eager(lambda x, dims=dims: getattr(torch, name)(x, *dims), x)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
@pytest.mark.parametrize("to", [torch.float64, torch.int64, torch.bool, torch.bfloat16], ids=str)
def test_reductions_into_another_type(dtype, to):
    for x in layouts(2, 3, dtype=dtype):
        for name in ("sum", "nansum", "prod", "mean", "cumsum", "cumprod", "softmax", "log_softmax"):
            as_eager(lambda x, name=name: getattr(torch, name)(x, 1, dtype=to), x)


@pytest.mark.parametrize("weights", [None, torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str)
def test_normalisations(dtype, weights):
    w = None if weights is None else torch.ones(4, dtype=weights)
    for x in layouts(2, 4, 3, 4, dtype=dtype):
        as_eager(lambda x, w: torch.native_layer_norm(x, (4,), w, w, 1e-5), x, w)
        as_eager(lambda x, w: torch.native_layer_norm(x, (3,), w, w, 1e-5), x, w)
        as_eager(lambda x, w: torch.native_group_norm(x, w, w, 2, 4, 12, 2, 1e-5), x, w)
        as_eager(lambda x, w: F.group_norm(x, 3, w, w), x, w)
        as_eager(lambda x, w: torch.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5), x, w)
        as_eager(lambda x, w: F.batch_norm(x, w, w, w, w), x, w)
        as_eager(lambda x, w: F.instance_norm(x, weight=w, bias=w), x, w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool], ids=str)
def test_orders(dtype):
    for x in layouts(3, 4, dtype=dtype):
        for k in (0, 1, 3, 5):
            for dim in (-1, 0, 2):
                as_eager(lambda x, k=k, dim=dim: torch.topk(x, k, dim), x)
        for dim in (-1, 0, 2):
            as_eager(lambda x, dim=dim: torch.sort(x, dim), x)
            as_eager(lambda x, dim=dim: torch.sort(x, dim=dim, stable=True), x)
            as_eager(lambda x, dim=dim: torch.argsort(x, dim), x)
            as_eager(lambda x, dim=dim: torch.kthvalue(x, 2, dim), x)
            as_eager(lambda x, dim=dim: torch.cummax(x, dim), x)
