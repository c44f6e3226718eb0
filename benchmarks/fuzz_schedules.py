"""Random lowered programs, scheduled into fused nests: each kernel as built against the reference interpreter.

``python benchmarks/fuzz_schedules.py [--seed 0] [--count 1000] [--batch 60]``
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.loops.spec import complaints
from opmill_graph_ir.loops.text import show
from opmill_graph_ir.schedule.steps import schedule
from opmill_kernel_gen_cpp.debug import Runner, disagreement
from opmill_runtime_cache.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages/graph-ir/tests/schedule"))
from random_lowered import Maker

SIZES = ([1, 2, 3, 4, 6], [1, 2, 8, 16], [1, 5, 17, 33], [4, 8, 40], [1, 9, 100])


def kernels_of(seed: int) -> list[LoopKernel]:
    """The kernels of one random program."""
    r = random.Random(seed)
    maker = Maker(r, r.choice(SIZES))
    return schedule(maker.lowered(r.randint(1, 12))).kernels()


def problems(seeds: Sequence[int], store: Store, batch: int = 60) -> Iterator[tuple[LoopKernel, str]]:
    """Kernels that are illegal, or give another result than the interpreter."""
    seen: set[LoopKernel] = set()
    for start in range(0, len(seeds), batch):
        kernels = [k for k in dict.fromkeys(k for s in seeds[start : start + batch] for k in kernels_of(s)) if k not in seen]
        seen.update(kernels)
        runner = Runner(kernels, store)
        for kernel in kernels:
            illegal = list(complaints(kernel))
            case = Case("random", kernel, rtol=4096.0)
            found = "; ".join(illegal) or (disagreement(case, runner) and _beyond_rounding(case, runner))
            if found:
                yield kernel, found


def _beyond_rounding(case: Case, runner: Runner) -> str | None:
    """What remains of a disagreement with float64 when float32 is asked: values that cancel have no exact digits."""
    got, want = case.buffers(0), case.buffers(0)
    runner.run(case.kernel, got, case.sizes)
    evaluate(case.kernel, want, case.sizes)
    off = [name for name in got if not torch.allclose(got[name], want[name], rtol=1e-3, atol=1e-4, equal_nan=True)]
    return f"buffers {off} are off" if off else None


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--batch", type=int, default=60)
    options = arguments.parse_args()
    torch.set_grad_enabled(False)
    start, wrong = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for kernel, problem in problems(range(options.seed, options.seed + options.count), Store(folder), options.batch):
            wrong += 1
            print(f"---- {problem}\n{show(kernel)}", flush=True)
    print(f"{wrong} wrong of {options.count} programs in {time.perf_counter() - start:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
