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
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size -1 can be any value and is ambiguous")
    if not demanded(numel % known == 0):
        raise RuntimeError(message)
    return tuple(numel // known if d in unknown else n for d, n in enumerate(sizes))


def strides_of_view(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a view of the ``wanted`` sizes (of as many elements); None where there is none and a copy is needed.

    Dimensions that lie in memory as one (each stride is the product of what is inside) form a block; the wanted sizes must fill the blocks."""
    if any(surely(n == 0) for n in sizes):
        out, step = [1] * len(wanted), 1
        for d in range(len(wanted) - 1, -1, -1):
            out[d] = step
            step = step * max(wanted[d], 1)
        return tuple(strides) if same(sizes, wanted) else tuple(out)
    if any(known_from_data(n) for n in sizes) and is_contiguous(sizes, strides):
        return contiguous(wanted)
    blocks: list[tuple[int, int]] = []  # elements and stride of the innermost one, from the inside out
    for n, step in zip(reversed(sizes), reversed(strides), strict=True):
        if typically(n == 1):
            continue
        if blocks and typically(step == blocks[-1][0] * blocks[-1][1]):
            blocks[-1] = blocks[-1][0] * n, blocks[-1][1]
        else:
            blocks.append((n, step))
    blocks = blocks or [(1, 1)]
    result = [0] * len(wanted)
    block, filled = 0, 1
    for d in range(len(wanted) - 1, -1, -1):
        n = wanted[d]
        if not typically(n == 1) and not typically(filled == 1) and typically(filled == blocks[block][0]):
            block, filled = block + 1, 1
            if block == len(blocks):
                return None
        result[d] = filled * blocks[block][1]
        filled = filled * n
        if typically(filled > blocks[block][0]):
            return None
    return tuple(result) if typically(filled == blocks[block][0]) and block == len(blocks) - 1 else None
