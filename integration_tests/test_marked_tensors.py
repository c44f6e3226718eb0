"""Tensors that are marked as conjugated or negated: who asks for the numbers to be written out gets a tensor of its own."""

from collections.abc import Callable

import pytest
import torch

import opmill

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "resolve_conj": lambda x: x.conj().resolve_conj(),
    "resolve_conj of torch": lambda x: torch.resolve_conj(x.conj()),
    "nothing to resolve": lambda x: x.resolve_conj().resolve_neg(),
    "transposed": lambda x: x.mH.resolve_conj(),
    "real part": lambda x: x.mH.resolve_conj().real,
    "imaginary part": lambda x: x.conj().imag,
    "imaginary part of torch": lambda x: torch.imag(x.conj()).t(),
    "resolve_neg": lambda x: x.conj().imag.resolve_neg(),
    "resolve_neg of torch": lambda x: torch.resolve_neg(torch.imag(x.conj())),
    "viewed as pairs": lambda x: torch.view_as_real(x.conj().resolve_conj()),
    "computed with": lambda x: torch.linalg.vector_norm(x.mH.resolve_conj() @ x) + x.conj().imag.exp().sum(),
}


def looks(result: torch.Tensor, x: torch.Tensor) -> tuple[object, ...]:
    shared = result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return result.dtype, result.shape, result.stride(), result.is_conj(), result.is_neg(), shared


@pytest.mark.parametrize(
    "compiler", [opmill.compile, lambda fn: torch.compile(fn, backend="opmill", fullgraph=True)], ids=["opmill", "torch"]
)
@pytest.mark.parametrize("strides", [(6, 3), (1, 3)])
@pytest.mark.parametrize("grad", [False, True])
def test_marks_and_memory_are_those_of_eager(compiler, strides, grad) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, dtype=torch.complex64).as_strided((3, 2), strides).detach().requires_grad_(grad)
    for name, fn in PROGRAMS.items():
        torch._dynamo.reset()
        want, got = fn(x), compiler(fn)(x)
        assert looks(got, x) == looks(want, x), name
        torch.testing.assert_close(got, want)
        if grad:
            out = torch.ones_like(want)
            torch.testing.assert_close(torch.autograd.grad(got, x, out), torch.autograd.grad(want, x, out))
