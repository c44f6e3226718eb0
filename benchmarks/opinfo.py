"""Every operator of torch's sample database through capture and lowering, against eager.

``python benchmarks/opinfo.py [--dtypes float32,int64] [--ops add,cat] [--part 1/8] [--samples 8] [--processes 2] [--backward] [--backend]
[--form in-place] [--device cuda] [--json out.json]``

What an operator is counted as is the worst of its samples:

- ``lowered``: no call of a torch operator, so nothing but loops and views
- ``library``: no calls but of what nobody generates loops for (matrix products, convolutions, FFTs, decompositions of matrices), and loops
  around them in some sample
- ``bare``: such calls, and no loop in any sample
- ``call``: another torch operator is called
- ``refused``: stays with eager, as what it does depends on data or cannot be made functional
- ``wrong``, ``crash``: against eager's values, types, shapes, strides and writes; against any error but a numbered one

The share is that of ``lowered`` and ``library`` in all operators. Below the table stand the operators that are still called, the ones that
alone keep most entries of the database from the share first. ``--backend`` runs the compiled plan with generated kernels instead of the
reference interpreter; ``--backward`` takes gradients of every differentiable sample too, and both halves count. ``--form`` calls the
operators otherwise: in place, on a view of something larger, or with ``out``. On another device than a processor (``--device``) plans run
as compiled; where a kernel makes the device refuse all that follows, another process goes on. Where opmill is not
installed it runs from the sources.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import from_sources
from opinfo_forms import FORMS

DTYPES = "float32 float64 bfloat16 float16 int64 bool complex64"
KINDS = ("lowered", "library", "bare", "call", "refused", "wrong", "crash")
LOOSE = {
    torch.bfloat16: (1.6e-2, 8e-3),
    torch.float16: (2e-3, 2e-3),
    torch.float32: (2e-5, 2e-5),
    torch.complex64: (2e-5, 2e-5),
    torch.float64: (1e-9, 1e-9),
}
EAGER_IS_OFF = {"nn.functional.hardsigmoid": 1e-7, **{f"special.bessel_{n}": 1e-6 for n in ("j0", "j1", "y0", "y1")}}
"""Operators that are wrong by so much in eager's float64."""
NARROW = (torch.bfloat16, torch.float16)
ASKS_NOBODY = ("jiterator",)
"""Beginnings of names of what torch's C++ launches without asking its dispatcher: a program ends a graph there."""
SEED = 42
"""The one that torch's samples of random operators set while they run: only tracing sees that."""
ALLOCATES = ("aten::empty", "aten::empty_strided")
LIBRARY = re.compile(
    r"aten::(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|_addmm_activation|_fft_\w+|_?linalg_\w+|_?cholesky\w*|lu_\w+|triangular_solve|geqrf|ormqr|orgqr|"
    r"\w*convolution\w*|mkldnn_\w+|_scaled_dot_product_\w+|_native_multi_head_attention|_cdist_\w+|_trilinear|_conj)(\.\w+)?$"
)


@dataclass
class Outcome:
    """What became of one sample: a kind, why, and the torch operators that are called."""

    kind: str
    detail: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class How:
    """``backend``: as compiled, else interpreted. ``backward``: with gradients. ``form``: of the calls. ``device``: where they run."""

    backend: bool
    backward: bool
    form: str = "plain"
    device: str = "cpu"


# ---- one sample ------------------------------------------------------------------------------------------------------------


def graph_of(fn: Any, args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """``fn(*args, **kwargs)`` as an FX graph whose placeholders are the tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    graph, tensors, nodes = torch.fx.Graph(), [], []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            nodes.append(graph.placeholder(f"a{len(tensors)}"))
            tensors.append(leaf)
        else:
            nodes.append(leaf)

    def call(*flat: Any) -> Any:
        a, k = pytree.tree_unflatten(list(flat), spec)
        return [x for x in pytree.tree_leaves(fn(*a, **k)) if isinstance(x, torch.Tensor)]

    graph.output(graph.call_function(call, tuple(nodes)))
    return torch.fx.GraphModule(torch.nn.Module(), graph), tensors


def check(op: Any, sample: Any, how: How) -> Outcome:
    """One sample, compiled and in eager."""
    from opmill_fake_tensors import FakeTensorError
    from opmill_graph_ir.errors import GraphError

    if (function := FORMS[how.form](op)) is None:
        return Outcome("skipped", "has no such form")
    gm, tensors = graph_of(function, (sample.input, *sample.args), sample.kwargs)
    backward = how.backward and any(t.requires_grad for t in tensors)
    mine, ours = copies(tensors), copies(tensors)
    torch.manual_seed(SEED)
    try:
        expected = results(eager_of(gm), mine, backward)
        _finish(how.device)
    except Exception as e:
        return Outcome("crash" if "CUDA error" in str(e) else "skipped", f"eager: {e!r}"[:140])
    if not expected:
        return Outcome("skipped", "gives no tensor")
    try:
        with torch.set_grad_enabled(backward):
            fn, nodes, calls, loops = compiled(gm, ours, how, backward)
        torch.manual_seed(SEED)
        got = results(fn, ours, backward)
        _finish(how.device)
    except (GraphError, FakeTensorError) as e:
        return Outcome("refused", str(e).partition("\n")[0][:140])
    except Exception as e:
        return Outcome("crash", f"{type(e).__name__}: {e}"[:200])
    problem = (
        ""
        if any(n.startswith(("aten::empty", "aten::new_empty")) for n in nodes)
        else compare(gm, tensors, expected, got, backward, EAGER_IS_OFF.get(name_of(op), 0.0))
    )
    problem = problem or next((f"mutated {p}" for e, g in zip(mine, ours, strict=True) if (p := difference(e.detach(), g.detach()))), "")
    if problem:
        return Outcome("wrong", problem, calls)
    plain = [c for c in calls if not LIBRARY.match(c)]
    kind = "call" if plain else "lowered" if not calls else "library" if loops else "bare"
    return Outcome(kind, ",".join(calls), calls)


def eager_of(gm: torch.fx.GraphModule, wide: bool = False) -> Any:
    """``gm`` without the code that FX writes, which cannot name every argument. ``wide``: where it asks for a floating type, it asks for 64
    bits."""
    call = next(n for n in gm.graph.nodes if n.op == "call_function")

    def given(a: Any) -> Any:
        is_float = wide and isinstance(a, torch.dtype) and (a.is_floating_point or a.is_complex)
        return a if not is_float else torch.complex128 if a.is_complex else torch.float64

    def run(*tensors: torch.Tensor) -> Any:
        values = iter(tensors)
        return call.target(*(next(values) if isinstance(a, torch.fx.Node) else given(a) for a in call.args))

    return run


def copies(tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """Leaves of the same content; floats as ``dtype`` where it is given, complex ones as its pairs."""
    out = []
    for t in tensors:
        wide = dtype is not None and (t.is_floating_point() or t.is_complex())
        out.append(
            (t.detach().to(dtype.to_complex() if t.is_complex() else dtype) if wide else t.detach().clone()).requires_grad_(t.requires_grad)
        )
    return out


def results(fn: Any, tensors: Sequence[torch.Tensor], backward: bool) -> list[Any]:
    """The outputs, then one gradient (or None) for each input that requires one."""
    with torch.set_grad_enabled(backward):
        outputs = list(fn(*tensors))
    wanted = [t for t in tensors if t.requires_grad]
    scalars = [weighted(o) for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad] if backward else []
    gradients = torch.autograd.grad(sum(scalars), wanted, allow_unused=True) if scalars and wanted else []
    return [*(o.detach() for o in outputs), *gradients]


def weighted(output: torch.Tensor) -> torch.Tensor:
    """A scalar whose gradient differs from element to element."""
    flat = (torch.view_as_real(output) if output.is_complex() else output).reshape(-1)
    weights = torch.linspace(0.5, 1.5, max(flat.numel(), 1), dtype=torch.float64)[: flat.numel()].to(flat)
    return (flat * weights).sum()


@dataclass(frozen=True)
class Interpreted:
    """A lowered program as what a plan is to its callers."""

    program: Any
    held: Sequence[torch.Tensor]

    def __call__(self, *inputs: Any) -> Any:
        from opmill_graph_ir.evaluate import run_lowered

        return run_lowered(self.program, [*(t.detach() for t in inputs if isinstance(t, torch.Tensor)), *self.held])

    def take(self, inputs: list[Any]) -> Any:
        """As a call; the plan would let go of what it has used."""
        return self(*inputs)


def compiled(gm: Any, tensors: list[Any], how: How, backward: bool) -> tuple[Any, list[str], tuple[str, ...], bool]:
    """What to call instead of ``gm``; names of the aten operators that were captured and of those that are called; whether loops are
    left."""
    from opmill_graph_ir.backend import compile_graph
    from opmill_graph_ir.capture.functionalize import functionalize
    from opmill_graph_ir.capture.joint import capture_joint
    from opmill_graph_ir.capture.partition import partition
    from opmill_graph_ir.lowered import Extern
    from opmill_graph_ir.ops.lower import lower
    from opmill_graph_ir.training import TrainingGraph, held_names, layout_of

    if backward:
        joint = capture_joint(gm, tensors)
        halves = partition(joint)
        graphs = halves.graphs
    else:
        graphs = [functionalize(gm, tensors)]
    programs = [lower(g) for g in graphs]
    nodes = [n.func.name() for g in graphs for n in g.nodes]
    inner = [n for p in programs for n in p.nodes if not (isinstance(n, Extern) and n.op in ALLOCATES)]
    calls = tuple(sorted({n.op for n in inner if isinstance(n, Extern)}))
    loops = any(not isinstance(n, Extern) for n in inner)
    if how.backend or any(None in p.symbols.values() for p in programs):  # sizes that only data tell are the plan's
        return compile_graph(gm, tensors), nodes, calls, loops

    if not backward:
        return Interpreted(programs[0], graphs[0].held_tensors), nodes, calls, loops
    names, held = held_names(joint, *graphs)
    forward, *behind = (Interpreted(p, graphs[0].held_tensors if p is programs[0] else []) for p in programs)
    return TrainingGraph(layout_of(joint, halves, names), forward, behind, held, gm), nodes, calls, loops


# ---- judging ---------------------------------------------------------------------------------------------------------------


def compare(gm: Any, tensors: list[torch.Tensor], expected: list[Any], got: list[Any], backward: bool, off: float) -> str:
    """What is wrong with the results; empty where nothing is."""
    if [e is None for e in expected] != [g is None for g in got]:
        return f"gradients {[g is not None for g in got]} for {[e is not None for e in expected]}"
    outputs = len(expected) - sum(t.requires_grad for t in tensors) * backward  # gradients are laid out as what comes from behind is
    expected = [e if k < outputs or e is None else e.contiguous() for k, e in enumerate(expected)]
    got = [g if k < outputs or g is None else g.contiguous() for k, g in enumerate(got)]
    pairs = [(e, g, k) for k, (e, g) in enumerate(zip(expected, got, strict=True)) if e is not None]
    if not (problem := next((p for e, g, _ in pairs if (p := difference(e, g, off=off))), "")):
        return ""
    try:
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            precise = results(eager_of(gm, wide=True), copies(tensors, torch.float64), backward)
    except Exception:
        return problem
    return next((p for e, g, k in pairs if (p := difference(e, g, precise[k]))), "")


def difference(e: torch.Tensor, g: torch.Tensor, precise: torch.Tensor | None = None, off: float = 0.0) -> str:
    """What is wrong with ``g``; empty where it is as eager's, or at most three times as far from a float64 result as eager is (where
    eager is exact: its last place)."""
    if (e.shape, e.dtype) != (g.shape, g.dtype):
        return f"{g.dtype}{list(g.shape)} for {e.dtype}{list(e.shape)}"
    if e.numel() and any(n != 1 and a != b for n, a, b in zip(e.shape, e.stride(), g.stride(), strict=True)):
        return f"strides {g.stride()} for {e.stride()} of {list(e.shape)}"
    rtol, atol = (max(tolerance, off) for tolerance in LOOSE.get(e.dtype, (0, 0)))
    try:
        torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        if precise is not None and e.is_complex() and precise.is_complex():
            return difference(*(torch.view_as_real(t.resolve_conj()) for t in (e, g, precise)), off)
        if precise is not None and precise.shape == e.shape and e.is_floating_point() and precise.is_floating_point():
            scale = precise.double().abs().nan_to_num(posinf=0, neginf=0).max()
            overflows = precise.isfinite() & ~e.isfinite() & g.isfinite()  # eager's own
            ours, theirs = (
                (t.double() - precise.double()).abs().nan_to_num().max() for t in (g, torch.where(overflows, (1 + rtol) * precise, e))
            )
            same = all(bool(((a(e) == a(g)) | overflows).all()) for a in (torch.isnan, torch.isposinf, torch.isneginf))
            if same and ours <= max(3 * theirs, (torch.finfo(e.dtype).eps if e.dtype in NARROW else 0) * scale):
                return ""
        return " ".join(str(error).split())[:120]
    return ""


# ---- the sweep -------------------------------------------------------------------------------------------------------------


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def _finish(device: str) -> None:
    """Waits for what was launched: what it does wrong on the device is said here, and not of the next sample."""
    if device != "cpu":
        torch.accelerator.synchronize()


def samples_of(op: Any, dtype: torch.dtype, limit: int, seed: int, how: How) -> Iterator[Any]:
    """The strided samples of an operator."""
    torch.manual_seed(seed)
    try:
        grad = how.backward and op.supports_autograd and dtype.is_floating_point | dtype.is_complex
        samples = list(itertools.islice(op.sample_inputs(how.device, dtype, requires_grad=grad), limit))
    except Exception:
        return
    for sample in samples:
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if all(not isinstance(t, torch.Tensor) or t.layout is torch.strided for t in leaves):
            yield sample


Job = tuple[str, list[str], int, How, int]
"""A type, operators, samples at most, how, and a seed."""


def sweep(job: Job) -> dict[str, Any]:
    """The operators of one shard in one dtype: counts a sample kind by operator, what went wrong, what is called."""
    dtype_name, names, limit, how, seed = job
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtype = getattr(torch, dtype_name)
    rows: dict[str, dict[str, Any]] = {}
    for op in op_db:
        if name_of(op) not in names or dtype not in op.supported_dtypes(how.device):
            continue
        row = rows[name_of(op)] = {"samples": Counter(), "notes": {}, "calls": set()}
        for sample in samples_of(op, dtype, limit, seed, how):
            outcome = check(op, sample, how)
            row["samples"][outcome.kind] += 1
            if outcome.kind == "crash" and "CUDA error" in outcome.detail:
                return {"dtype": dtype_name, "rows": rows, "left": [n for n in names if n not in rows]}
            row["notes"].setdefault(outcome.kind, outcome.detail)
            if outcome.kind == "call":
                row["calls"].update(outcome.calls)
    return {"dtype": dtype_name, "rows": rows, "left": []}


def verdict(counts: dict[str, int]) -> str:
    """One word for an operator: the worst of its samples, a bare call among loops aside."""
    if counts.get("library"):
        counts = {**counts, "bare": 0}
    return next((k for k in reversed(KINDS) if counts.get(k)), "skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default=DTYPES.replace(" ", ","))
    parser.add_argument("--ops", default="", help="names of the database, or parts of them")
    parser.add_argument("--part", default="1/1", help="k/n: the k-th of n parts of the operators")
    parser.add_argument("--samples", type=int, default=1000, help="at most so many samples an operator")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--backend", action="store_true")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--form", choices=FORMS, default="plain")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=86400.0, help="after which what is not done is left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    parser.add_argument("--show", default="crash,wrong", help="kinds of which details are printed")
    parser.add_argument("--blockers", type=int, default=40, help="lines about operators that are still called")
    options = parser.parse_args()
    from torch.testing._internal.common_methods_invocations import op_db

    names = sorted({name_of(o) for o in op_db if not o.name.startswith(ASKS_NOBODY)})
    if options.ops:
        names = [n for n in names if any(part in n for part in options.ops.split(","))]
    part, parts = map(int, options.part.split("/"))
    names = names[part - 1 :: parts]
    many = options.processes * (4 if options.device == "cpu" else 12)  # a new process each, on devices
    shards = [names[k::many] for k in range(many)]
    how = How(options.backend or options.device != "cpu", options.backward, options.form, options.device)
    jobs = [(d, shard, options.samples, how, options.seed) for d in options.dtypes.split(",") for shard in shards if shard]
    start = time.perf_counter()
    if importlib.util.find_spec("opmill") is None:
        folder = tempfile.mkdtemp()
        sys.path += (paths := from_sources.environment(Path(folder))["PYTHONPATH"]).split(os.pathsep)
        os.environ |= {"PYTHONPATH": paths, "OPMILL_CACHE_DIR": os.environ.get("OPMILL_CACHE_DIR", f"{folder}/cache")}
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=None if options.device == "cpu" else 1) as pool:
        found = list(_until(start + options.seconds, pool, jobs))
    table: dict[str, dict[str, Any]] = defaultdict(dict)
    for result in found:
        for name, row in result["rows"].items():
            kind = verdict(row["samples"])
            table[result["dtype"]][name] = {
                "verdict": kind,
                "samples": dict(row["samples"]),
                "notes": row["notes"],
                "calls": sorted(row["calls"]),
            }
    report(table, options.show.split(","), options.blockers)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(table, f, indent=1)
    return int(any(v["verdict"] in ("wrong", "crash") for t in table.values() for v in t.values()))


def _until(end: float, pool: Any, jobs: list[Job]) -> Iterator[dict[str, Any]]:
    """What is found before then. The rest of a shard whose process lost its device goes to another one."""
    while jobs:
        found, again = pool.imap_unordered(sweep, jobs), []
        for k in range(len(jobs)):
            try:
                result = found.next(max(0.0, end - time.perf_counter()))
            except multiprocessing.TimeoutError:
                print(f"{len(jobs) - k + len(again)} shards are left out: no time was left")
                return
            if result["left"]:
                again.append((result["dtype"], result["left"], *jobs[0][2:]))
            yield result
        jobs = again


def report(table: dict[str, dict[str, Any]], show: list[str], blockers: int) -> None:
    print("\n".join(__doc__.partition("as:")[2].partition("``--backend``")[0].splitlines()))
    print(f"{'dtype':>10} {'operators':>9} " + " ".join(f"{k:>8}" for k in KINDS) + "  share")
    for dtype, rows in table.items():
        by = Counter(v["verdict"] for v in rows.values())
        total = sum(by[k] for k in KINDS)
        print(
            f"{dtype:>10} {total:>9} " + " ".join(f"{by[k]:>8}" for k in KINDS) + f"  {(by['lowered'] + by['library']) / max(total, 1):.0%}"
        )
    for dtype, rows in table.items():
        report_calls(dtype, rows, blockers)
        for name, row in rows.items():
            for kind in show:
                if kind in row["notes"]:
                    print(f"{dtype} {name} {kind} x{row['samples'][kind]}: {row['notes'][kind]}")


def report_calls(dtype: str, rows: dict[str, Any], limit: int) -> None:
    """Which operators keep most entries from the share: those that do so alone, then those that are one of several."""
    alone: dict[str, list[str]] = defaultdict(list)
    among: Counter[str] = Counter()
    for name, row in rows.items():
        plain = [c for c in row["calls"] if not LIBRARY.match(c)] if row["verdict"] == "call" else []
        among.update(plain)
        if len(plain) == 1:
            alone[plain[0]].append(name)
    order = sorted(among, key=lambda c: (-len(alone[c]), -among[c], c))
    if limit and order:
        print(f"{dtype}: operators that are called (entries that they alone keep out, entries they are in)")
    for call in order[:limit]:
        print(f"  {call:<44} {len(alone[call]):>3} {among[call]:>3}  {' '.join(alone[call][:6])}")


if __name__ == "__main__":
    raise SystemExit(main())
