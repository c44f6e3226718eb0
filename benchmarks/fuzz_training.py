"""Random programs with gradients, compiled, against eager: results, what requires grad, written inputs, gradients.

``python benchmarks/fuzz_training.py [--seed 0] [--count 1000] [--batch 20] [--only SEED]``
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz_graphs import Verdict, compiled, failed, fuzz, graph_of, meant_strides, prepare, unlike
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import schedule
from opmill_runtime_cache.store import Store
from random_graphs import FLOATS, Program, copied, is_float, random_program


class _Watched(TorchDispatchMode):
    """Under any mode eager's backward takes the formulas that hold for values that it cannot look at: of products, those without a
    division."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def inputs_of(program: Program, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """Copies of the inputs, of which most that may do require grad."""
    r = random.Random(program.seed)
    return [x.requires_grad_(is_float(x) and r.random() < 0.75) for x in copied(program.inputs, dtype)]


def trained(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Results, and the gradients of the inputs that require one, of their weighted sum."""
    results = list(fn(*inputs))
    if not any(r.requires_grad for r in results):
        return results, []
    return results, list(torch.autograd.grad(weighted(results), [x for x in inputs if x.requires_grad], allow_unused=True))


def weighted(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """A sum of all results with gradients that weighs each element otherwise, in the type of its result: so both ways are given the same
    gradients."""
    parts = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in results if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(p.numel(), 1), dtype=torch.float64)[: p.numel()].reshape(p.shape).to(p) for p in parts]
    return torch.stack([(p * w).double().sum() for p, w in zip(parts, weights, strict=True)]).sum()


def kernels_of(program: Program) -> list[LoopKernel]:
    """The kernels of both halves; none where the program is refused."""
    try:
        halves = partition(capture_joint(graph_of(program), inputs_of(program)))
        return [k for half in halves.graphs for k in schedule(lower(half)).kernels()]
    except Exception:
        return []


def check(program: Program, store: Store) -> Verdict:
    """Compiles a program and compares a run of it, and of its backward, with eager's. Programs that eager refuses are "skipped"."""
    theirs, ours = inputs_of(program), inputs_of(program)
    try:
        want, gradients = trained(program.function(), theirs)
    except RuntimeError as e:
        return Verdict(program, "skipped", str(e).splitlines()[0][:90])
    if not any(o.requires_grad for o in want):
        return Verdict(program, "skipped", "no result requires grad")
    run = compiled(program, ours, store)
    if isinstance(run, Verdict):
        return run
    try:
        got, found = trained(run, ours)
    except Exception as error:
        return failed(program, error)
    return (
        Verdict(program, "wrong", problem)
        if (problem := _problem(program, (got, found, ours), (want, gradients, theirs)))
        else Verdict(program, "right")
    )


def _again(program: Program) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """What eager gives when it is watched, and in float64; nothing of the latter where it refuses."""
    with _Watched():
        watched = inputs_of(program)
        second = (*trained(program.function(), watched), watched)
    wide = inputs_of(program, torch.float64)
    try:
        return second, (*trained(program.function(torch.float64), wide), wide)
    except Exception:
        return second, ([], [], [])


def _problem(program: Program, ours: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any]) -> str:
    second, exact = _again(program)
    leaves = [x for x in theirs[2] if x.requires_grad]
    roughest = max((d for part in program.rough for d in part if d in FLOATS), key=lambda d: torch.finfo(d).eps, default=torch.float64)
    if "digamma(" in program.source and roughest == torch.float64:
        roughest = torch.float32  # eager's trigamma has nine digits
    for what, mine, eager, also, reference in zip(("output", "gradient", "input"), ours, theirs, second, exact, strict=True):
        for k, (g, w) in enumerate(zip(mine, eager, strict=True)):
            if (g is None) != (w is None):
                return f"{what} {k}: {'none' if g is None else 'one'}, which eager has {'none' if w is None else 'one'} of"
            if w is None:
                continue
            same = (
                what == "gradient" or g.requires_grad == w.requires_grad
            )  # eager gives an empty input itself for its gradient behind cummax
            if (g.dtype, g.shape) != (w.dtype, w.shape) or not same:
                return f"{what} {k}: {g.dtype}{list(g.shape)} {g.requires_grad} instead of {w.dtype}{list(w.shape)} {w.requires_grad}"
            if what == "output" and meant_strides(g) != meant_strides(w):
                return f"{what} {k}: strides {g.stride()} instead of {w.stride()} of sizes {list(w.shape)}"
            if what == "gradient":
                g = torch.where(leaves[k].detach().isnan(), w, g)  # eager's kernels of one element see it otherwise than those of vectors
            best = reference[k].detach() if len(reference) > k and reference[k] is not None else None
            found = unlike(g.detach(), w.detach(), roughest, best)
            if found and (also[k] is None or unlike(g.detach(), also[k].detach(), roughest, best)):
                return f"{what} {k}{f' of a {leaves[k].dtype}' if what == 'gradient' else ''}: {found}"
    return ""


def verdicts(seeds: Sequence[int], store: Store, batch: int = 20) -> Iterator[Verdict]:
    """Checks the programs of ``seeds``."""
    for start in range(0, len(seeds), batch):
        with torch.no_grad():
            programs = [random_program(s) for s in seeds[start : start + batch]]
        prepare((k for p in programs for k in kernels_of(p)), store)
        for program in programs:
            yield check(program, store)


if __name__ == "__main__":
    raise SystemExit(fuzz(__doc__, verdicts, 20, inputs_of))
