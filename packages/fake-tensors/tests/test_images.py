"""Convolutions, pooling, resizing and padding beside eager."""

from __future__ import annotations

import itertools

import pytest
import torch
from beside_eager import as_eager, layouts

F = torch.nn.functional


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions(kernel, groups):
    for x, w in itertools.product(layouts(2, 4, 6, 5), layouts(4, 4 // groups, kernel, kernel)):
        as_eager(lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=groups), x, w)
    for x in layouts(2, 4, 6, 5):
        w = torch.ones(4, 4 // groups, kernel, kernel)
        as_eager(lambda x, w: F.conv2d(x, w, torch.ones(4), dilation=2, padding="same", groups=groups), x, w)
        as_eager(lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1, groups=groups), x, w)
    for x in layouts(2, 4, 7):
        as_eager(lambda x, w: F.conv1d(x, w, padding=1, groups=groups), x, torch.ones(6, 4 // groups, kernel))
    for x in layouts(2, 4, 3, 3, 3):
        as_eager(lambda x, w: F.conv3d(x, w, padding=1, groups=groups), x, torch.ones(2, 4 // groups, kernel, kernel, kernel))


@pytest.mark.parametrize("ceil", [False, True])
def test_pooling(ceil):
    for x in (*layouts(2, 3, 6, 5), *layouts(3, 6, 5), *layouts(2, 0, 6, 5), *layouts(1, 1, 6, 5)):
        for size, stride, padding in ((2, None, 0), (3, 2, 1), ((2, 3), (1, 2), (0, 1)), (3, 3, 1), (9, 1, 0)):
            as_eager(lambda x, n=size, s=stride, p=padding: F.max_pool2d(x, n, s, p, ceil_mode=ceil, return_indices=True), x)
            as_eager(lambda x, n=size, s=stride, p=padding: F.avg_pool2d(x, n, s, p, ceil_mode=ceil), x)
        for size in (1, (2, 3), (7, 7), (None, 2)):
            as_eager(lambda x, n=size: F.adaptive_avg_pool2d(x, n), x)
            as_eager(lambda x, n=size: F.adaptive_max_pool2d(x, n), x)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_resizing(mode):
    for x in (*layouts(2, 3, 4, 5), *layouts(1, 1, 4, 5)):
        as_eager(lambda x: F.interpolate(x, (3, 8), mode=mode), x)
        as_eager(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode), x)


def test_padding_and_shuffling():
    for x in (*layouts(2, 4, 4, 6), *layouts(2, 0, 4, 6), *layouts(1, 4, 1, 6)):
        for pad in ((1, 2), (0, 0), (-1, 0), (1, -1, 2, 0), (0, 0, 0, 0, 1, 1), (-1, -1, -1, -1)):
            as_eager(lambda x, pad=pad: F.pad(x, pad), x)
        for pad in ("reflect", "replicate", "circular"):
            as_eager(lambda x, pad=pad: F.pad(x, (1, 1, 0, 1), mode=pad), x)
        as_eager(lambda x: F.channel_shuffle(x, 2), x)
        as_eager(lambda x: F.pixel_shuffle(x, 2), x)
        as_eager(lambda x: F.pixel_unshuffle(x, 2), x)
