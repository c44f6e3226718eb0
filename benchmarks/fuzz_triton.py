"""Random programs compiled as for a GPU, their kernels interpreted on a processor, against eager.

``python benchmarks/fuzz_triton.py [--seed 0] [--count 1000] [--only SEED] [--show]``

The graphs are told that their tensors are on a GPU until there is a plan; the plan is told that they are not. So what only GPUs are given (layouts,
nests as they are split, tiled and packed there) is run without one. A third of the programs each is written for an H200, for a machine so small that
every row is walked in steps, and for one so large that every reduction is split. About three programs a second.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch

from fuzz_graphs import Verdict, check, fuzz, graph_of
from opmill_fake_tensors import FakeTensorError
from opmill_graph_ir.backend import CompiledGraph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.compiling import compile_plan
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.report import Report
from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import InterpretedKernels
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.plan import parse, render
from opmill_runtime_cache.store import Store
from random_graphs import Program, random_program

GPU = "cuda:0"
LOOPS = Budget(processors=1, tile=64, longest=8, values=8)
SPLITS = Budget(processors=1000, tile=64, longest=8, values=8, chunk=8, steps=2)
WAYS = tuple(InterpretedKernels(budget) for budget in (Budget(), LOOPS, SPLITS))


def as_for_gpu(program: Program, inputs: Sequence[Any], store: Store) -> Any:
    """The program compiled for a GPU, to run without one, or the verdict where it could not be."""
    try:
        gm = graph_of(program)
        graph = functionalize(gm, inputs)
        graph.metas = {name: replace(meta, device=GPU) for name, meta in graph.metas.items()}
        report = Report()
        numerics = "eager" if program.seed % 2 else "default"
        plan = compile_plan(graph, GraphOptions(verify=True, cache=False, numerics=numerics), store, [WAYS[program.seed % len(WAYS)]], report)
        plan = parse(render(plan).replace(GPU, "cpu"))
        return CompiledGraph(bind(plan, graph.held_tensors, store), plan, report.counted(plan), gm)
    except (GraphError, FakeTensorError) as e:
        return Verdict(program, "refused", str(e).splitlines()[0][:200])
    except Exception:
        return Verdict(program, "crash", traceback.format_exc(limit=-4))


def verdicts(seeds: Sequence[int], store: Store, batch: int = 1) -> Iterator[Verdict]:
    """Checks the programs of ``seeds``."""
    with numpy.errstate(all="ignore"):
        for seed in seeds:
            yield check(random_program(seed), store, as_for_gpu)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    raise SystemExit(fuzz(__doc__, verdicts, 1, lambda program: program.inputs))
