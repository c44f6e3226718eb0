"""Addresses that kernels make: of memory that is there, and of nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import compile_graph
from opmill_kernel_gen_cpp.generator import CppKernelGenerator


def _pad(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (1, 2)).exp()


def _join(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x[:, 1:], x * 2], 1).sin()


def _run(folder: str) -> None:
    """Convolutions with lines that are padding alone, padded and joined tensors, for sizes down to nothing."""
    from opmill_runtime_cache.store import Store

    store, generator = Store(Path(folder)), CppKernelGenerator()
    convolution = torch.nn.Conv2d(8, 16, 3, padding=2)
    for module, x in (
        (convolution, torch.randn(2, 8, 30, 30)),
        (_pad, torch.randn(3, 5)),
        (_join, torch.randn(3, 5)),
        (_pad, torch.randn(3, 0)),
    ):
        with torch.no_grad():
            out = compile_graph(torch.fx.symbolic_trace(module), [x], store=store, generators=[generator])(x)[0]
            torch.testing.assert_close(out, module(x), atol=1e-4, rtol=1e-4)
    print("all right")


def test_no_address_is_made_from_nothing(tmp_path):
    """Compiled so that offsets of a null pointer, and offsets that wrap around, end the process."""
    trap = "g++ -fsanitize=pointer-overflow,null -fsanitize-undefined-trap-on-error"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_pointers; test_pointers._run({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "CXX": trap}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-2000:]


def test_gradients_of_embeddings_count_rows_that_there_are(store):
    """As torch's: the forward has checked the rows, but a plan from a file need not have one."""

    def gradient(grad: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.embedding_dense_backward(grad, ids, 5, 1, False)

    grad, ids = torch.randn(6, 4), torch.tensor([0, 4, 1, 2, 0, 3])
    run = compile_graph(torch.fx.symbolic_trace(gradient), [grad, ids], store=store, generators=[CppKernelGenerator()])
    torch.testing.assert_close(run(grad, ids)[0], gradient(grad, ids))
    far = torch.tensor([0, 5, -1, 1 << 40, -(1 << 62), 4])
    want = torch.zeros(5, 4)
    want[0], want[4] = grad[0], grad[5]
    torch.testing.assert_close(run(grad, far)[0], want)
