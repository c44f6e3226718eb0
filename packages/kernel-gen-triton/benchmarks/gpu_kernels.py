"""Generated kernels on a GPU: are they right, and how fast do they move memory?

    python benchmarks/gpu_kernels.py [--cases] [--speed] [--json FILE] [--check-every N]

``--cases`` runs every case of the shared table (as generated, and with every reduction split) on CUDA tensors against the reference
interpreter; under compute-sanitizer it is the memory check. ``--speed`` prints time and bandwidth of large kernels, next to the bandwidth
of a copy and to eager. Without either, both. The exit status is 1 where a case is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops import ir
from opmill_graph_ir.loops.cases import Case, axes, cases, cast, numel, op, row_major
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_kernel_gen_triton.debug import difference
from opmill_kernel_gen_triton.generator import TritonKernelGenerator
from opmill_kernel_gen_triton.tiling import Budget
from opmill_runtime_cache.executor import cuda
from opmill_runtime_cache.executor.kernels import CudaKernel, kernel_entry
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

SPLITS = Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2)
OPTIONS = GeneratorOptions("cuda:0")


class Launcher:
    """Runs built kernels of a store on tensors by buffer name."""

    def __init__(self, store: Store) -> None:
        self.store, self.error = store, torch.zeros(1, dtype=torch.int32, device="cuda")
        self.loaded: dict[str, CudaKernel] = {}

    def run(self, kernel: ir.LoopKernel, ref: KernelRef, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> int:
        """Waits; 0, or 1 + the number of the check that failed."""
        return cuda.run(self._entry(ref), 0, [buffers[b.name].data_ptr() for b in kernel.buffers], sizes)

    def start(self, kernel: ir.LoopKernel, ref: KernelRef, buffers: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The scratch block, which must outlive what runs."""
        return cuda.start(self._entry(ref), 0, [buffers[b.name].data_ptr() for b in kernel.buffers], (), self.error)

    def _entry(self, ref: KernelRef) -> CudaKernel:
        if ref.key not in self.loaded:
            self.loaded[ref.key] = kernel_entry(ref, self.store)  # type: ignore[assignment]
        return self.loaded[ref.key]


# ---- correctness -------------------------------------------------------------------------------------------------------------------


def check_cases(every: int) -> list[str]:
    wrong = []
    for label, budget, shift in (("plain", Budget(), 0), ("misaligned", Budget(), 1), ("split", SPLITS, 0)):
        generator = TritonKernelGenerator(budget=budget)
        table = [c for c in cases() if generator.claims(c.kernel, OPTIONS) is None][::every]
        store = Store(tempfile.mkdtemp(prefix="opmill-gpu-"))
        start = time.perf_counter()
        refs = generator.build([c.kernel for c in table], OPTIONS, store)
        built = time.perf_counter() - start
        launcher = Launcher(store)
        found = [f"{label}: {d}" for c, r in zip(table, refs, strict=True) if (d := disagreement(launcher, c, r, shift)) is not None]
        print(f"{label:>10}: {len(table)} cases, built in {built:.1f} s, {len(found)} wrong", flush=True)
        wrong += found
    return wrong


def disagreement(launcher: Launcher, case: Case, ref: KernelRef, shift: int) -> str | None:
    """``shift``: elements by which every buffer is moved from where the allocator put it."""
    host, exact = case.buffers(), case.buffers()
    exact = {n: t.double() if t.dtype == torch.float32 else t for n, t in exact.items()}
    expected = evaluate(case.kernel, exact, case.sizes, wide=True)
    memory = {n: torch.cat([t.new_zeros(shift), t]).cuda()[shift:] for n, t in host.items()}
    code = launcher.run(case.kernel, ref, memory, case.sizes)
    if code != expected:
        return f"{case.name}: returned {code}, not {expected}"
    if code:
        return None
    for name, tensor in memory.items():
        if (text := difference(tensor.cpu(), exact[name], case.rtol)) is not None:
            return f"{case.name}: {name}: {text}"
    return None


# ---- bandwidth ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """A large kernel: the bytes it must move, and the same in eager (inputs in the order of the kernel's ``in`` buffers)."""

    kernel: ir.LoopKernel
    bytes: int
    eager: Callable[..., object]


def _kernel(name: str, ins: dict[str, tuple[str, ir.Index]], out: tuple[str, ir.Index], outer, phases) -> ir.LoopKernel:
    buffers = [ir.Buffer(n, d, "in", m) for n, (d, m) in ins.items()]
    return ir.LoopKernel(name, (*buffers, ir.Buffer("out", out[0], "out", out[1])), (ir.Nest(outer, phases, name),))


def speed_table(dtype: str) -> Iterator[Load]:
    size = getattr(torch, dtype).itemsize
    rows, columns = 1 << 16, 4096
    i, j = axes(i=rows), axes(j=columns)
    where, n = row_major((*i, *j)), index(rows * columns)
    x = cast(ir.Load("a", where, dtype), "float32")

    def out(v: ir.Expr, at=where) -> ir.Store:
        return ir.Store("out", at, cast(v, dtype))

    flat = axes(i=rows * columns)
    xf = cast(ir.Load("a", index("i"), dtype), "float32")
    half = op(
        "mul",
        op("mul", ir.Const(0.5, "float32"), xf),
        op("add", ir.Const(1.0, "float32"), op("erf", op("mul", xf, ir.Const(math.sqrt(0.5), "float32")))),
    )
    phases = (ir.Phase(stores=(out(half, index("i")),)),)
    yield Load(_kernel("gelu", {"a": (dtype, n)}, (dtype, n), flat, phases), 2 * size * rows * columns, torch.nn.functional.gelu)

    e = op("exp", op("sub", x, ir.Ref("m", "float32")))
    phases = (
        ir.Phase(j, reductions=(ir.Reduction(("m",), "max", x, "float32"),)),
        ir.Phase(j, reductions=(ir.Reduction(("s",), "sum", e, "float32"),)),
        ir.Phase(j, stores=(out(op("div", e, ir.Ref("s", "float32"))),)),
    )
    yield Load(
        _kernel("softmax", {"a": (dtype, n)}, (dtype, n), i, phases), 2 * size * rows * columns, lambda a: a.view(rows, columns).softmax(1)
    )

    variance = op("div", ir.Ref("q", "float32"), ir.Const(float(columns), "float32"))
    scale = ir.Let("z", op("rsqrt", op("add", variance, ir.Const(1e-5, "float32"))))
    w = cast(ir.Load("w", index("j"), dtype), "float32")
    y = op("mul", op("mul", op("sub", x, ir.Ref("m", "float32")), ir.Ref("z", "float32")), w)
    phases = (
        ir.Phase(j, reductions=(ir.Reduction(("m", "q"), "welford", x, "float32"),)),
        ir.Phase(lets=(scale,)),
        ir.Phase(j, stores=(out(y),)),
    )
    ins = {"a": (dtype, n), "w": (dtype, index(columns))}
    yield Load(
        _kernel("layernorm", ins, (dtype, n), i, phases), 2 * size * rows * columns,
        lambda a, w: torch.nn.functional.layer_norm(a.view(rows, columns), (columns,), w),
    )  # fmt: skip

    down = cast(ir.Load("a", index("j") * columns + "i", dtype), "float32")
    c, r = axes(i=columns), axes(j=rows)
    phases = (
        ir.Phase(r, reductions=(ir.Reduction(("s",), "sum", down, "float32"),)),
        ir.Phase(stores=(out(ir.Ref("s", "float32"), index("i")),)),
    )
    yield Load(
        _kernel("column_sum", {"a": (dtype, n)}, (dtype, index(columns)), c, phases),
        size * rows * columns,
        lambda a: a.view(rows, columns).sum(0),
    )

    total = cast(ir.Load("a", index("j"), dtype), "float32")
    phases = (
        ir.Phase(axes(j=rows * columns), reductions=(ir.Reduction(("s",), "sum", total, "float32"),)),
        ir.Phase(stores=(out(ir.Ref("s", "float32"), index(0)),)),
    )
    yield Load(_kernel("full_sum", {"a": (dtype, n)}, (dtype, index(1)), (), phases), size * rows * columns, lambda a: a.sum())

    side = 1 << 14
    d = axes(i=side, j=side)
    t = cast(ir.Load("a", index("j") * side + "i", dtype), "float32")
    b = cast(ir.Load("b", row_major(d), dtype), "float32")
    ins = {"a": (dtype, numel(d)), "b": (dtype, numel(d))}
    yield Load(
        _kernel("transposed_add", ins, (dtype, numel(d)), d, (ir.Phase(stores=(out(op("add", t, b), row_major(d)),)),)),
        3 * size * side * side, lambda a, b: a.view(side, side).t() + b.view(side, side),
    )  # fmt: skip


def seconds(run: Callable[[], object], repeats: int = 20) -> float:
    """The median of several runs, by events."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[repeats // 2]


def copy_bandwidth() -> float:
    """Bytes a second that a large copy reads and writes."""
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(block)
    return 2 * block.numel() / seconds(lambda: target.copy_(block))


def measured(load: Load, dtype: str, generator: TritonKernelGenerator, launcher: Launcher, copy: float) -> dict[str, object]:
    [ref] = generator.build([load.kernel], OPTIONS, launcher.store)
    memory = {b.name: torch.randn(b.numel.evaluate({}), device="cuda").to(getattr(torch, b.dtype)) for b in load.kernel.buffers}
    inputs = [memory[b.name] for b in load.kernel.buffers if b.role == "in"]
    ours = seconds(lambda: launcher.start(load.kernel, ref, memory))
    worst = float((memory["out"].float() - load.eager(*inputs).reshape(-1).float()).abs().max())  # type: ignore[attr-defined]
    eager = seconds(lambda: load.eager(*inputs))
    row = {
        "kernel": load.kernel.name,
        "dtype": dtype,
        "us": ours * 1e6,
        "bytes_per_s": load.bytes / ours,
        "of_copy": load.bytes / ours / copy,
    }
    return {**row, "eager_us": eager * 1e6, "largest_difference": worst}


def measure() -> list[dict[str, object]]:
    launcher, generator = Launcher(Store(tempfile.mkdtemp(prefix="opmill-gpu-"))), TritonKernelGenerator()
    copy = copy_bandwidth()
    print(
        f"copy: {copy / 1e9:.0f} GB/s\n{'kernel':>16} {'type':>9} {'us':>9} {'GB/s':>7} {'of copy':>8} {'eager us':>9} {'differs by':>10}"
    )
    rows = []
    for dtype in ("float32", "bfloat16"):
        for load in speed_table(dtype):
            row = measured(load, dtype, generator, launcher, copy)
            rows.append(row)
            us, rate = row["us"], row["bytes_per_s"] / 1e9  # type: ignore[operator]
            print(
                f"{row['kernel']:>16} {dtype:>9} {us:9.1f} {rate:7.0f} {row['of_copy']:8.1%} {row['eager_us']:9.1f} "
                f"{row['largest_difference']:10.2g}"
            )
            torch.cuda.empty_cache()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check-every", type=int, default=1)
    chosen = parser.parse_args()
    both = not (chosen.cases or chosen.speed)
    wrong = check_cases(chosen.check_every) if chosen.cases or both else []
    print("\n".join(wrong))
    rows = measure() if chosen.speed or both else []
    if chosen.json:
        chosen.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "wrong": wrong, "speed": rows}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
