"""Random programs compiled as for a GPU, their kernels interpreted on a processor, against eager.

``python benchmarks/fuzz_triton.py [--seed 0] [--count 1000] [--only SEED] [--show]``

So what only GPUs are given (layouts, nests as they are split, tiled and packed there) is run without one. A third of the programs each is
written for an H200, for a machine so small that every row is walked in steps, and for one so large that every reduction is split. About
three programs a second.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch

from fuzz_graphs import Verdict, check, failed, fuzz, graph_of
from opmill_graph_ir.backend import CompiledGraph
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import OPTIONS, as_for_gpu
from opmill_runtime_cache.store import Store
from random_graphs import Program, random_program

BUDGETS = (
    Budget(),
    Budget(processors=1, tile=64, longest=8, values=8),
    Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2),
)


def compiled(program: Program, inputs: Sequence[Any], store: Store) -> Any:
    """The program compiled for a GPU, to run without one, or the verdict where it could not be."""
    gm, numerics = graph_of(program), "eager" if program.seed % 2 else "default"
    try:
        run, plan, report = as_for_gpu(gm, inputs, BUDGETS[program.seed % len(BUDGETS)], replace(OPTIONS, numerics=numerics))
        return CompiledGraph(run, plan, report.counted(plan), gm)
    except Exception as error:
        return failed(program, error)


def verdicts(seeds: Sequence[int], store: Store, batch: int = 1) -> Iterator[Verdict]:
    """Checks the programs of ``seeds``."""
    with numpy.errstate(all="ignore"):
        for seed in seeds:
            yield check(random_program(seed), store, compiled)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    raise SystemExit(fuzz(__doc__, verdicts, 1, lambda program: program.inputs))
