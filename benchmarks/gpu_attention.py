"""flex_attention on a GPU: right against float32, and how fast beside torch.compile.

usage: gpu_attention.py right [CASE...] | speed [SETTING...] [--compilers torch,opmill] [--once] | tiles

``right``: of output and gradients, the distance to eager in float32 as a share of its norm, and the memory that the call took above its
tensors; a row a case. ``speed``: milliseconds forward and backward, and teraflops of what the mask keeps; ``--once`` compiles and says
nothing. ``tiles``: the kernels of one setting with other tiles, microseconds each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch._functorch.config
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import ProfilerActivity, profile

Tensors = tuple[torch.Tensor, ...]
CAP, WINDOW, PREFIX, DOCUMENT = 15.0, 128, 40, 150


@dataclass(frozen=True)
class Case:
    """Attention of ``heads`` over ``own`` of ``keys`` positions."""

    score: str = "plain"
    mask: str = "all"
    dtype: torch.dtype = torch.bfloat16
    width: int = 64
    heads: int = 4
    own: int = 4
    queries: int = 512
    keys: int = 512
    batch: int = 2

    def tensors(self) -> Tensors:
        torch.manual_seed(0)
        shapes = [(self.batch, n, m, self.width) for n, m in ((self.heads, self.queries), (self.own, self.keys), (self.own, self.keys))]
        return tuple(torch.randn(s, device="cuda", dtype=self.dtype, requires_grad=True) for s in shapes)

    def function(self) -> Callable[..., torch.Tensor]:
        """Of query, key and value. What it reads is made here, once."""
        longest = max(self.queries, self.keys)
        slopes = torch.exp2(-torch.arange(1, self.heads + 1, device="cuda") / 2)
        bias = torch.randn(self.heads, longest, longest, device="cuda") if self.score == "bias" else None
        document = torch.arange(longest, device="cuda") // (DOCUMENT if longest < 4096 else longest // 7)
        window = WINDOW if longest < 4096 else 1024
        scores: dict[str, Any] = {
            "plain": None,
            "alibi": lambda s, b, h, i, j: s + slopes[h] * (j - i),
            "bias": lambda s, b, h, i, j: s + bias[h, i, j],
            "cap": lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
            "relative": lambda s, b, h, i, j: s + (i - j) * 0.01,
        }
        masks: dict[str, Any] = {
            "all": None,
            "causal": lambda b, h, i, j: i >= j,
            "window": lambda b, h, i, j: (i >= j) & (i - j <= window),
            "documents": lambda b, h, i, j: (document[i] == document[j]) & (i >= j),
            "prefix": lambda b, h, i, j: (i >= j) | (j < PREFIX),
        }
        kept = masks[self.mask]
        block = None if kept is None else create_block_mask(kept, None, None, self.queries, self.keys, device="cuda")
        shared = self.heads != self.own
        return lambda q, k, v: flex_attention(q, k, v, score_mod=scores[self.score], block_mask=block, enable_gqa=shared)


half, whole = torch.float16, torch.float32
RIGHT = {
    "causal": Case(mask="causal"),
    "window, d128": Case(mask="window", width=128),
    "documents": Case(mask="documents"),
    "cap, d128": Case("cap", "causal", width=128),
    "alibi, shared heads, float16": Case("alibi", "causal", half, own=1),
    "float32": Case("plain", "causal", whole),
    "float32, alibi, d128": Case("alibi", "window", whole, 128),
    "bias": Case("bias", "all"),
    "documents, ragged, shared heads, d128": Case("cap", "documents", width=128, own=2, queries=500, keys=500),
    "prefix, ragged": Case("plain", "prefix", queries=500, keys=391),
    "relative, few queries": Case("relative", "all", queries=3, keys=777, width=128),
    "shared heads, d256": Case("plain", "causal", width=256, heads=8, own=2),
    "all, d16": Case(width=16),
}
_4k, _16k = {"batch": 4, "queries": 4096, "keys": 4096}, {"batch": 1, "queries": 16384, "keys": 16384}
SPEED = {
    "causal 4k d64": Case(mask="causal", heads=16, own=16, **_4k),
    "causal 16k d128": Case(mask="causal", width=128, heads=16, own=16, **_16k),
    "alibi 4k d64": Case("alibi", "causal", heads=16, own=16, **_4k),
    "documents 16k d64": Case(mask="documents", heads=16, own=16, **_16k),
    "window 16k d128": Case(mask="window", width=128, heads=16, own=4, **_16k),
    "window 16k d64": Case(mask="window", heads=16, own=16, **_16k),
    "documents 16k d128": Case(mask="documents", width=128, heads=16, own=16, **_16k),
    "cap 4k d128": Case("cap", "causal", width=128, heads=16, own=16, **_4k),
    "causal 4k d128": Case(mask="causal", width=128, heads=16, own=16, **_4k),
    "causal 16k d64": Case(mask="causal", heads=16, own=16, **_16k),
}


def compiled(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if name == "torch":
        torch._functorch.config.donated_buffer = False  # a graph is gone through backwards many times
        return torch.compile(function, dynamic=False)
    import opmill

    return opmill.compile(function, dynamic=False)


def results(function: Callable[..., torch.Tensor], tensors: Tensors, gradient: torch.Tensor) -> Tensors:
    out = function(*tensors)
    return out.detach(), *torch.autograd.grad(out, tensors, gradient)


def right(name: str, case: Case) -> dict[str, Any]:
    function, tensors = case.function(), case.tensors()
    gradient = torch.randn(*tensors[0].shape[:3], case.width, device="cuda").to(case.dtype)
    ours = compiled("opmill", function)
    start = time.perf_counter()
    results(ours, tensors, gradient)
    torch.cuda.synchronize()
    first, before = time.perf_counter() - start, torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    got = results(ours, tensors, gradient)
    torch.cuda.synchronize()
    above = torch.cuda.max_memory_allocated() - before
    exact = results(function, tuple(t.detach().float().requires_grad_() for t in tensors), gradient.float())
    eager = results(function, tensors, gradient)
    errors, theirs = ([_share(a, b) for a, b in zip(of, exact, strict=True)] for of in (got, eager))
    scores = case.batch * case.heads * case.queries * case.keys * 4
    row = {"case": name, "errors": errors, "eager": theirs, "first_s": round(first, 1), "memory_of_scores": round(above / scores, 2)}
    bound = 1e-4 if case.dtype == whole else 3 * max(theirs) + 1e-2
    return row | {"right": all(e <= bound for e in errors)}


def _share(a: torch.Tensor, b: torch.Tensor) -> float:
    found = float((a.double() - b.double()).norm() / b.double().norm())
    return found if math.isfinite(found) else 1e9


def milliseconds(run: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for k in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times += [start.elapsed_time(end)] if k > 1 else []
    return sorted(times)[len(times) // 2]


def kernels_in(run: Callable[[], object]) -> list[tuple[str, float, int]]:
    """What a device runs: names, microseconds together, how often."""
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        run()
        torch.cuda.synchronize()
    found = [(e.key, round(e.self_device_time_total, 1), e.count) for e in watched.key_averages() if e.self_device_time_total]
    return sorted(found, key=lambda e: -e[1])


def share_kept(case: Case) -> float:
    """Of all pairs, those that the mask keeps."""
    n = case.keys
    kept = {"causal": 0.5, "window": min(1.0, 1024 / n), "documents": 0.5 / 7}
    return kept.get(case.mask, 1.0)


def speed(name: str, case: Case, compiler: str, once: bool) -> dict[str, Any]:
    function, tensors = compiled(compiler, case.function()), case.tensors()
    gradient = torch.randn(*tensors[0].shape[:3], case.width, device="cuda").to(case.dtype)
    results(function, tensors, gradient)
    if once:
        return {}
    out = function(*tensors)
    torch.cuda.reset_peak_memory_stats()
    forward = milliseconds(lambda: function(*tensors))
    backward = milliseconds(lambda: torch.autograd.grad(out, tensors, gradient, retain_graph=True))
    work = 4e-9 * case.batch * case.heads * case.queries * case.keys * case.width * share_kept(case)
    row = {"setting": name, "compiler": compiler, "forward": round(forward, 3), "backward": round(backward, 3)}
    row["top"] = kernels_in(lambda: torch.autograd.grad(function(*tensors), tensors, gradient))
    rates = {
        "tflops": [round(work / forward), round(2.5 * work / backward)],
        "peak_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }
    return row | rates


def tiles(name: str, case: Case) -> list[dict[str, Any]]:
    """Every tile that ``max-autotune`` tries and some more, for each kernel of a setting."""
    from opmill_graph_ir.generator.protocol import GeneratorOptions
    from opmill_kernel_gen_triton.attention.shape import OTHERS
    from opmill_kernel_gen_triton.budget import AttentionShape, Budget
    from opmill_kernel_gen_triton.generator import TritonKernelGenerator
    from opmill_runtime_cache.store import Store

    kernels = kernels_of(case)
    options, store = GeneratorOptions("cuda:0"), Store(os.environ["OPMILL_CACHE_DIR"])
    more = (
        (128, 64, 8, 3),
        (128, 128, 8, 3),
        (128, 128, 4, 2),
        (64, 128, 8, 2),
        (64, 128, 4, 2),
        (128, 32, 8, 2),
        (64, 32, 4, 3),
        (64, 64, 4, 2),
    )
    shapes = dict.fromkeys((None, *OTHERS, *(AttentionShape(*shape) for shape in more)))
    makers = {shape: TritonKernelGenerator(budget=Budget(attention=shape)) for shape in shapes}
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda maker: maker.build(kernels, options, store), makers.values()))
    rows = []
    for shape, maker in makers.items():
        taken = [round(1e6 * seconds) for seconds in maker.seconds(kernels, options, store)]
        parts = [k.attention.part for k in kernels if k.attention is not None]
        rows.append({"setting": name, "tile": None if shape is None else astuple(shape), **dict(zip(parts, taken, strict=True))})
    return rows


def kernels_of(case: Case) -> list[Any]:
    """The kernels of attention that a case is compiled to."""
    import opmill_kernel_gen_triton.generator as made

    found: list[Any] = []
    build = made.TritonKernelGenerator.build

    def noted(self: Any, kernels: Any, options: Any, store: Any) -> Any:
        found.extend(k for k in kernels if k.attention is not None)
        return build(self, kernels, options, store)

    made.TritonKernelGenerator.build = noted  # type: ignore[method-assign]
    try:
        speed("", case, "opmill", True)
    finally:
        made.TritonKernelGenerator.build = build  # type: ignore[method-assign]
    return list(dict.fromkeys(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("right", "speed", "tiles"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compilers", default="opmill,torch")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "tiles":  # kernels are seen where they are built
        os.environ["OPMILL_CACHE_DIR"] = tempfile.mkdtemp()
    table = RIGHT if options.what == "right" else SPEED
    for name in options.names or (list(table)[:2] if options.what == "tiles" else table):
        compilers = options.compilers.split(",") if options.what == "speed" else ["opmill"]
        for compiler in compilers:
            try:
                if options.what == "tiles":
                    rows = tiles(name, table[name])
                else:
                    rows = [right(name, table[name]) if options.what == "right" else speed(name, table[name], compiler, options.once)]
            except Exception as error:  # one that fails is a row
                rows = [{"case": name, "compiler": compiler, "failed": f"{type(error).__name__}: {error}"[:400]}]
            for row in filter(None, rows):
                print(json.dumps(row), flush=True)
            torch.compiler.reset() if compiler == "torch" else None
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
