"""Convolution, pooling and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..symbols.asking import demanded, known_from_data, surely
from ..symbols.layouts import in_rows
from ..table import Rules, alike, channels_last, dense, image

RULES = Rules()
Tensor = torch.Tensor


def _pair(value: Sequence[int], n: int) -> list[int]:
    return [value[0]] * n if len(value) == 1 else list(value)


@RULES.row("convolution")
def _convolution(
    overload: str,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
) -> Any:
    n = w.dim() - 2
    if (
        overload != ""
        or n not in ((1, 2) if transposed else (1, 2, 3))
        or x.dim() != w.dim()
        or x.dtype != w.dtype
        or not x.is_floating_point()
    ):
        return NotImplemented
    taken, given = (w.size(0), w.size(1) * groups) if transposed else (w.size(1) * groups, w.size(0))
    if any(surely(k == 0) for k in (*x.size(), *w.size())) or groups < 1 or not demanded(x.size(1) == taken) or w.size(0) % groups:
        return NotImplemented
    if bias is not None and (bias.dtype != x.dtype or tuple(bias.size()) != (given,)):
        return NotImplemented
    stride, padding, dilation, extra = _pair(stride, n), _pair(padding, n), _pair(dilation, n), _pair(extra, n)
    if min(stride) < 1 or min(padding) < 0 or min(dilation) < 1 or min(extra) < 0:
        return NotImplemented
    reach = [dilation[k] * (w.size(k + 2) - 1) + 1 - 2 * padding[k] for k in range(n)]
    space = [(x.size(k + 2) - reach[k]) // stride[k] + 1 for k in range(n)]
    if transposed:
        if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
            return NotImplemented
        space = [(x.size(k + 2) - 1) * stride[k] + reach[k] + extra[k] for k in range(n)]
    if not all(demanded(n >= 1) if known_from_data(n) else n >= 1 for n in space):
        return NotImplemented
    sizes = (x.size(0), given, *space)
    if n == 1:  # computed as images of height one, of an input that is copied if it is not contiguous
        last = channels_last(w.unsqueeze(2)) or (in_rows(x) and channels_last(x.unsqueeze(2)))
        return image((*sizes[:2], 1, sizes[2]), x.dtype, last).squeeze(2)
    return image(sizes, x.dtype, channels_last(x) or channels_last(w))


def _pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil else 0)) // stride + 1
    return out - 1 if ceil and (out - 1) * stride >= size + padding else out


def _pool(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> tuple[int, ...] | None:
    if x.dim() not in (3, 4) or any(surely(k == 0) for k in x.size()) or not all(1 <= len(v) <= 2 for v in (kernel, padding, dilation)):
        return None
    kernel, padding, dilation = _pair(kernel, 2), _pair(padding, 2), _pair(dilation, 2)
    stride = _pair(stride, 2) if stride else kernel
    if min(*kernel, *stride, *dilation) < 1 or any(2 * p > k or p < 0 for p, k in zip(padding, kernel, strict=True)):
        return None
    space = [_pooled(x.size(k - 2), kernel[k], stride[k], padding[k], dilation[k], ceil) for k in range(2)]
    return (*x.size()[:-2], *space) if all(n >= 1 for n in space) else None


@RULES.row("max_pool2d_with_indices")
def _max_pool(
    overload: str, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    sizes = _pool(x, kernel, stride, padding, dilation, ceil_mode) if overload == "" else None
    if sizes is None:
        return NotImplemented
    last = channels_last(x)
    return image(sizes, x.dtype, last), image(sizes, torch.int64, last)


@RULES.row("avg_pool2d")
def _avg_pool(
    overload: str, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False, *_: Any, **__: Any
) -> Any:
    sizes = _pool(x, kernel, stride, padding, (1,), ceil_mode) if overload == "" else None
    return NotImplemented if sizes is None else image(sizes, x.dtype, channels_last(x))


@RULES.row("_adaptive_avg_pool2d")
def _adaptive(overload: str, x: Tensor, sizes: Any) -> Any:
    if (
        overload != ""
        or x.dim() not in (3, 4)
        or any(surely(k == 0) for k in x.size())
        or len(sizes) != 2
        or any(n < 1 for n in sizes)
        or not x.is_floating_point()
    ):
        return NotImplemented
    return image((*x.size()[:-2], *sizes), x.dtype, channels_last(x))


@RULES.row("upsample_nearest2d upsample_bilinear2d upsample_bicubic2d")
def _upsample(overload: str, x: Tensor, sizes: Any, *_: Any, **__: Any) -> Any:
    if overload != "" or x.dim() != 4 or any(surely(k == 0) for k in x.size()) or len(sizes) != 2 or any(n < 1 for n in sizes):
        return NotImplemented
    return image((*x.size()[:2], *sizes), x.dtype, channels_last(x))


@RULES.row("constant_pad_nd")
def _pad(overload: str, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    rank = x.dim()
    if overload != "" or len(pad) % 2 or len(pad) > 2 * rank:
        return NotImplemented
    sizes = list(x.size())
    for k in range(len(pad) // 2):
        sizes[rank - 1 - k] += pad[2 * k] + pad[2 * k + 1]
    if not sizes or any(n < 1 for n in sizes):
        return NotImplemented
    return (
        image(sizes, x.dtype, channels_last(x)) if any(n > 0 for n in pad) else NotImplemented
    )  # what only cuts keeps the order of strides


SYMBOLIC = Rules()


@SYMBOLIC.row(
    "upsample_nearest2d_backward _upsample_nearest_exact2d_backward upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward"
)
def _downsampled(overload: str, gradient: Tensor, sizes: Any, input_size: Any, *_: Any, **__: Any) -> Any:
    """The gradient of what was resampled, channels last where the given one is."""
    return image(input_size, gradient.dtype, channels_last(gradient)) if overload == "" and len(input_size) == 4 else NotImplemented


@SYMBOLIC.row(
    "upsample_nearest1d_backward _upsample_nearest_exact1d_backward upsample_linear1d_backward upsample_bicubic2d_backward "
    "_upsample_bicubic2d_aa_backward upsample_nearest3d_backward _upsample_nearest_exact3d_backward"
)
def _downsampled_in_rows(overload: str, gradient: Tensor, sizes: Any, input_size: Any, *_: Any, **__: Any) -> Any:
    return dense(input_size, gradient.dtype) if overload == "" and len(input_size) == len(sizes) + 2 else NotImplemented


@SYMBOLIC.row("channel_shuffle native_channel_shuffle")
def _channel_shuffle(overload: str, x: Tensor, groups: int) -> Any:
    if overload != "" or x.dim() < 3 or groups < 1 or any(surely(n == 0) for n in x.size()) or not demanded(x.size(1) % groups == 0):
        return NotImplemented
    return image(x.size(), x.dtype, channels_last(x))


@SYMBOLIC.row("pixel_unshuffle")
def _pixel_unshuffle(overload: str, x: Tensor, factor: int) -> Any:
    """Of nothing the kernel makes a copy that is not rearranged."""
    empty = overload == "" and x.dim() >= 3 and factor > 0 and any(surely(n == 0) for n in x.size())
    fits = empty and all(demanded(n % factor == 0) for n in x.size()[-2:])
    return alike(x) if fits else NotImplemented
