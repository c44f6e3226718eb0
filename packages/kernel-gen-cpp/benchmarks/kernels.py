"""Kernels against torch's own operators: ``python benchmarks/kernels.py [--json FILE] [--threads N]``.

Times are the best of many calls in microseconds; GB/s counts each buffer once. Kernels are built into a store of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F

from opmill_graph_ir.loops.cases import cast, op
from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, Expr, IndexValue, Load, LoopKernel, Nest, Phase, Reduction, Ref, Store
from opmill_kernel_gen_cpp.debug import Runner
from opmill_runtime_cache.store import Store as ArtifactStore

Buffers = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Bench:
    kernel: LoopKernel
    eager: Callable[[Buffers], object]


@dataclass(frozen=True)
class Row:
    name: str
    eager_us: float
    opmill_us: float
    gb_per_s: float


def f32(value: float) -> Const:
    return Const(value, "float32")


def pointwise(name: str, n: int, dtype: str, body: Callable[[Expr], Expr], eager: Callable[[torch.Tensor], object]) -> Bench:
    x = cast(Load("a", index("i"), dtype), "float32")
    store = Store("out", index("i"), cast(body(x), dtype))
    buffers = (Buffer("a", dtype, "in", index(n)), Buffer("out", dtype, "out", index(n)))
    kernel = LoopKernel(name, buffers, (Nest((Axis("i", index(n)),), (Phase(stores=(store,)),)),))
    return Bench(kernel, lambda b: eager(b["a"]))


def gelu(x: Expr) -> Expr:
    half = op("mul", x, f32(0.5))
    return op("mul", half, op("add", op("erf", op("mul", x, f32(math.sqrt(0.5)))), f32(1.0)))


def gelu_tanh(x: Expr) -> Expr:
    cube = op("mul", op("mul", x, x), x)
    inner = op("mul", op("add", x, op("mul", cube, f32(0.044715))), f32(math.sqrt(2 / math.pi)))
    return op("mul", op("mul", x, f32(0.5)), op("add", op("tanh", inner), f32(1.0)))


def hardswish(x: Expr) -> Expr:
    return op("div", op("mul", x, op("min", op("max", op("add", x, f32(3.0)), f32(0.0)), f32(6.0))), f32(6.0))


def silu(x: Expr) -> Expr:
    return op("div", x, op("add", op("exp", op("neg", x)), f32(1.0)))


def _rows(rows: int, n: int) -> tuple[Axis, Axis, Index]:
    return Axis("i", index(rows)), Axis("j", index(n)), index("i") * n + "j"


def softmax(rows: int, n: int) -> Bench:
    i, j, at = _rows(rows, n)
    x = Load("a", at, "float32")
    e = op("exp", op("sub", x, Ref("m", "float32")))
    phases = (
        Phase((j,), reductions=(Reduction(("m",), "max", x, "float32"),)),
        Phase((j,), reductions=(Reduction(("s",), "sum", e, "float32"),), stores=(Store("out", at, e),)),
        Phase((j,), stores=(Store("out", at, op("div", Load("out", at, "float32"), Ref("s", "float32"))),)),
    )
    buffers = (Buffer("a", "float32", "in", index(rows * n)), Buffer("out", "float32", "out", index(rows * n)))
    return Bench(LoopKernel(f"softmax {rows}x{n}", buffers, (Nest((i,), phases),)), lambda b: torch.softmax(b["a"].view(rows, n), -1))


def layer_norm(rows: int, n: int) -> Bench:
    i, j, at = _rows(rows, n)
    x, m = Load("a", at, "float32"), Ref("m", "float32")
    scale = op("rsqrt", op("add", op("div", Ref("q", "float32"), f32(float(n))), f32(1e-5)))
    y = op("mul", op("mul", op("sub", x, m), scale), Load("w", index("j"), "float32"))
    phases = (
        Phase((j,), reductions=(Reduction(("m", "q"), "welford", x, "float32"),)),
        Phase((j,), stores=(Store("out", at, op("add", y, Load("b", index("j"), "float32"))),)),
    )
    sizes = {"a": rows * n, "w": n, "b": n, "out": rows * n}
    buffers = tuple(Buffer(k, "float32", "out" if k == "out" else "in", index(v)) for k, v in sizes.items())
    return Bench(
        LoopKernel(f"layer_norm {rows}x{n}", buffers, (Nest((i,), phases),)),
        lambda b: F.layer_norm(b["a"].view(rows, n), (n,), b["w"], b["b"]),
    )


def rms_norm(rows: int, n: int) -> Bench:
    i, j, at = _rows(rows, n)
    x = Load("a", at, "float32")
    scale = op("rsqrt", op("add", op("div", Ref("q", "float32"), f32(float(n))), f32(1e-6)))
    phases = (
        Phase((j,), reductions=(Reduction(("q",), "sum", op("mul", x, x), "float32"),)),
        Phase((j,), stores=(Store("out", at, op("mul", op("mul", x, scale), Load("w", index("j"), "float32"))),)),
    )
    sizes = {"a": rows * n, "w": n, "out": rows * n}
    buffers = tuple(Buffer(k, "float32", "out" if k == "out" else "in", index(v)) for k, v in sizes.items())
    return Bench(
        LoopKernel(f"rms_norm {rows}x{n}", buffers, (Nest((i,), phases),)), lambda b: F.rms_norm(b["a"].view(rows, n), (n,), b["w"], 1e-6)
    )


def total(name: str, outer: int, n: int, columns: bool) -> Bench:
    at = index("j") * outer + "i" if columns else index("i") * n + "j"
    phases = (
        Phase((Axis("j", index(n)),), reductions=(Reduction(("r",), "sum", Load("a", at, "float32"), "float32"),)),
        Phase(stores=(Store("out", index("i"), Ref("r", "float32")),)),
    )
    buffers = (Buffer("a", "float32", "in", index(outer * n)), Buffer("out", "float32", "out", index(outer)))
    kernel = LoopKernel(name, buffers, (Nest((Axis("i", index(outer)),), phases),))
    return Bench(kernel, lambda b: b["a"].view(n, outer).sum(0) if columns else b["a"].view(outer, n).sum(1))


def rotary(rows: int, heads: int, n: int) -> Bench:
    half, j = n // 2, IndexValue(index("j"), "int64")
    at, angle = index("i") * (heads * n) + index("h") * n + "j", index("i") * n + "j"
    low, high = op("lt", j, Const(half, "int64")), op("ge", j, Const(half, "int64"))
    turned = op("where", low, op("neg", Load("a", at + half, "float32", low)), Load("a", at - half, "float32", high))
    x = Load("a", at, "float32")
    y = op("add", op("mul", x, Load("cos", angle, "float32")), op("mul", turned, Load("sin", angle, "float32")))
    axes = (Axis("i", index(rows)), Axis("h", index(heads)), Axis("j", index(n)))
    sizes = {"a": rows * heads * n, "cos": rows * n, "sin": rows * n, "out": rows * heads * n}
    buffers = tuple(Buffer(k, "float32", "out" if k == "out" else "in", index(v)) for k, v in sizes.items())

    def eager(b: Buffers) -> object:
        a, cos, sin = b["a"].view(rows, heads, n), b["cos"].view(rows, 1, n), b["sin"].view(rows, 1, n)
        return a * cos + torch.cat((-a[..., half:], a[..., :half]), -1) * sin

    return Bench(LoopKernel(f"rotary {rows}x{heads}x{n}", buffers, (Nest(axes, (Phase(stores=(Store("out", at, y),)),)),)), eager)


def benches() -> list[Bench]:
    n = 1 << 17
    return [
        pointwise("gelu", n, "float32", gelu, F.gelu),
        pointwise("gelu bfloat16", n, "bfloat16", gelu, F.gelu),
        pointwise("gelu tanh", n, "float32", gelu_tanh, lambda a: F.gelu(a, approximate="tanh")),
        pointwise("hardswish", n, "float32", hardswish, F.hardswish),
        pointwise("silu", n, "float32", silu, F.silu),
        pointwise("silu bfloat16", n, "bfloat16", silu, F.silu),
        pointwise("relu", n, "float32", lambda x: op("max", x, f32(0.0)), torch.relu),
        *(softmax(rows, k) for rows, k in ((2048, 64), (512, 128), (128, 1024))),
        *(layer_norm(rows, k) for rows, k in ((512, 64), (128, 256), (128, 768), (128, 1024))),
        rms_norm(128, 256),
        rms_norm(128, 4096),
        rotary(128, 4, 64),
        total("sum of all", 1, 1 << 20, False),
        total("sum of rows", 1024, 1024, False),
        total("sum of columns", 1024, 1024, True),
    ]


def best_us(call: Callable[[], object], seconds: float = 0.15) -> float:
    call()
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(4):
            call()
        best = min(best, (time.perf_counter() - start) / 4)
    return best * 1e6


def measure(bench: Bench, runner: Runner) -> Row:
    generator = torch.Generator().manual_seed(0)
    buffers = {b.name: torch.randn(b.numel.constant or 1, generator=generator).to(getattr(torch, b.dtype)) for b in bench.kernel.buffers}
    moved = sum(t.numel() * t.element_size() for t in buffers.values())
    ours = best_us(runner.bound(bench.kernel, buffers))
    return Row(bench.kernel.name, round(best_us(lambda: bench.eager(buffers)), 2), round(ours, 2), round(moved / ours / 1e3, 1))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the rows there")
    parser.add_argument("--threads", type=int, default=0, help="threads for both (default: torch's)")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    table = benches()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner([b.kernel for b in table], ArtifactStore(folder))
        rows = [measure(b, runner) for b in table]
    print(f"{'kernel':<24}{'eager us':>10}{'opmill us':>11}{'times':>8}{'GB/s':>8}")
    for row in rows:
        print(f"{row.name:<24}{row.eager_us:>10.1f}{row.opmill_us:>11.1f}{row.eager_us / row.opmill_us:>8.2f}{row.gb_per_s:>8.1f}")
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"threads": torch.get_num_threads(), "rows": [asdict(r) for r in rows]}, out, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
