"""The backward of norms on a GPU, rows and columns in one pass or in passes of their own: microseconds of its kernels, and what they move.

usage: gpu_norms.py [ROWSxLENGTH...]

Gradients of input, weight and bias of a layer norm (of weight alone: RMS norm) in float32, of half precision; what comes of it is added
to a gradient that is there, and goes on in half precision, which is summed for a bias. ``0``: passes of their own; else warps of a
multiprocessor. ``least``: what the memory takes for reading and writing everything once, as a copy does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from typing import Any

import torch

from gpu_measure import copy_bandwidth

SHAPES = ("8192x768", "6304x1024", "8192x2048", "4096x4096")
RESIDENT = (0, 8, 16, 24, 32)
NORMS = {"layer": torch.nn.functional.layer_norm, "rms": torch.nn.functional.rms_norm}


def step_of(norm: str, rows: int, length: int) -> Any:
    """A function that runs forward and backward, and what it is given."""
    torch.manual_seed(0)
    x = torch.randn(rows, length, device="cuda", requires_grad=True)
    weight, bias = (torch.rand(length, device="cuda", requires_grad=True) for _ in range(2))
    before, matrix = (
        torch.zeros(length, device="cuda", requires_grad=True),
        torch.randn(length, length, device="cuda").bfloat16() / length**0.5,
    )
    more = (bias,) if norm == "layer" else ()

    def function(x: Any, weight: Any, before: Any, *bias: Any) -> Any:
        y = (x.bfloat16() @ matrix + before.bfloat16()).float() + x
        return y + (NORMS[norm](y, (length,), weight, *bias).bfloat16() @ matrix).float()

    return function, (x, weight, before, *more)


def kernels_of(function: Any, inputs: Any) -> list[Any]:
    """The kernels of its backward that go over rows and columns."""
    import opmill
    import opmill_kernel_gen_triton.generator as made

    found: list[Any] = []
    build = made.TritonKernelGenerator.build

    def noted(self: Any, kernels: Any, options: Any, store: Any) -> Any:
        found.extend(k for k in kernels if len(k.nests) > 1 and any(p.reductions for p in k.nests[0].phases))
        return build(self, kernels, options, store)

    made.TritonKernelGenerator.build = noted  # type: ignore[method-assign]
    try:
        out = opmill.compile(function)(*inputs)
        torch.autograd.grad(out, inputs, torch.randn_like(out))
    finally:
        made.TritonKernelGenerator.build = build  # type: ignore[method-assign]
    return list(dict.fromkeys(found))


def row_of(norm: str, rows: int, length: int, bandwidth: float) -> dict[str, Any]:
    from opmill_graph_ir.generator.protocol import GeneratorOptions
    from opmill_kernel_gen_triton.budget import DEFAULT
    from opmill_kernel_gen_triton.generator import TritonKernelGenerator
    from opmill_runtime_cache.store import Store

    kernels = kernels_of(*step_of(norm, rows, length))
    options, store = GeneratorOptions("cuda:0"), Store(os.environ["OPMILL_CACHE_DIR"])
    moved = sum((b.numel.constant or 0) * getattr(torch, b.dtype).itemsize for k in kernels for b in k.buffers)
    row: dict[str, Any] = {
        "norm": norm,
        "rows": rows,
        "length": length,
        "kernels": len(kernels),
        "least": round(1e6 * moved / bandwidth, 1),
    }
    for resident in RESIDENT:
        maker = TritonKernelGenerator(budget=replace(DEFAULT, resident=resident))
        row[str(resident)] = [round(1e6 * s, 1) for s in maker.seconds(kernels, options, store)]
    return row


def main() -> None:
    os.environ["OPMILL_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are seen where they are built
    bandwidth = copy_bandwidth()
    for text in sys.argv[1:] or SHAPES:
        rows, length = map(int, text.split("x"))
        for norm in NORMS if text == SHAPES[0] else ("layer",):
            print(json.dumps(row_of(norm, rows, length, bandwidth)), flush=True)


if __name__ == "__main__":
    main()
