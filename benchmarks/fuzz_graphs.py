"""Random programs through the whole compiler, against eager: values, types, shapes, strides, shared memory, written inputs.

``python benchmarks/fuzz_graphs.py [--seed 0] [--count 1000] [--batch 40] [--only SEED] [--show]``

Kernels of a batch of programs are built together. A disagreement is printed with the program's source and its seed.
"""

from __future__ import annotations

import argparse
import operator
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from opmill_fake_tensors import FakeTensorError
from opmill_graph_ir.backend import CompiledGraph, compile_graph, installed_generators
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.schedule.steps import schedule
from opmill_runtime_cache.store import Store
from random_graphs import Program, copied, is_float, key, random_program
from shaken import Results, excused

RTOL = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


class _Proxy(torch.fx.Proxy):
    def __setitem__(self, at: object, value: object) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, at, value), {})

    def __getattr__(self, name: str) -> torch.fx.Proxy:
        if name not in ("real", "imag", "mT"):
            return super().__getattr__(name)
        return self.tracer.create_proxy("call_function", getattr, (self, name), {})  # a tensor, which may be written


class _Tracer(torch.fx.Tracer):
    """Also records assignments to items."""

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)


class _Factories:
    """``torch`` with factory functions whose results are values of the graph, though no argument is: else what is written to them would be
    lost."""

    _MADE = ("arange", "ones", "eye", "linspace")

    def __init__(self, tracer: torch.fx.Tracer) -> None:
        self.tracer = tracer

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        return partial(self._made, found) if name in self._MADE else found

    def _made(self, function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.fx.Proxy:
        return self.tracer.create_proxy("call_function", function, args, kwargs)


def graph_of(program: Program) -> torch.fx.GraphModule:
    tracer = _Tracer()
    graph = tracer.trace(program.function(namespace=_Factories(tracer)))
    return torch.fx.GraphModule(tracer.root, graph)


class Case(Protocol):
    """What is made of a seed, and judged."""

    @property
    def seed(self) -> int: ...

    @property
    def source(self) -> str: ...

    @property
    def inputs(self) -> list[torch.Tensor]: ...


@dataclass
class Verdict:
    """``kind``: "right", "operators" (right without kernels), "refused", "skipped" (by eager), "crash" or "wrong"."""

    program: Case
    kind: str
    detail: str = ""


def kernels_of(gm: Callable[[], torch.fx.GraphModule], inputs: Callable[[], Sequence[Any]]) -> list[LoopKernel]:
    """The kernels that a program needs; none where it is refused."""
    try:
        return schedule(lower(functionalize(gm(), inputs()))).kernels()
    except Exception:
        return []


def prepare(kernels: Iterable[LoopKernel], store: Store) -> None:
    """Builds the kernels of many programs together."""
    settings = GeneratorOptions()
    for generator in installed_generators()[:1]:
        claimed = [k for k in dict.fromkeys(kernels) if generator.claims(k, settings) is None]
        try:
            generator.build(claimed, settings, store)
        except Exception:
            for kernel in claimed:
                try:
                    generator.build([kernel], settings, store)
                except Exception:
                    continue


def compiled(program: Program, inputs: Sequence[Any], store: Store) -> Any:
    """The program compiled for inputs like these, or the verdict where it could not be."""
    try:
        return compile_graph(graph_of(program), inputs, options=GraphOptions(verify=True, cache=False), store=store)
    except Exception as error:
        return failed(program, error)


def failed(program: Case, error: Exception) -> Verdict:
    """What an error says of the compiler: that it refuses a program, or that it is wrong."""
    if isinstance(error, (GraphError, FakeTensorError)):
        bug = any(n in str(error) for n in ("GI040", "GI041"))
        return Verdict(program, "crash" if bug else "refused", str(error).splitlines()[0][:200])
    return Verdict(program, "crash", "".join(traceback.format_exception(error, limit=-4)))


def check(program: Program, store: Store, compiled: Callable[[Program, Sequence[Any], Store], Any] = compiled) -> Verdict:
    """Compiles a program and compares a run of it with eager's."""
    theirs, ours = copied(program.inputs), copied(program.inputs)
    eager = program.function()
    want = eager(*theirs)
    run = compiled(program, ours, store)
    if isinstance(run, Verdict):
        return run
    try:
        got = run(*ours)
        again = run(*copied(program.inputs))
    except Exception as error:
        return failed(program, error)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if problem := _layout(g, w, ours, theirs):
            return Verdict(program, "wrong", f"output {k}: {problem}")
    exact = exactly(program, program.inputs)
    for gave in (got, again):
        if problem := judged(program, program.inputs, ([*gave], ours), ([*want], theirs), exact):
            return Verdict(program, "wrong", problem)
    return Verdict(program, "operators" if isinstance(run, CompiledGraph) and run.report.operators_only else "right")


def exactly(program: Program, inputs: Sequence[torch.Tensor]) -> Results | None:
    """What eager gives in float64; None where it refuses."""
    wide = copied(list(inputs), torch.float64)
    try:
        return list(program.function(torch.float64)(*wide)), wide
    except Exception:
        return None


def judged(program: Program, inputs: Sequence[torch.Tensor], got: Results, want: Results, exact: Results | None) -> str:
    """What is wrong with the values that a run on ``inputs`` gave, beside eager's; what is as right as eager's where rounding matters much
    is not."""
    settle = None
    for part, what in enumerate(("output {}", "input {} afterwards")):
        for k, (g, w) in enumerate(zip(got[part], want[part], strict=True)):
            rough, precise = program.rough[part][k], exact and exact[part][k]
            if unlike(g, w, rough, precise):
                settle = settle or excused(program, inputs, want)
                if problem := unlike(settle(g, part, k), w, rough, precise):
                    return f"{what.format(k)}: {problem}"
    return ""


def _layout(g: torch.Tensor, w: torch.Tensor, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> str:
    if (g.dtype, g.shape) != (w.dtype, w.shape):
        return f"{g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}"
    if meant_strides(g) != meant_strides(w):
        return f"strides {g.stride()} instead of {w.stride()} of sizes {list(w.shape)}"
    shared = [key(g) == key(o) for o in ours], [key(w) == key(t) for t in theirs]
    if shared[0] != shared[1]:
        return f"shares memory with inputs {shared[0]} instead of {shared[1]}"
    if any(shared[0]) and g.storage_offset() != w.storage_offset():
        return f"offset {g.storage_offset()} instead of {w.storage_offset()}"
    return ""


def meant_strides(x: torch.Tensor) -> tuple[int, ...]:
    """The strides that say where an element lies."""
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n != 1) if x.numel() else ()


def unlike(g: torch.Tensor, w: torch.Tensor, rough: torch.dtype, exact: torch.Tensor | None) -> str:
    """What is wrong with ``g``, which is ``w`` in eager and passed through ``rough``."""
    if w.is_complex():
        return _complex_values(g, w, rough, exact)
    if not is_float(w):
        return "" if torch.equal(g, w) else f"{g.flatten()[:8].tolist()} instead of {w.flatten()[:8].tolist()}"
    mine, eager = g.double(), w.double()
    if exact is not None and exact.shape == w.shape:
        near = (mine - exact.double()).abs() <= 0.5 * exact.double().abs()  # a rounding in between moves much of what is as large as this
        meant = torch.where(near, mine, exact.double())
        eager = torch.where(
            eager.isinf() & mine.isfinite() & exact.isfinite(), meant, eager
        )  # sums that overflow in eager's order may not in another
    finite = eager.isfinite() & mine.isfinite()
    largest = float(eager[finite].abs().max()) if bool(finite.any()) else 0.0
    slack = 0.0
    if exact is not None and exact.shape == w.shape:
        off = (exact.double() - eager)[finite].abs()
        slack = 4 * float(off[off.isfinite()].max()) if bool(off.isfinite().any()) else 0.0
    allowed = (
        max(RTOL[w.dtype], 4 * torch.finfo(rough).eps) * (largest + eager.abs() + 0.05) + slack
    )  # sums that cancel have digits of what was summed
    wrong = ((mine - eager).abs() > allowed) & finite
    other = ~finite & ~((mine == eager) | (mine.isnan() & eager.isnan()))
    if exact is not None and exact.shape == w.shape:
        other &= ~((eager - exact.double()).abs() > 0.5 * eager.abs())  # beside a pole, eager has no digit right either
        other &= ~(eager.isnan() & mine.isfinite() & exact.isfinite())  # remainders of numbers far apart
        rounded = exact.to(w.dtype).double()
        other &= ~(
            (mine == rounded) | (mine.isnan() & rounded.isnan())
        )  # overflows and gradients at NaN, which eager's kernels see or not by place in memory
    bad = wrong | other
    if not bool(bad.any()):
        return ""
    return f"at {bad.nonzero()[:3].tolist()}: {mine[bad][:5].tolist()} instead of {eager[bad][:5].tolist()} (allowed {slack:.2g})"


def _complex_values(g: torch.Tensor, w: torch.Tensor, rough: torch.dtype, exact: torch.Tensor | None) -> str:
    """Where a part is infinite or none, torch's own kernels differ in the other from one to the next."""
    if bool((lost := w.isfinite() & ~g.isfinite()).any()) and (
        exact is None or exact.shape != w.shape or bool((lost & exact.to(w.dtype).isfinite()).any())
    ):
        return f"{g[lost][:3].tolist()} instead of {w[lost][:3].tolist()}"
    known = w.isfinite() & g.isfinite()
    parts = [torch.view_as_real(torch.where(known, t, 0)) for t in (g, w, exact if exact is not None and exact.shape == w.shape else w)]
    return unlike(parts[0], parts[1], torch.float32 if rough.is_complex else rough, None if exact is None else parts[2])


def verdicts(seeds: Sequence[int], store: Store, batch: int = 40) -> Iterator[Verdict]:
    """Checks the programs of ``seeds``."""
    for start in range(0, len(seeds), batch):
        programs = [random_program(s) for s in seeds[start : start + batch]]
        prepare((k for p in programs for k in kernels_of(partial(graph_of, p), partial(copied, p.inputs))), store)
        for program in programs:
            yield check(program, store)


def fuzz(
    description: str | None,
    verdicts: Callable[[Sequence[int], Store, int], Iterator[Verdict]],
    batch: int,
    inputs_of: Callable[[Any], Sequence[torch.Tensor]],
) -> int:
    """The command line of a fuzzer: checks seeds, prints what is wrong with the program and why others were refused; 1 where something is
    wrong.

    ``batch``: how many programs have their kernels built together, if nothing else is said; ``inputs_of``: what is printed of a program's
    inputs."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--batch", type=int, default=batch)
    arguments.add_argument("--only", type=int, help="one seed")
    arguments.add_argument("--show", action="store_true", help="print the programs that are refused, too")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    seeds = [options.only] if options.only is not None else list(range(options.seed, options.seed + options.count))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for v in verdicts(seeds, Store(folder), options.batch):
            counts[v.kind] += 1
            if v.kind in ("refused", "skipped"):
                reasons[v.detail[:90] if v.kind == "refused" else f"{v.kind}: {v.detail[:90]}"] += 1
            if v.kind in ("crash", "wrong") or options.show or options.only is not None:
                inputs = "".join(
                    f"#   {x.dtype} {list(x.shape)} {x.stride()}{' requires grad' * x.requires_grad}\n" for x in inputs_of(v.program)
                )
                print(f"---- seed {v.program.seed}: {v.kind}: {v.detail}\n{inputs}{v.program.source}", flush=True)
    for detail, number in reasons.most_common(12):
        print(f"{number:5} {detail}")
    print(f"{dict(counts)} in {time.perf_counter() - start:.0f} s")
    return int(counts["crash"] + counts["wrong"] > 0)


def main() -> int:
    torch.set_grad_enabled(False)
    return fuzz(__doc__, verdicts, 40, lambda program: program.inputs)


if __name__ == "__main__":
    raise SystemExit(main())
