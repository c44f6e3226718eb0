"""Products of matrices, linear algebra and Fourier transforms."""

from __future__ import annotations

import torch

from .functions import UNITS, as_tensor, rule


@rule("matmul")
def matmul(x1: torch.Tensor, x2: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The product of matrices, or of stacks of them; of a row and a matrix."""
    return torch.matmul(x1.to(as_dtype), x2.to(as_dtype))


@rule("dot")
def dot(a: torch.Tensor, b: object, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The inner product of rows, the product of matrices, or what a number multiplies."""
    a, b = as_tensor(a, as_dtype), as_tensor(b, as_dtype)
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    return torch.tensordot(a, b, dims=([a.dim() - 1], [max(b.dim() - 2, 0)]))


@rule("inner")
def inner(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of products along the last dimensions of both."""
    a, b = a.to(as_dtype), b.to(as_dtype)
    return a * b if a.dim() == 0 or b.dim() == 0 else torch.tensordot(a, b, dims=([a.dim() - 1], [b.dim() - 1]))


@rule("outer")
def outer(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The products of each item with each of the other's."""
    return a.to(as_dtype).reshape(-1, 1) * b.to(as_dtype).reshape(1, -1)


@rule("kron")
def kron(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The Kronecker product: a block for each item."""
    return torch.kron(a.to(as_dtype), b.to(as_dtype))


@rule("cross")
def cross(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The cross product of vectors of three."""
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise NotImplementedError
    return torch.linalg.cross(a.to(as_dtype), b.to(as_dtype))


@rule("vdot")
def vdot(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The inner product of flat arrays, the first one conjugated."""
    a, b = a.to(as_dtype).reshape(-1), b.to(as_dtype).reshape(-1)
    return torch.sum((torch.conj_physical(a) if a.is_complex() else a) * b)


@rule("tensordot")
def tensordot(a: torch.Tensor, b: torch.Tensor, axes: object = 2, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of products along pairs of dimensions."""
    return torch.tensordot(a.to(as_dtype), b.to(as_dtype), dims=axes)


@rule("einsum")
def einsum(subscripts: str, *operands: torch.Tensor, optimize: object = False, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of products that a formula names by letters."""
    return torch.einsum(subscripts, *[each.to(as_dtype) for each in operands])


@rule("linalg.inv")
def inv(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The inverse of matrices."""
    return torch.linalg.inv(a.to(as_dtype))


@rule("linalg.det")
def det(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The determinant of matrices."""
    return torch.linalg.det(a.to(as_dtype))


@rule("linalg.slogdet")
def slogdet(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The sign of the determinant, and the logarithm of its size."""
    if not a.is_floating_point():
        raise NotImplementedError
    found = torch.linalg.slogdet(a)
    return found[0], found[1]


@rule("linalg.solve")
def solve(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """What a matrix multiplied by it gives ``b``."""
    if b.dim() > 1 and b.dim() != a.dim():
        raise NotImplementedError
    return torch.linalg.solve(a.to(as_dtype), b.to(as_dtype))


@rule("linalg.qr")
def qr(a: torch.Tensor, mode: str = "reduced") -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """An orthogonal matrix and a triangular one whose product the matrix is."""
    if mode not in ("reduced", "complete", "r") or not a.is_floating_point():
        raise NotImplementedError
    found = torch.linalg.qr(a, mode)
    return found[1] if mode == "r" else (found[0], found[1])


@rule("linalg.svdvals")
def svdvals(x: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The singular values, the greatest first."""
    return torch.linalg.svdvals(x.to(as_dtype))


@rule("linalg.svd")
def svd(a: torch.Tensor, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> torch.Tensor:
    """Both orthogonal matrices and the singular values between them."""
    if compute_uv or hermitian or not a.is_floating_point():
        raise NotImplementedError  # the signs of vectors are each library's own
    return torch.linalg.svdvals(a)


@rule("linalg.pinv")
def pinv(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The pseudo-inverse, where small singular values count as zero."""
    left, values, right = torch.linalg.svd(a.to(as_dtype), full_matrices=False)
    kept = values > 1e-15 * torch.amax(values, dim=-1, keepdim=True)
    inverse = torch.where(kept, 1 / values, torch.zeros_like(values))
    return right.mH @ (inverse.unsqueeze(-1) * left.mH)


@rule("linalg.cholesky")
def cholesky(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The triangular matrix whose product with its own transpose the matrix is."""
    return torch.linalg.cholesky(a.to(as_dtype))


@rule("linalg.eigvalsh")
def eigvalsh(a: torch.Tensor, UPLO: str = "L", *, as_dtype: torch.dtype) -> torch.Tensor:
    """The eigenvalues of a symmetric matrix, the smallest first."""
    return torch.linalg.eigvalsh(a, UPLO).to(as_dtype)


UNITS |= {"linalg.inv", "linalg.solve", "linalg.cholesky", "linalg.det", "linalg.eigvalsh", "linalg.slogdet"}

# ---- Fourier transforms --------------------------------------------------------------------------------------------------


def _transform(name: str) -> None:
    function = getattr(torch.fft, name)

    @rule(f"fft.{name}")
    def one(a: torch.Tensor, n: object = None, axis: int = -1, norm: object = None) -> torch.Tensor:
        return function(a, n, axis, norm)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    _transform(_name)


def _transforms(name: str, axes: object) -> None:
    function = getattr(torch.fft, name)

    @rule(f"fft.{name}")
    def several(a: torch.Tensor, s: object = None, axes: object = axes, norm: object = None) -> torch.Tensor:
        return function(a, s, axes, norm)


for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    _transforms(_name, (-2, -1))
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    _transforms(_name, None)

__all__ = ["matmul"]
