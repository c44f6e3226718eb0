"""Products of one row on a GPU: microseconds each, in chains whose matrices come from memory, beside torch's own.

usage: gpu_rows.py [DEPTHxCOLUMNS...]

A chain goes through matrices of DEPTH by COLUMNS and back through others, with a bias and an activation after each, all in bfloat16;
``along``: each lies along its sums, as those of ``nn.Linear``; ``across``: along its columns, as those of GPT-2. Both sides are a CUDA graph.
``least``: what reading the matrices takes at the speed of a copy. ``across`` has a column for each tile: columns, elements.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from gpu_decode import replayed
from gpu_measure import copy_bandwidth

SHAPES = ("896x128", "576x192", "896x896", "1024x1024", "1024x3072", "1024x4096", "2048x2048", "2048x8192", "2048x16", "5120x640")
BYTES = 256 << 20
"""Of a chain's matrices: more than a cache holds."""
TILES = ((16, 8192), (16, 32768), (32, 16384), (64, 8192))


def chain(depth: int, columns: int, layout: str) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor], int]:
    count = max(2, min(96, BYTES // (depth * columns * 2) // 2 * 2))
    torch.manual_seed(0)
    tensors = []
    for k in range(count):
        here, there = (depth, columns) if k % 2 == 0 else (columns, depth)
        tensors += [torch.randn(here, there, device="cuda").bfloat16() / here**0.5, torch.randn(there, device="cuda").bfloat16()]
        if layout == "along":
            tensors[-2] = tensors[-2].t().contiguous()

    def function(x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        for k in range(0, len(tensors), 2):
            w, b = tensors[k : k + 2]
            x = torch.relu(torch.nn.functional.linear(x, w, b) if layout == "along" else torch.addmm(b, x, w))
        return x

    return function, [torch.randn(1, depth, device="cuda").bfloat16(), *tensors], count


def microseconds(function: Callable[[], object]) -> float:
    """Of the function as a CUDA graph."""
    with torch.no_grad():
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
    return replayed(graph)[1]


def row_of(depth: int, columns: int, layout: str, bandwidth: float) -> dict[str, Any]:
    import opmill
    import opmill_kernel_gen_triton.tiling as tiling

    function, inputs, count = chain(depth, columns, layout)
    row: dict[str, Any] = {"shape": f"{depth}x{columns}", "layout": layout, "least": round(2e6 * depth * columns / bandwidth, 2)}
    row["torch"] = round(microseconds(lambda: function(*inputs)) / count, 2)
    known = tiling._columns_of_matrix
    exact = function(*(t.double() for t in inputs))
    for columns_of_one, taken in TILES if layout == "across" else ((0, 0),):
        if taken:
            tiling._ACROSS = taken
            tiling._columns_of_matrix = lambda *given, x=columns_of_one: x if known(*given) else 0  # type: ignore[assignment]
        with tempfile.TemporaryDirectory() as os.environ["OPMILL_CACHE_DIR"]:
            compiled = opmill.compile(function, dynamic=False)
            with torch.no_grad():
                found = compiled(*inputs)
            row[f"{columns_of_one}, {taken}" if taken else "opmill"] = round(microseconds(lambda c=compiled: c(*inputs)) / count, 2)
            row["error"] = round(float((found.double() - exact).abs().max() / exact.abs().max()), 4)
        opmill.reset()
    tiling._columns_of_matrix = known
    return row


def main() -> None:
    bandwidth = copy_bandwidth()
    for text in sys.argv[1:] or SHAPES:
        depth, columns = map(int, text.split("x"))
        for layout in ("along", "across"):
            try:
                print(json.dumps(row_of(depth, columns, layout, bandwidth)), flush=True)
            except Exception as error:  # one that fails is a row
                print(json.dumps({"shape": text, "layout": layout, "failed": f"{type(error).__name__}: {error}"[:400]}), flush=True)


if __name__ == "__main__":
    main()
