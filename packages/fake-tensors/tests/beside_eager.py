"""A call on fakes beside the same call in eager, over layouts: what tests of rows have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opmill_fake_tensors import DataDependent, FakeContext, NoFakeKernel
from opmill_fake_tensors.symbols import Sizes, index_of

Call = Callable[..., Any]


def layouts(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Iterator[torch.Tensor]:
    """Tensors of these sizes as programs have them: in rows, turned, with gaps, expanded, channels last, behind the beginning."""
    rng = torch.Generator().manual_seed(seed)

    def made(*n: int) -> torch.Tensor:
        x = torch.randn(n, generator=rng) * 3
        return (x > 0) if dtype is torch.bool else x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)

    rank = len(sizes)
    yield made(*sizes)
    if rank:
        yield made(*sizes[::-1]).permute(*range(rank)[::-1])
        yield made(*sizes[:-1], sizes[-1] * 2)[..., ::2]
        yield made(sizes[0] + 1, *sizes[1:])[1:]
    if rank > 1:
        yield made(1, *sizes[1:]).expand(*sizes)
        yield made(*sizes[1:], sizes[0]).movedim(-1, 0)
    if rank == 4:
        yield made(*sizes).contiguous(memory_format=torch.channels_last)


def geometry(x: Any, value: Callable[[Any], int] = int) -> Any:
    """What must agree; the stride of a dimension of size one means nothing, nor do strides where there are no elements."""
    if not isinstance(x, torch.Tensor):
        return value(x) if isinstance(x, (int, torch.SymInt)) else x
    sizes = tuple(map(value, x.shape))
    return sizes, x.dtype, tuple(value(s) for s, n in zip(x.stride(), sizes, strict=True) if n != 1) if 0 not in sizes else ()


def outcome(call: Call, args: Any) -> Any:
    """The geometry of what a call gives; the type of what it raises."""
    try:
        return [geometry(t) for t in pytree.tree_leaves(call(*args))]
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error)


BEFORE_ITS_MATMUL = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
"""Whether torch's own decomposition of products asks for numbers of elements."""


def as_eager(call: Call, *args: Any) -> None:
    """Holds a call on fakes of the arguments against eager, with fixed sizes and with symbolic ones. What eager refuses fakes may take: the
    operator refuses it when it runs."""
    expected = outcome(call, args)
    if isinstance(expected, type):
        return
    with FakeContext() as context:
        got = outcome(call, pytree.tree_map_only(torch.Tensor, context.from_tensor, args))
    assert got == expected
    with_symbols(call, args, expected)


def with_symbols(call: Call, args: Any, expected: Any) -> None:
    """The same where all sizes from two on are symbols: what comes out has eager's sizes and strides for the values of this call."""
    sizes = Sizes()
    with FakeContext(sizes) as context:

        def fake(t: torch.Tensor) -> torch.Tensor:
            return context.from_tensor(t, {d: None for d in range(t.dim()) if t.size(d) >= 2})

        try:
            got = pytree.tree_leaves(call(*pytree.tree_map_only(torch.Tensor, fake, args)))
        except (DataDependent, NoFakeKernel):
            return
        except RuntimeError as error:
            if BEFORE_ITS_MATMUL and "Cannot call numel() on tensor with symbolic sizes" in str(error):
                return  # by the dispatcher of C++ alone; captures go past it
            raise
    hints: Any = {name: s.hint for name, s in sizes.symbols.items()}
    assert sizes.holds(hints)
    assert [geometry(g, lambda n: index_of(n).evaluate(hints)) for g in got] == expected
