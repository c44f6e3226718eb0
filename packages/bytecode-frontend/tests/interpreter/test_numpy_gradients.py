"""``torch.compiler.wrap_numpy``: gradients go through what NumPy's functions compute, once it is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy")

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "one array": (lambda a: np.sin(a) * 2, lambda x: x.sin() * 2),
    "several": (lambda a, b: np.tanh(a @ b.T).sum(0), lambda x, y: (x @ y.T).tanh().sum(0)),
    "a tree": (lambda a: {"one": np.exp(a), "two": [a[0] * 3]}, lambda x: {"one": x.exp(), "two": [x[0] * 3]}),
}


def total(out: Any) -> torch.Tensor:
    if isinstance(out, torch.Tensor):
        return (out * torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape)).sum()
    return sum(map(total, out.values() if isinstance(out, dict) else out), torch.zeros(()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_torch_program(name: str) -> None:
    program, meant = PROGRAMS[name]
    inputs = [torch.randn(3, 2, requires_grad=True) for _ in range(meant.__code__.co_argcount)]
    wrapped = torch.compiler.wrap_numpy(program)
    for compiled in (capture(wrapped, fullgraph=True), capture(lambda *x: wrapped(*x), fullgraph=True)):
        found = torch.autograd.grad(total(compiled(*inputs)), inputs)
        for ours, theirs in zip(found, torch.autograd.grad(total(meant(*inputs)), inputs), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_an_array_with_gradients_does_not_leave() -> None:
    kept: list[Any] = []
    compiled = capture(torch.compiler.wrap_numpy(lambda a: (kept.append(a * 2), a * 3)[1]))
    with pytest.raises(RuntimeError, match="requires grad"):  # what the plain function says
        compiled(torch.randn(3, requires_grad=True))


def test_numpy_of_a_tensor_that_requires_grad_raises_elsewhere() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        capture(lambda x: torch.from_numpy(x.numpy() * 2))(torch.randn(3, requires_grad=True))
