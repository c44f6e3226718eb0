"""Convolutions touch nothing beside their tensors: each lies between pages that may not be touched, at one end and at the other."""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.target import host
from opmill_runtime_cache.store import Store

_PAGE = mmap.PAGESIZE


def _between(numel: int, at_end: bool) -> tuple[torch.Tensor, mmap.mmap]:
    """Memory for floats with a forbidden page before and after it, and right beside one of these."""
    size = -(-4 * numel // _PAGE) * _PAGE
    pages = mmap.mmap(-1, size + 2 * _PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for page in (start, start + _PAGE + size):
        assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), _PAGE, 0) == 0
    offset = _PAGE + (size - 4 * numel if at_end else 0)
    return torch.frombuffer(pages, dtype=torch.float32, count=numel, offset=offset), pages


def _of_gradients(store: Store) -> list[LoopKernel]:
    """The kernels of depthwise convolutions in training."""
    from test_contract import DEPTHWISE, _gradient_case, _Noting  # type: ignore[import-not-found]

    generator = _Noting()
    random = [((images, 48, *size), options) for (images, *size), options in map(_gradient_case, range(14))]
    for size, options in [*DEPTHWISE, *random]:
        module = (torch.nn.Conv1d if len(size) == 3 else torch.nn.Conv2d)(size[1], size[1], groups=size[1], **options)
        x = torch.randn(size, requires_grad=True)
        compile_graph(torch.fx.symbolic_trace(module), [x], store=store, generators=[generator])(x)[0].sum().backward()
    return list(generator.kernels)


def _touch(folder: str) -> None:
    """Runs the kernels of every shape of the convolutions' tests, and of gradients."""
    from test_contract import ABREAST, SHAPES, convolution  # type: ignore[import-not-found]

    convolution._DEEP, convolution._torch_is_quicker = 1 << 60, lambda *sizes: False
    torch.set_num_threads(1)
    store = Store(Path(folder))
    kernels = list(dict.fromkeys(c.step().kernel for c in [*SHAPES, *ABREAST])) + _of_gradients(store)
    runner = Runner(kernels, store)
    for kernel in kernels:
        print(kernel, flush=True)
        for at_end in (False, True):
            placed = {b.name: _between(b.numel.constant, at_end) for b in kernel.buffers}
            for memory, _ in placed.values():
                memory.uniform_(-1, 1)
            assert runner.run(kernel, {name: memory for name, (memory, _) in placed.items()}) == 0


@pytest.mark.skipif(os.name != "posix" or not host().fma, reason="needs mprotect, and a processor for which products are written")
def test_nothing_else_is_touched(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert run.returncode == 0, f"the process ended with {run.returncode} in {run.stdout.splitlines()[-1:]}: {run.stderr[-2000:]}"


if __name__ == "__main__":
    _touch(sys.argv[1])
