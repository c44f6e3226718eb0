"""The strides that eager gives to results of pointwise operators and of copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from .symbols.asking import demanded, positive, surely, typically

Shape = tuple[int, ...]


def contiguous(sizes: Sequence[int]) -> Shape:
    """Row-major strides, in elements."""
    out = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        out[d] = out[d + 1] * positive(sizes[d + 1])
    return tuple(out)


def in_order(sizes: Sequence[int], order: Sequence[int]) -> Shape:
    """Dense strides where ``order`` names the dimensions from the innermost out."""
    out = [0] * len(sizes)
    step = 1
    for d in order:
        out[d] = step
        step *= positive(sizes[d])
    return tuple(out)


def extent(sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Elements from the first to behind the last, of a tensor that has any; in the kind of numbers that these are."""
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def _by_stride(a: tuple[int, int], b: tuple[int, int]) -> int:
    return 0 if typically(a[0] == b[0]) else -1 if typically(a[0] < b[0]) else 1


_BY_STRIDE = cmp_to_key(_by_stride)


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a block of memory without overlap."""
    step = 1
    for stride, size in sorted(((st, sz) for st, sz in zip(strides, sizes, strict=True) if not typically(sz == 1)), key=_BY_STRIDE):
        if not typically(stride == step):
            return False
        step *= size
    return True


def same(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are surely equal. (Python compares tuples of unequal length by items as well, which would decide symbolic
    ones.)"""
    return len(a) == len(b) and all(m is n or surely(m == n) for m, n in zip(a, b, strict=True))


def broadcast(shapes: Sequence[Sequence[int]]) -> Shape:
    """The common shape; raises ``RuntimeError`` as eager does where there is none."""
    first = shapes[0]
    if all(same(s, first) for s in shapes):
        return tuple(first)
    ndim = max(map(len, shapes))
    out = [1] * ndim
    for shape in shapes:
        for d, size in enumerate(shape, ndim - len(shape)):
            if surely(out[d] == 1):
                out[d] = size
            elif not surely(size == 1) and not same((size,), (out[d],)) and size != 1:
                if out[d] != 1 and not demanded(out[d] == size):
                    raise RuntimeError(
                        f"The size of tensor a ({out[d]}) must match the size of tensor b ({size}) at non-singleton dimension {d}"
                    )
                out[d] = size
    return tuple(out)


def _precedes(a: int, b: int, shape: Shape, operands: Sequence[Shape]) -> int:
    """Below 0 where dimension ``a`` belongs inside of ``b``, above 0 where outside, 0 where no operand tells."""
    for strides in operands:
        sa, sb = strides[a], strides[b]
        if typically(sa == 0) or typically(sb == 0):
            continue
        if not typically(sa == sb):
            return -1 if typically(sa < sb) else 1
        if surely(shape[a] > shape[b]):
            return 1
    return 0


def _order(shape: Shape, operands: Sequence[Shape]) -> list[int]:
    """Dimensions from the innermost out, as the first operand that tells has them (insertion sort: ties stay)."""
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            relation = _precedes(order[before], order[at], shape, operands)
            if relation > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif relation < 0:
                break
    return order


def pointwise(shape: Shape, operands: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Shape:
    """Strides of a fresh result of ``shape`` computed from operands given as (sizes, strides)."""
    dense = contiguous(shape)
    if all(same(sizes, shape) for sizes, _ in operands):
        if all(_same_layout(shape, strides, dense) for _, strides in operands):
            return dense
        if len(shape) == 4 and all(_same_layout(shape, strides, last := in_order(shape, [1, 3, 2, 0])) for _, strides in operands):
            return last
        first = tuple(operands[0][1])
        if all(same(strides, first) for _, strides in operands) and is_dense(shape, first):
            return first
    padded = []
    for sizes, strides in operands:
        lead = len(shape) - len(sizes)
        padded.append(
            (0,) * lead
            + tuple(
                0 if typically(sz == 1) and not typically(shape[lead + i] == 1) else st
                for i, (sz, st) in enumerate(zip(sizes, strides, strict=True))
            )
        )
    order = _order(shape, padded)
    if order != list(reversed(range(len(shape)))) and any(type(n) is int and n == 0 for n in shape):
        return _products(shape, order)
    return in_order(shape, order)


def _products(sizes: Shape, order: Sequence[int]) -> Shape:
    """As `in_order`, but a size of 0 counts as such: so torch's loops have it where the order is not that of rows."""
    out, step = [0] * len(sizes), 1
    for d in order:
        out[d], step = step, step * sizes[d]
    return tuple(out)


def _same_layout(sizes: Shape, strides: Sequence[int], dense: Shape) -> bool:
    return all(typically(sz == 1) or typically(st == d) for sz, st, d in zip(sizes, strides, dense, strict=True)) or any(
        typically(n == 0) for n in sizes
    )


def like(sizes: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides of a copy that preserves the memory format. To torch a tensor without elements has no gaps, whatever its strides are."""
    sizes, strides = tuple(sizes), tuple(strides)
    dense = any(typically(n == 0) for n in sizes) or is_dense(sizes, strides)
    return strides if dense else pointwise(sizes, [(sizes, strides)])
