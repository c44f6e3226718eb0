"""Operators on matrices, in batches of any size: what is given for the sizes of one call tells what is for all, as long as no matrix itself
changes its size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from .strides import contiguous, same
from .symbolic import at_hints

OVER_BATCHES = frozenset(
    f"aten::{name}"
    for name in (
        "linalg_qr _linalg_eigh linalg_eig _linalg_eigvals linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve linalg_inv_ex "
        "linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex _linalg_slogdet _linalg_det _linalg_solve_ex _linalg_svd "
        "linalg_householder_product linalg_matrix_exp"
    ).split()
)
"""Those whose results are new, and have the batches of their arguments in front."""


def over_batches(packet: str, metas: Any, kwargs: dict[str, Any], infer: Callable[[Any, Any], Any]) -> Any:
    """The results for matrices in batches of symbolic sizes; NotImplemented for what else changes. ``infer``: what there is for known
    sizes."""
    given = [a for a in metas if isinstance(a, torch.Tensor)]
    if packet not in OVER_BATCHES or not given or any(t.dim() != given[0].dim() or t.dim() < 3 for t in given):
        return NotImplemented
    batch = given[0].size()[:-2]
    if any(not same(t.size()[:-2], batch) or any(type(n) is not int for n in t.size()[-2:]) for t in given):
        return NotImplemented
    plain, named = at_hints(list(metas)), at_hints(kwargs)
    if plain is None or named is None:
        return NotImplemented
    known = next(a for a in plain if isinstance(a, torch.Tensor)).size()[:-2]
    made = infer(plain, named)
    results = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
    if any(not lies_in_batches(t, known) for t in results):
        return NotImplemented
    return pytree.tree_map_only(torch.Tensor, lambda t: with_batch(t, known, batch), made)


def lies_in_batches(result: torch.Tensor, batch: Any) -> bool:
    """Whether a result has these sizes in front, and one batch behind the other in memory."""
    count = len(batch)
    if tuple(result.size()[:count]) != tuple(batch):
        return False
    inner = math.prod(result.size()[count:])
    return inner > 0 and tuple(result.stride()[:count]) == tuple(inner * n for n in contiguous(batch))


def with_batch(result: torch.Tensor, known: Any, batch: Any) -> torch.Tensor:
    """A result like this one, of as many batches."""
    count, inner = len(known), math.prod(result.size()[len(known) :])
    strides = [inner * n for n in contiguous(batch)]
    return torch.empty_strided(
        [*batch, *result.size()[count:]], [*strides, *result.stride()[count:]], dtype=result.dtype, device=result.device
    )


__all__ = ["OVER_BATCHES", "over_batches"]
