"""Floats of one byte: every one of them, and every float16 and bfloat16 that becomes one, as torch converts them."""

import pytest
import torch

from opmill_graph_ir.loops.arithmetic import apply
from opmill_graph_ir.loops.float8 import FLOAT8
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Op, Phase, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.target import AVX2, AVX512, GENERIC, SSE, Target, host

HALVES = ("float16", "bfloat16")


def _kernel(source: str, to: str, n: int, stride: int = 1) -> LoopKernel:
    value = Op("cast", (Load("a", index("i") * stride, source),), to)
    buffers = (Buffer("a", source, "in", index(n * stride)), Buffer("out", to, "out", index(n)))
    return LoopKernel(
        f"{source}_{to}_{n}_{stride}", buffers, (Nest((Axis("i", index(n)),), (Phase(stores=(Store("out", index("i"), value),)),)),)
    )


def _kernels(name: str) -> dict[str, LoopKernel]:
    """By vectors and, from afar, one by one."""
    kernels = [_kernel(name, "float32", 256), _kernel(name, "float32", 128, 2), *(_kernel(half, name, 65536) for half in HALVES)]
    return {k.name: k for k in [*kernels, _kernel("float32", name, 5), *(_kernel("float16", name, 32768, 2),)]}


X86 = [AVX512, AVX2, SSE, GENERIC]
TARGETS = X86[X86.index(host()) :] if host() in X86 else [host()]


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_number(target: Target, name: str, store) -> None:
    kernels = _kernels(name)
    runner = Runner(list(kernels.values()), store, CppKernelGenerator(target))
    dtype = getattr(torch, name)
    for kernel in kernels.values():
        source, to = (getattr(torch, b.dtype) for b in kernel.buffers)
        n = kernel.buffers[1].numel.constant
        if source is dtype:
            given = torch.arange(256, dtype=torch.uint8).view(dtype)
        elif source is torch.float32:  # between two: to even; beyond the largest; so small that nothing is left
            given = torch.tensor([1.0625, 1.1875, 1e30, -1e-30, float("nan")])
        else:
            given = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(source)
        out = torch.zeros(n, dtype=to)
        assert runner.run(kernel, {"a": given, "out": out}) == 0
        want = apply("cast", [given[:: given.numel() // n]], to)
        assert torch.equal(out.float().isnan(), want.float().isnan())
        there = ~want.float().isnan()
        assert torch.equal(
            out.view(torch.uint8 if to is dtype else torch.int32)[there], want.view(torch.uint8 if to is dtype else torch.int32)[there]
        )
