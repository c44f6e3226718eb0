"""Matrix products and attention. What does not fit is left to torch's kernels, which say why."""

from __future__ import annotations

from typing import Any

import torch

from ..strides import like
from ..symbols.asking import demanded, known_from_data, surely
from ..table import Rules, dense, strided

RULES = Rules()
Tensor = torch.Tensor


def _product(a: Tensor, b: Tensor, rank: int) -> tuple[int, ...] | None:
    """Sizes of ``a @ b``, both of ``rank`` dimensions."""
    m, n = a.size(), b.size()
    if len(m) == rank == len(n) and a.dtype != b.dtype:  # which torch's own meta kernels do not see
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if len(m) != rank or len(n) != rank or a.dtype is torch.bool or a.is_complex():
        return None
    if not all(p is q or demanded(p == q) for p, q in zip((m[-1], *m[:-2]), (n[-2], *n[:-2]), strict=True)):
        return None
    return (*m[:-1], n[-1])


def _expands(x: Tensor, sizes: tuple[int, ...]) -> bool:
    lead = len(sizes) - x.dim()
    pairs = zip(x.size(), sizes[lead:], strict=True) if lead >= 0 else ()
    return lead >= 0 and all(
        surely(n == 1) or n is k or surely(n == k) or (n == k if known_from_data(n) else demanded(n == k)) for n, k in pairs
    )


@RULES.row("mm bmm")
def _mm(overload: str, a: Tensor, b: Tensor) -> Any:
    rank = a.dim()
    sizes = _product(a, b, rank) if overload == "" and rank in (2, 3) and b.dim() == rank else None
    return NotImplemented if sizes is None else dense(sizes, a.dtype)


@RULES.row("addmm baddbmm")
def _addmm(overload: str, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    rank = a.dim()
    sizes = _product(a, b, rank) if overload == "" and rank in (2, 3) and b.dim() == rank else None
    if sizes is None or x.dtype != a.dtype or not _expands(x, sizes) or type(beta) is complex or type(alpha) is complex:
        return NotImplemented
    if not a.is_floating_point() and (type(beta) is float or type(alpha) is float):
        return NotImplemented
    return dense(sizes, a.dtype)


@RULES.row("mv")
def _mv(overload: str, a: Tensor, v: Tensor) -> Any:
    if (
        a.dim() != 2
        or v.dim() != 1
        or a.dtype != v.dtype
        or a.dtype is torch.bool
        or a.is_complex()
        or not demanded(a.size(1) == v.size(0))
    ):
        return NotImplemented
    return dense((a.size(0),), a.dtype)


@RULES.row("addmv")
def _addmv(overload: str, x: Tensor, a: Tensor, v: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    out = _mv("", a, v)
    fits = out is not NotImplemented and x.dtype == a.dtype and a.is_floating_point() and _expands(x, tuple(out.size()))
    return out if fits and overload == "" and type(beta) is not complex and type(alpha) is not complex else NotImplemented


@RULES.row("_scaled_dot_product_flash_attention_for_cpu")
def _attention(overload: str, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
    if q.dim() != 4 or v.dim() != 4 or k.dim() != 4:
        return NotImplemented
    b, h, n, _ = q.size()
    e = v.size(3)
    if not all(surely(size >= 1) for size in (b, h, n, e)) or not demanded(e == q.size(3)):
        return NotImplemented
    stats = torch.float64 if q.dtype is torch.float64 else torch.float32
    return strided((b, h, n, e), like(q.size(), q.stride()), q.dtype), strided((b, h, n), (n * h, 1, h), stats)


@RULES.row("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(overload: str, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
    """Gradients lie in memory as [batch, length, heads, width]."""
    out = []
    for t in (q, k, v):
        if t.dim() != 4:
            return NotImplemented
        b, h, n, e = t.size()
        out.append(strided((b, h, n, e), (n * h * e, e, h * e, 1), t.dtype))
    return tuple(out)
