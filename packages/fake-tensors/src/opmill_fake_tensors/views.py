"""Sizes and strides of a reshaped tensor, over integers that may be symbolic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .strides import contiguous, same
from .symbols.asking import demanded, known_from_data, surely, typically
from .symbols.layouts import is_contiguous


def inferred(sizes: Sequence[int], numel: int) -> tuple[int, ...]:
    """``sizes`` with its -1 replaced. Raises RuntimeError as eager does where they do not fit ``numel``."""
    unknown = [d for d, n in enumerate(sizes) if type(n) is int and n == -1]
    known = math.prod(n for d, n in enumerate(sizes) if d not in unknown)
    message = f"shape '[{', '.join(map(str, sizes))}]' is invalid for input of size {numel}"
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if not all(demanded(n >= 0) for d, n in enumerate(sizes) if d not in unknown):
        raise RuntimeError(f"invalid shape dimension {min(int(n) for n in sizes)}")
    if not unknown:
        if not (known is numel or demanded(known == numel)):
            raise RuntimeError(message)
        return tuple(sizes)
    if not demanded(known != 0):
        if not demanded(numel == 0):
            raise RuntimeError(message)
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size -1 can be any value and "
            f"is ambiguous"
        )
    if not demanded(numel % known == 0):
        raise RuntimeError(message)
    return tuple(numel // known if d in unknown else n for d, n in enumerate(sizes))


def expanded(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that is broadcast to the ``wanted`` sizes, to which its own must fit."""
    out: list[int] = []
    for back, n in enumerate(reversed(wanted), 1):
        if back <= len(sizes):
            own = sizes[-back]
            out.append(strides[-back] if n is own or surely(own == n) else 0)
        else:
            out.append(wanted[1 - back] * out[-1] if sizes and surely(n == 1) else 0)
    return tuple(reversed(out))


def strides_of_view(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a view of the ``wanted`` sizes (of as many elements); None where there is none and a copy is needed.

    Dimensions that lie in memory as one (each stride is the product of what is inside) form a block; the wanted sizes must fill the
    blocks."""
    if any(surely(n == 0) for n in sizes):
        out, step = [1] * len(wanted), 1
        for d in range(len(wanted) - 1, -1, -1):
            out[d] = step
            step = step * max(wanted[d], 1)
        return tuple(strides) if same(sizes, wanted) else tuple(out)
    if any(known_from_data(n) for n in sizes) and is_contiguous(sizes, strides):
        return contiguous(wanted)
    blocks: list[
        tuple[int, int]
    ] = []  # elements and stride of the innermost one, from the inside out; dimensions of one belong to what is inside of them
    for n, step in zip(reversed(sizes), reversed(strides), strict=True):
        if blocks and (typically(n == 1) or typically(step == blocks[-1][0] * blocks[-1][1])):
            blocks[-1] = blocks[-1][0] * n, blocks[-1][1]
        else:
            blocks.append((n, step))
    result = [0] * len(wanted)
    d = len(wanted) - 1
    for length, step in blocks or [(1, 1)]:
        filled = 1
        while d >= 0 and (typically(wanted[d] == 1) or not typically(filled == length)):
            result[d] = filled * step
            filled = filled * wanted[d]
            d -= 1
            if typically(filled > length):
                return None
        if not typically(filled == length):
            return None
    return tuple(result) if d < 0 else None
