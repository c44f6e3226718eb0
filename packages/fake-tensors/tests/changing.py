"""A function over a first dimension of any size: what fakes say of it, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes, index, index_of


def differs(function: Callable[..., Any], make: Callable[[int], Any]) -> object:
    """What is told of ``function`` on fakes with a first size that changes, and on tensors of such sizes, where the two differ; that the size
    is assumed, where it is. None: neither. ``make``: its argument."""
    sizes = Sizes()
    context = FakeContext(sizes)
    fake = context.from_tensor(make(5), {0: None})
    with context:
        made = pytree.tree_leaves(function(fake))
    [name, *_] = sizes.symbols
    if sizes.simplify(index(name)) != index(name):
        return f"the size is assumed: {[str(each) for each in sizes.decisions]}"
    for size in (5, 2, 3, 8, 13):

        def value(number: Any, size: int = size) -> int:
            return index_of(number).evaluate({name: size})

        found = [told(each, value) for each in made if isinstance(each, torch.Tensor)]
        want = [told(each, int) for each in pytree.tree_leaves(function(make(size))) if isinstance(each, torch.Tensor)]
        if sizes.holds({name: size}) and found != want:
            return size, found, want
    return None


def told(x: torch.Tensor, value: Callable[[Any], int]) -> object:
    """Sizes, type and strides; that of a dimension of size one means nothing."""
    sizes = tuple(map(value, x.shape))
    return sizes, x.dtype, tuple(value(stride) for stride, n in zip(x.stride(), sizes, strict=True) if n != 1) if 0 not in sizes else ()
