"""Random chains of views through capture and lowering, against eager: values, strides, offsets, what shares memory, all of written memory.

``python benchmarks/fuzz_views.py [--seed 0] [--count 1000] [--how graph] [--only SEED]``

``--how``: ``graph`` captures and lowers the program as one graph and interprets its loops (thousands a minute); ``frontend`` has it read
from bytecode first; ``compile`` is ``opmill.compile`` with its kernels, ``dynamic`` the same for any sizes. Every sixth program is
differentiated. A disagreement is printed with the program's source and its seed; "refused" is left to torch's own operators, which is
right.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fuzz_graphs import graph_of, meant_strides
from opinfo import How, Interpreted
from opinfo import compiled as joined
from opmill_fake_tensors import FakeTensorError
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.ops.lower import lower
from random_views import Views, memory, random_views

HOW = ("graph", "frontend", "compile", "dynamic")


@dataclass
class Verdict:
    """``kind``: "right", "refused", "crash" or "wrong"."""

    program: Views
    kind: str
    detail: str = ""


@dataclass
class Ran:
    """A run: its results, its arguments as they are afterwards, and gradients."""

    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def weighted(x: torch.Tensor) -> torch.Tensor:
    """A scalar whose gradient differs from element to element, in integers."""
    flat = (torch.view_as_real(x) if x.is_complex() else x).reshape(-1)
    return (flat * torch.arange(1, flat.numel() + 1).to(flat.dtype)).sum()


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Also where both are NaN: integers read as floats."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def run(function: Callable[..., Sequence[torch.Tensor]], program: Views, inputs: list[torch.Tensor]) -> Ran:
    with torch.set_grad_enabled(program.grad):
        outputs = list(function(*inputs))
    wanted = [x for x in inputs if x.requires_grad]
    sums = [weighted(o) for o in outputs if o.requires_grad]
    gradients = list(torch.autograd.grad(sum(sums), wanted, allow_unused=True)) if sums else []  # type: ignore[arg-type]
    return Ran(outputs, inputs, gradients)


def arguments(program: Views) -> list[torch.Tensor]:
    made = program.make()
    return [x.requires_grad_() if program.grad and x.is_floating_point() else x for x in made]


def interpreted(gm: torch.fx.GraphModule, inputs: Sequence[Any], grad: bool) -> Callable[..., Any]:
    """What runs the loops of a graph as they are before they are scheduled."""
    if grad and any(x.requires_grad for x in inputs):
        return joined(gm, list(inputs), How(False, True), True)[0]  # type: ignore[no-any-return]
    with torch.no_grad():
        graph = functionalize(gm, inputs)
        if graph.offsets:
            assert all(inputs[k].storage_offset() == offset for k, offset in graph.beginnings())
        return Interpreted(lower(graph), graph.held_tensors)


def prepared(program: Views, how: str, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    if how == "graph":
        return interpreted(graph_of(program), inputs, program.grad)  # type: ignore[arg-type]
    import opmill

    if how == "frontend":

        def backend(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> Any:
            try:
                return interpreted(gm, examples, program.grad)
            except (GraphError, FakeTensorError):
                return gm.forward

        return opmill.compile(program.function(), backend=backend, dynamic=False)  # type: ignore[no-any-return]
    return opmill.compile(program.function(), dynamic=how == "dynamic")  # type: ignore[no-any-return]


def check(program: Views, how: str = "graph") -> Verdict:
    """One program, compiled and in eager."""
    try:
        want = run(program.function(), program, arguments(program))
    except RuntimeError:
        return Verdict(program, "skipped")
    try:
        ours = arguments(program)
        function = prepared(program, how, ours)
        got = run(function, program, ours)
    except (GraphError, FakeTensorError) as error:
        return Verdict(program, "refused", str(error).splitlines()[0])
    except Exception as error:
        return Verdict(program, "crash", "".join(traceback.format_exception(error, limit=-5)))
    problem = different(got, want, identity=how != "graph")
    return Verdict(program, "wrong" if problem else "right", problem)


def whole(x: torch.Tensor) -> torch.Tensor:
    """All of its memory."""
    return x.detach().as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)


def different(got: Ran, want: Ran, identity: bool) -> str:
    """What differs between two runs; empty where nothing does."""
    for k, (g, w) in enumerate(zip(got.outputs, want.outputs, strict=True)):
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"output {k}: {g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}"
        if meant_strides(g) != meant_strides(w):
            return f"output {k}: strides {g.stride()} instead of {w.stride()}"
        if g.requires_grad != w.requires_grad:
            return f"output {k}: requires_grad {g.requires_grad}"
        if not equal(g, w):
            return f"output {k}: {g.tolist()} instead of {w.tolist()}"
    for k, (g, w) in enumerate(zip(got.inputs, want.inputs, strict=True)):
        if not equal(whole(g), whole(w)):
            return f"input {k}: memory differs, {g.tolist()} instead of {w.tolist()}"
    mine, theirs = [*got.outputs, *got.inputs], [*want.outputs, *want.inputs]
    for j in range(len(mine)):
        for k in range(j):
            if (memory(mine[j]) == memory(mine[k])) != (memory(theirs[j]) == memory(theirs[k])):
                return f"tensors {k} and {j} of results and arguments: memory shared otherwise"
            if memory(mine[j]) == memory(mine[k]) and theirs[j].numel() and theirs[k].numel():
                starts = [
                    a.storage_offset() * a.itemsize - b.storage_offset() * b.itemsize
                    for a, b in ((mine[j], mine[k]), (theirs[j], theirs[k]))
                ]
                if starts[0] != starts[1]:
                    return f"tensors {k} and {j}: {starts[0]} bytes apart instead of {starts[1]}"
            if identity and (mine[j] is mine[k]) != (theirs[j] is theirs[k]):
                return f"tensors {k} and {j}: one object is two, or two are one"
    for k, (a, b) in enumerate(zip(got.gradients, want.gradients, strict=True)):
        if (a is None) != (b is None) or (a is not None and b is not None and not equal(a, b)):
            return f"gradient {k}: {a} instead of {b}"
    return ""


def verdicts(seeds: Iterable[int], how: str = "graph") -> Iterator[Verdict]:
    for seed in seeds:
        yield check(random_views(seed), how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--how", choices=HOW, default="graph")
    parser.add_argument("--only", type=int)
    parser.add_argument("--most", type=int, default=20, help="disagreements after which it stops")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)
    start, kinds, reasons, ran = time.perf_counter(), Counter[str](), Counter[str](), 0
    for verdict in verdicts(seeds, options.how):
        ran += 1
        kinds[verdict.kind] += 1
        if verdict.kind == "refused":
            reasons[verdict.detail.partition("\n")[0][:90]] += 1
        if verdict.kind in ("wrong", "crash") or options.only is not None:
            print(f"--- {verdict.kind} (seed {verdict.program.seed}): {verdict.detail}\n{verdict.program.source}", flush=True)
        if kinds["wrong"] + kinds["crash"] >= options.most:
            break
        if ran % 5000 == 0:
            print(f"{ran} programs: {dict(kinds)}, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{ran} programs: {dict(kinds)}, {time.perf_counter() - start:.0f} s")
    for reason, count in reasons.most_common(12):
        print(f"  {count:>6} {reason}")
    return int(bool(kinds["wrong"] or kinds["crash"]))


if __name__ == "__main__":
    raise SystemExit(main())
