"""Sorting, what is found in sorted numbers, and what takes items by positions that the program computes."""

from __future__ import annotations

import torch

from .functions import Axes, Scalar, Told, as_tensor, axes_of, rule


@rule("sort")
def sort(a: torch.Tensor, axis: int | None = -1, kind: str | None = None) -> torch.Tensor:
    """The items in order along an axis; of the flat array without one."""
    return torch.sort(a.reshape(-1)).values if axis is None else torch.sort(a, dim=axis).values


@rule("argsort")
def argsort(a: torch.Tensor, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> torch.Tensor:
    """The positions of the items in order. Only a stable order is the same in torch."""
    if not (stable or kind in ("stable", "mergesort")):
        raise NotImplementedError  # which of equal items comes first is each library's own
    return torch.argsort(a.reshape(-1), stable=True) if axis is None else torch.argsort(a, dim=axis, stable=True)


@rule("lexsort")
def lexsort(keys: Told, axis: int = -1) -> torch.Tensor:
    """The positions in the order of several keys, the last of which counts most."""
    order = torch.argsort(keys[0], dim=axis, stable=True)
    for k in range(1, len(keys)):
        order = torch.take_along_dim(order, torch.argsort(torch.take_along_dim(keys[k], order, axis), dim=axis, stable=True), axis)
    return order


@rule("searchsorted")
def searchsorted(a: torch.Tensor, v: torch.Tensor | Scalar, side: str = "left") -> torch.Tensor:
    """Where each value has its place in a sorted row."""
    return torch.searchsorted(a, v if isinstance(v, torch.Tensor) else torch.full((), v, dtype=a.dtype), right=side == "right")


@rule("median")
def median(a: torch.Tensor, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False, as_dtype: torch.dtype) -> torch.Tensor:
    """The middle item, or the mean of both in the middle."""
    if isinstance(axis, tuple):
        raise NotImplementedError
    flat = a.reshape(-1) if axis is None else a
    dim = 0 if axis is None else axis
    ordered = torch.sort(flat.to(as_dtype), dim=dim).values
    count = flat.shape[dim]
    found = torch.mean(ordered.narrow(dim, (count - 1) // 2, 2 - count % 2), dim=dim)
    last = ordered.select(dim, count - 1)
    found = torch.where(torch.isnan(last), last, found)
    if not keepdims:
        return found
    return found.reshape([1] * a.dim()) if axis is None else found.unsqueeze(dim)


@rule("quantile")
def quantile(a: torch.Tensor, q: Told, axis: int | None = None, *, keepdims: bool = False, as_dtype: torch.dtype) -> torch.Tensor:
    """The value below which that share of the items lies, between items in a straight line."""
    if isinstance(axis, tuple) or a.dtype != as_dtype or a.numel() > 2**23:
        raise NotImplementedError
    return torch.quantile(a, torch.as_tensor(q, dtype=as_dtype), dim=axis, keepdim=keepdims)


@rule("percentile")
def percentile(a: torch.Tensor, q: Told, axis: int | None = None, *, keepdims: bool = False, as_dtype: torch.dtype) -> torch.Tensor:
    """As `quantile`, with the share in hundredths."""
    return quantile(a, torch.as_tensor(q, dtype=as_dtype) / 100, axis, keepdims=keepdims, as_dtype=as_dtype)


@rule("cummax")
def cummax(a: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """The greatest item so far."""
    return torch.cummax(a, dim=axis).values


@rule("cummin")
def cummin(a: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """The smallest item so far."""
    return torch.cummin(a, dim=axis).values


@rule("repeat")
def repeat(a: torch.Tensor, repeats: Told, axis: int | None = None) -> torch.Tensor:
    """Each item so many times, along an axis or of the flat array."""
    flat, dim = (a.reshape(-1), 0) if axis is None else (a, axis)
    if isinstance(repeats, int):
        return torch.repeat_interleave(flat, repeats, dim=dim)
    if not isinstance(repeats, (list, tuple)):
        raise NotImplementedError
    counts = list(repeats) * flat.shape[dim] if len(repeats) == 1 else repeats
    return torch.index_select(flat, dim, torch.tensor([k for k, n in enumerate(counts) for _ in range(n)], dtype=torch.int64))


@rule("pad")
def pad(array: torch.Tensor, pad_width: Told, mode: str = "constant", constant_values: object = 0) -> torch.Tensor:
    """With items around: a constant, or the ones at the edge."""
    widths = [pad_width] * array.dim() if isinstance(pad_width, int) else list(pad_width)
    if len(widths) == 2 and isinstance(widths[0], int) and not isinstance(pad_width, int):
        widths = [tuple(widths)] * array.dim()
    if len(widths) == 1:
        widths = widths * array.dim()
    pairs = [(each, each) if isinstance(each, int) else tuple(each) for each in widths]
    if mode == "constant":
        if not isinstance(constant_values, (int, float)):
            raise NotImplementedError
        flat = [n for before, after in reversed(pairs) for n in (before, after)]
        return torch.nn.functional.pad(array, flat, value=constant_values)
    for dim in range(array.dim()):
        array = torch.index_select(array, dim, padded_positions(array.shape[dim], pairs[dim][0], pairs[dim][1], mode))
    return array


def padded_positions(count: int, before: int, after: int, mode: str) -> torch.Tensor:
    """Which items stand where along a dimension of so many."""
    places = torch.arange(-before, count + after)
    if mode == "edge":
        return torch.clamp(places, 0, count - 1)
    if mode == "wrap":
        return torch.remainder(places, count)
    if mode == "symmetric":
        places = torch.remainder(places, 2 * count)
        return torch.where(places >= count, 2 * count - 1 - places, places)
    if mode != "reflect" or count < 2:
        raise NotImplementedError
    places = torch.remainder(places, 2 * count - 2)
    return torch.where(places >= count, 2 * count - 2 - places, places)


@rule("interp")
def interp(x: Told, xp: Told, fp: Told, *, left: Scalar | None = None, right: Scalar | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    """A function that is known at points, in a straight line between them."""
    if as_dtype != torch.float64:
        raise NotImplementedError
    x, xp, fp = [each.to(as_dtype) if isinstance(each, torch.Tensor) else torch.as_tensor(each, dtype=as_dtype) for each in (x, xp, fp)]
    if xp.shape[0] < 2:
        raise NotImplementedError
    after = torch.clamp(torch.searchsorted(xp, x, right=True), 1, xp.shape[0] - 1)
    start, level = xp[after - 1], fp[after - 1]
    found = (fp[after] - level) / (xp[after] - start) * (x - start) + level
    found = torch.where(x >= xp[-1], fp[-1], found)
    found = torch.where(x < xp[0], fp[0] if left is None else as_tensor(left, as_dtype), found)
    return found if right is None else torch.where(x > xp[-1], as_tensor(right, as_dtype), found)


@rule("convolve")
def convolve(a: torch.Tensor, v: torch.Tensor, mode: str = "full", *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of products with the other row turned round, at each shift."""
    if not as_dtype.is_floating_point or mode not in ("full", "same", "valid"):
        raise NotImplementedError
    long, short = (a, v) if a.shape[0] >= v.shape[0] else (v, a)
    more = short.shape[0] - 1
    padded = torch.nn.functional.pad(long.to(as_dtype), (more, more))
    found = torch.nn.functional.conv1d(padded.reshape(1, 1, -1), torch.flip(short.to(as_dtype), (0,)).reshape(1, 1, -1)).reshape(-1)
    first, less = {"full": (0, 0), "same": (more // 2, more), "valid": (more, 2 * more)}[mode]
    return found[first : first + found.shape[0] - less]


@rule("compress")
def compress(condition: Told, a: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """The slices at which a condition, known at capture, is true."""
    if isinstance(condition, torch.Tensor):
        raise NotImplementedError
    flat, dim = (a.reshape(-1), 0) if axis is None else (a, axis)
    return torch.index_select(flat, dim, torch.tensor([k for k, kept in enumerate(condition) if kept], dtype=torch.int64))


@rule("unravel_index")
def unravel_index(indices: torch.Tensor, shape: Told) -> tuple[torch.Tensor, ...]:
    """Positions in the flat array as positions along each dimension."""
    return torch.unravel_index(indices, shape)


@rule("lib.stride_tricks.sliding_window_view")
def sliding_window_view(x: torch.Tensor, window_shape: Told, axis: Told = None) -> torch.Tensor:
    """A view of all windows of a shape."""
    windows = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    for k, dim in enumerate(range(x.dim()) if axis is None else (axis,) if isinstance(axis, int) else axis):
        x = x.unfold(dim, windows[k], 1)
    return x


@rule("lib.stride_tricks.as_strided")
def as_strided(x: torch.Tensor, shape: Told = None, strides: Told = None, writeable: bool = True) -> torch.Tensor:
    """Strides of NumPy's are in bytes."""
    sizes = tuple(x.shape) if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    steps = x.stride() if strides is None else [each // x.element_size() for each in ((strides,) if isinstance(strides, int) else strides)]
    if not writeable or (strides is None) != (shape is None):
        raise NotImplementedError
    return torch.as_strided(x, sizes, tuple(steps), x.storage_offset())


@rule("correlate")
def correlate(a: torch.Tensor, v: torch.Tensor, mode: str = "valid", *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of products with the other row at each shift."""
    if a.shape[0] < v.shape[0]:
        raise NotImplementedError
    return convolve(a, torch.flip(v, (0,)), mode, as_dtype=as_dtype)


@rule("logsumexp")
def logsumexp(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
    return torch.logsumexp(a, dim=axes_of(a, axis), keepdim=keepdims)


@rule("histogram")
def histogram(a: torch.Tensor, bins: Told = 10, range: Told = None) -> tuple[torch.Tensor, torch.Tensor]:
    """How many items lie between edges that the program gives; the last one is in the last bin."""
    if range is None or not isinstance(bins, int) or a.dtype not in (torch.float64, torch.int64):
        raise NotImplementedError
    low, high = float(range[0]), float(range[1])
    edges = torch.arange(bins + 1, dtype=torch.float64) * ((high - low) / bins) + low
    edges = torch.cat([edges[:-1], torch.full((1,), high, dtype=torch.float64)])
    flat = a.reshape(-1).to(torch.float64)
    place = torch.clamp(torch.searchsorted(edges, flat, right=True) - 1, max=bins - 1)
    kept = torch.logical_and(flat >= low, flat <= high)
    counts = torch.zeros(bins, dtype=torch.int64)
    return counts.index_put((torch.clamp(place, min=0),), kept.to(torch.int64), accumulate=True), edges


@rule("isin", "in1d", "lib._arraysetops_impl._in1d")
def isin(element: torch.Tensor, test_elements: torch.Tensor, assume_unique: bool = False, invert: bool = False) -> torch.Tensor:
    """Whether each item is among others."""
    if element.dtype != test_elements.dtype:
        raise NotImplementedError
    return torch.isin(element, test_elements, invert=invert)


@rule("add.reduceat")
def add_reduceat(a: torch.Tensor, indices: Told, axis: int = 0, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Sums from one position to the next."""
    return reduced_at(a, indices, axis, as_dtype, torch.sum)


@rule("maximum.reduceat")
def maximum_reduceat(a: torch.Tensor, indices: Told, axis: int = 0, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The greatest from one position to the next."""
    return reduced_at(a, indices, axis, as_dtype, torch.amax)


@rule("minimum.reduceat")
def minimum_reduceat(a: torch.Tensor, indices: Told, axis: int = 0, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The smallest from one position to the next."""
    return reduced_at(a, indices, axis, as_dtype, torch.amin)


def reduced_at(a: torch.Tensor, indices: Told, axis: int, as_dtype: torch.dtype, function: Told) -> torch.Tensor:
    """From each position of the program's to the next one; the item alone where that is not behind it."""
    if isinstance(indices, torch.Tensor):
        raise NotImplementedError
    a, ends = a.to(as_dtype), [*indices[1:], a.shape[axis]]
    parts = [a.narrow(axis, first, max(end - first, 1)) for first, end in zip(indices, ends)]
    return torch.stack([function(part, dim=axis) for part in parts], dim=axis)


__all__ = ["argsort", "sort"]
