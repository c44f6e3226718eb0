"""Random programs compiled for symbolic sizes at one set of sizes, and run at others, against eager.

``python benchmarks/fuzz_sizes.py [--seed 0] [--count 1000] [--batch 40] [--only SEED]``

Some dimensions of the inputs are symbols. What the compiler assumed of them is asked for: a run at sizes that satisfy it must give what
eager gives, and at the sizes of the capture it must be satisfied.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fuzz_graphs import Verdict, compiled, exactly, fuzz, graph_of, judged, kernels_of, meant_strides, prepare
from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Index, Sizes, index
from opmill_runtime_cache.store import Store
from random_graphs import Program, copied, filled, random_program

CHOICES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 40)


@dataclass
class Symbolic:
    """A program with symbols for some sizes of its inputs: ``symbols[k][d]`` names that of dimension ``d`` of input ``k``."""

    program: Program
    symbols: list[dict[int, str]]
    hints: dict[str, int]

    def captured(self) -> tuple[Sizes, list[Any]]:
        """An environment, and inputs to compile with."""
        sizes = Sizes()
        for name, hint in self.hints.items():
            sizes.new(hint, name=name)
        context = FakeContext(sizes)
        made = []
        for x, own in zip(copied(self.program.inputs), self.symbols, strict=True):
            made.append(context.from_tensor(x, {d: index(n) for d, n in own.items()}) if own else x)
        return sizes, made

    def inputs(self, values: dict[str, int], fakes: Sequence[Any], seed: int) -> list[torch.Tensor]:
        """Real inputs of these sizes, laid out as the captured ones."""
        r, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        out = []
        for x, own, fake in zip(copied(self.program.inputs), self.symbols, fakes, strict=True):
            if not own:
                out.append(x)
                continue
            shape = [values[own[d]] if d in own else n for d, n in enumerate(x.shape)]
            strides = [_value(s, values) for s in fake.stride()]
            span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            out.append(filled([max(span, 0)], x.dtype, r, generator).as_strided(shape, strides))
        return out


def _value(n: Any, values: dict[str, int]) -> int:
    return int(n.node.expr.evaluate(values)) if isinstance(n, torch.SymInt) else int(n)


def symbolic_program(seed: int) -> Symbolic:
    """The program of a seed, some of its sizes symbols; equal sizes may share one."""
    program = random_program(seed, symbolic=True)
    r = random.Random(seed + 1)
    by_size: dict[int, list[str]] = {}
    hints: dict[str, int] = {}
    symbols: list[dict[int, str]] = []
    storages = [x.untyped_storage()._cdata for x in program.inputs]
    for x in program.inputs:
        own: dict[int, str] = {}
        alone = storages.count(x.untyped_storage()._cdata) == 1
        for d, n in enumerate(x.shape):
            if alone and n >= 2 and x.stride(d) > 0 and r.random() < 0.7:
                known = by_size.setdefault(n, [])
                if not known or r.random() < 0.3:
                    known.append(f"s{len(hints)}")
                    hints[known[-1]] = n
                own[d] = r.choice(known)
        symbols.append(own)
    return Symbolic(program, symbols, hints)


def check(made: Symbolic, store: Store) -> Verdict:
    """Compiles a program and compares runs of it with eager's. ``detail`` of a right one: at how many sizes it ran."""
    program = made.program
    sizes, fakes = made.captured()
    run = compiled(program, fakes, store)
    if isinstance(run, Verdict):
        return run
    if not sizes.holds(made.hints):
        return Verdict(program, "wrong", f"the sizes at hand break {[str(d) for d in sizes.decisions]}")
    ran = 0
    for values in [made.hints, *_others(made, sizes)]:
        problem = _difference(made, run.executable, values, fakes)
        if problem:
            said = "; ".join(map(str, sizes.decisions))
            return Verdict(
                program, "wrong", f"{problem}\n#   at {values}, compiled at {made.hints}, symbols {made.symbols}, assuming {said}"
            )
        ran += 1
    return Verdict(program, "operators" if run.report.operators_only else "right", str(ran - 1))


def _others(made: Symbolic, sizes: Sizes, count: int = 3) -> Iterator[dict[str, int]]:
    """Other sizes that satisfy what was assumed."""
    r = random.Random(made.program.seed + 2)
    tied = {n: r for n, r in ((n, sizes.simplify(index(n))) for n in made.hints) if r != index(n)}
    for _ in range(60):
        values = {n: r.choice(CHOICES) for n in made.hints}
        values.update({n: by.evaluate(values) for n, by in tied.items() if isinstance(by, Index)})
        if sizes.holds(values):
            yield values
            count -= 1
            if not count:
                return


def _difference(made: Symbolic, run: Any, values: dict[str, int], fakes: Sequence[Any]) -> str:
    theirs, ours = (made.inputs(values, fakes, made.program.seed) for _ in range(2))
    program = made.program
    before = copied(theirs)
    try:
        want = program.function()(*theirs)
    except Exception:
        return ""  # numbers in the program do not fit these sizes
    try:
        got = run(*ours)
    except Exception:
        return "crash: " + traceback.format_exc(limit=-3)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if (g.dtype, g.shape) != (w.dtype, w.shape) or meant_strides(g) != meant_strides(w):
            return f"output {k}: {g.dtype}{list(g.shape)} {g.stride()} instead of {w.dtype}{list(w.shape)} {w.stride()}"
    return judged(program, before, ([*got], ours), ([*want], theirs), exactly(program, before))


def verdicts(seeds: Sequence[int], store: Store, batch: int = 40) -> Iterator[Verdict]:
    """Checks the programs of ``seeds``."""
    for start in range(0, len(seeds), batch):
        programs = [symbolic_program(s) for s in seeds[start : start + batch]]
        prepare((k for p in programs for k in kernels_of(partial(graph_of, p.program), lambda p=p: p.captured()[1])), store)
        for program in programs:
            yield check(program, store)


def main() -> int:
    torch.set_grad_enabled(False)
    sizes = 0

    def counted(seeds: Sequence[int], store: Store, batch: int) -> Iterator[Verdict]:
        nonlocal sizes
        for v in verdicts(seeds, store, batch):
            sizes += int(v.detail) if v.kind in ("right", "operators") else 0
            yield v

    failed = fuzz(__doc__, counted, 40, lambda program: program.inputs)
    print(f"{sizes} runs at other sizes")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
