"""Operators on matrices, in batches of any size: what is given for the sizes of one call tells what is for all, as long as no matrix itself
changes its size. Where one does, a row says of which sizes the results are, and that call tells how they lie."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from .strides import contiguous, same
from .symbolic import at_hints
from .symbols.asking import demanded

OVER_BATCHES = frozenset(
    f"aten::{name}"
    for name in (
        "linalg_qr _linalg_eigh linalg_eig _linalg_eigvals linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve linalg_inv_ex "
        "linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex _linalg_slogdet _linalg_det _linalg_solve_ex _linalg_svd "
        "linalg_householder_product linalg_matrix_exp"
    ).split()
)
"""Those whose results are new, and have the batches of their arguments in front."""


Sizes = tuple[Any, ...]


def _square(*results: str) -> Callable[..., Any]:
    """A row for square matrices: a result for each of these names."""

    def row(rows: Any, columns: Any, *_: Any, **__: Any) -> Any:
        kinds: dict[str, Sizes] = {"number": (), "row": (rows,), "matrix": (rows, rows)}
        return [kinds[each] for each in results] if rows is columns or demanded(rows == columns) else NotImplemented

    return row


def _shorter(rows: Any, columns: Any) -> Any:
    return rows if rows is columns or demanded(rows <= columns) else columns


def _qr(rows: Any, columns: Any, mode: str = "reduced") -> list[Sizes | None]:
    inner = rows if mode == "complete" else _shorter(rows, columns)
    return [None if mode == "r" else (rows, inner), (inner, columns)]


def _eigh(rows: Any, columns: Any, uplo: str = "L", compute_v: bool = True) -> Any:
    found = _square("row", "matrix")(rows, columns)
    return found if compute_v or found is NotImplemented else [found[0], None]


def _lu_factor(rows: Any, columns: Any, **_: Any) -> list[Sizes]:
    return [(rows, columns), (_shorter(rows, columns),), ()]


def _lu(rows: Any, columns: Any, *, pivot: bool = True) -> list[Sizes | None]:
    inner = _shorter(rows, columns)
    return [(rows, rows) if pivot else None, (rows, inner), (inner, columns)]


INNER: dict[str, Callable[..., Any]] = {
    "aten::linalg_qr": _qr,
    "aten::_linalg_eigh": _eigh,
    "aten::linalg_eig": _square("row", "matrix"),
    "aten::_linalg_eigvals": _square("row"),
    "aten::_linalg_slogdet": _square("number", "number", "matrix", "row"),
    "aten::_linalg_det": _square("number", "matrix", "row"),
    "aten::linalg_lu_factor_ex": _lu_factor,
    "aten::linalg_lu": _lu,
    "aten::linalg_ldl_factor_ex": _square("matrix", "row", "number"),
    "aten::linalg_matrix_exp": _square("matrix"),
}
"""What each result has behind its batches, of one matrix of so many rows and columns, and the other arguments; None for one that stays
empty, whatever the sizes."""


def over_batches(packet: str, metas: Any, kwargs: dict[str, Any], infer: Callable[[Any, Any], Any]) -> Any:
    """The results for matrices in batches, or of sizes, that are symbolic; NotImplemented for what else changes. ``infer``: what there is
    for known sizes."""
    given = [a for a in metas if isinstance(a, torch.Tensor)]
    if packet not in OVER_BATCHES or not given or any(t.dim() != given[0].dim() or t.dim() < 2 for t in given):
        return NotImplemented
    batch = given[0].size()[:-2]
    if any(not same(t.size()[:-2], batch) for t in given):
        return NotImplemented
    moving = any(type(n) is not int for t in given for n in t.size()[-2:])
    plain, named = at_hints(list(metas)), at_hints(kwargs)
    if plain is None or named is None or (moving and (packet not in INNER or len(given) != 1 or metas[0] is not given[0])):
        return NotImplemented
    known = next(a for a in plain if isinstance(a, torch.Tensor)).size()[:-2]
    made = infer(plain, named)
    results = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
    if not moving:
        if any(not lies_in_batches(t, known) for t in results):
            return NotImplemented
        return pytree.tree_map_only(torch.Tensor, lambda t: with_batch(t, known, batch), made)
    inner = INNER[packet](*given[0].size()[-2:], *metas[1:], **kwargs)
    if inner is NotImplemented or len(inner) != len(results):
        return NotImplemented
    resized = iter([t if n is None else of_sizes(t, (*batch, *n), len(n)) for t, n in zip(results, inner, strict=True)])
    return pytree.tree_map_only(torch.Tensor, lambda _: next(resized), made)


def of_sizes(result: torch.Tensor, sizes: Sizes, rank: int) -> torch.Tensor:
    """A result of these sizes whose matrices lie in columns, or in rows, as those of ``result`` do."""
    strides = contiguous(sizes)
    if rank == 2 and result.stride(-2) == 1 and result.stride(-1) != 1:
        *outer, columns, rows = contiguous((*sizes[:-2], sizes[-1], sizes[-2]))
        strides = (*outer, rows, columns)
    return torch.empty_strided(sizes, strides, dtype=result.dtype, device=result.device)


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
