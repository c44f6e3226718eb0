"""Random programs over tensor subclasses, compiled against eager: results, what is written, memory that is shared, gradients.

python benchmarks/fuzz_wrappers.py --first 0 --count 500 [--backend opmill|eager] [--dynamic]"""

from __future__ import annotations

import argparse
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import opmill
from random_wrappers import Pair, Program, differences, memories, program


@dataclass
class Verdict:
    """``kind``: right, refused, wrong, crash, or skipped where eager fails. ``broken``: how many graph breaks there were."""

    program: Program
    kind: str
    detail: str = ""
    broken: int = 0


def verdicts(seeds: range, *, backend: Any = "native", dynamic: bool | None = False) -> Iterator[Verdict]:
    for seed in seeds:
        yield verdict(program(seed), backend, dynamic)


def verdict(given: Program, backend: Any, dynamic: bool | None) -> Verdict:
    sizes = (4, 6, 5) if dynamic else (4, 4)
    other = given.seed % 3 == 0
    try:
        expected = [run(given.function, given.inputs(n), other) for n in sizes]
    except Exception as error:
        return Verdict(given, "skipped", f"{type(error).__name__}: {error}")
    more = {} if backend == "native" else {"backend": backend}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            function = given.function
            compiled = opmill.compile(function, dynamic=dynamic, **more)
            for n, wanted in zip(sizes, expected, strict=True):
                got = run(compiled, given.inputs(n), other)
                if detail := next(filter(None, (differences(g, e, name) for name, g, e in zip(NAMES, got, wanted, strict=True))), ""):
                    return Verdict(given, "wrong", f"{detail} (n={n})")
            broken = len(opmill.explain(compiled)(*given.inputs()).breaks)
        except Exception as error:
            if other and "GI063" in str(error):
                return Verdict(given, "refused", str(error))
            return Verdict(given, "crash", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    if uncompiled := [str(w.message) for w in said if "operators" in str(w.message) or "OM0" in str(w.message)]:
        return Verdict(given, "refused", uncompiled[0], broken)
    return Verdict(given, "right", "", broken)


NAMES = ("result", "inputs", "memory", "gradients")


def run(function: Any, inputs: list[Any], other: bool = False) -> tuple[Any, ...]:
    """Results, inputs afterwards, what shares memory, gradients; ``other``: for gradients of the results that have other metadata."""
    results = function(*inputs)
    shared = memories((inputs, results))
    with torch.no_grad():
        kept = [x.detach().clone() for x in inputs]
    floats = [r for r in torch.utils._pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    gradients: Any = ()
    if floats and wanted:
        gradients = torch.autograd.grad(
            floats, wanted, grad_outputs=[tagged(torch.cos(r.detach()), other) for r in floats], allow_unused=True
        )
        gradients = [None if g is None else g + 0 for g in gradients]  # whether they are expanded is not compared
    return results, kept, shared, gradients


def tagged(gradient: Any, other: bool) -> Any:
    """A gradient, with another tag than the output has where ``other``."""
    return Pair(gradient.a, tagged(gradient.b, other), 7) if other and isinstance(gradient, Pair) else gradient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--backend", default="native")
    parser.add_argument("--dynamic", action="store_true")
    given = parser.parse_args()
    kinds: Counter[str] = Counter()
    for found in verdicts(range(given.first, given.first + given.count), backend=given.backend, dynamic=given.dynamic or False):
        kinds[found.kind] += 1
        kinds["with breaks"] += bool(found.broken)
        if found.kind in ("wrong", "crash", "refused"):
            print(
                f"---- seed {found.program.seed}: {found.kind}: {found.detail}\n{found.program.kinds}\n{found.program.source}", flush=True
            )
    print(dict(kinds))


if __name__ == "__main__":
    main()
