"""What processes send one another, where sizes are symbolic. As torch's kernels in Python, which know integers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..table import alike, dense

_SPACES = ("_c10d_functional", "_c10d_functional_autograd")


def _gathered(x: torch.Tensor, count: int, group: object) -> torch.Tensor:
    return dense((x.size(0) * count, *x.size()[1:]), x.dtype)


def _scattered(x: torch.Tensor, reduction: str, count: int, group: object) -> torch.Tensor:
    return dense((x.size(0) // count, *x.size()[1:]), x.dtype)


def _turned(x: torch.Tensor, taken: Sequence[int] | None, given: object, group: object) -> torch.Tensor:
    return alike(x) if taken is None else dense((sum(taken), *x.size()[1:]), x.dtype)


def _same(x: torch.Tensor, *others: object) -> torch.Tensor:
    return alike(x)


def _resharded(x: torch.Tensor, gathered: int, sharded: int, group: Any) -> Any:
    count = torch.distributed.distributed_c10d._resolve_process_group(group).size()
    sizes = list(x.size())
    sizes[gathered] *= count
    if sizes[sharded] % count != 0:
        return NotImplemented
    sizes[sharded] //= count
    return dense(sizes, x.dtype)


def _row(rule: Callable[..., Any], each: bool = False) -> Callable[..., Any]:
    """``each``: the operator takes a list of tensors, and gives as many."""

    def row(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or not all(x.dim() for x in (args[0] if each else args[:1])):
            return NotImplemented
        return [rule(x, *args[1:]) for x in args[0]] if each else rule(*args)

    return row


_RULES: dict[str, Callable[..., Any]] = {
    "all_gather_into_tensor": _gathered,
    "reduce_scatter_tensor": _scattered,
    "all_to_all_single": _turned,
    "all_reduce": _same,
    "broadcast": _same,
    "wait_tensor": _same,
}
SYMBOLIC = {
    **{f"{space}::{name}": _row(rule) for space in _SPACES for name, rule in _RULES.items()},
    **{
        f"{_SPACES[0]}::{name}_coalesced": _row(_RULES[name], True)
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
    },
    "_dtensor::shard_dim_alltoall": _row(_resharded),
    **{f"opmill_exchange::{name}": _row(lambda x, *others: dense(x.size(), x.dtype)) for name in ("received", "reduced", "scattered")},
    "opmill_exchange::sent": _row(lambda x, *others: dense((1,), x.dtype)),
    "opmill_exchange::gathered": _row(lambda x, count, *others: dense((count * x.size(0) if count else 1,), x.dtype)),
}

__all__ = ["SYMBOLIC"]
