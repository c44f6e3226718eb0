"""Every operator of torch's sample database through capture and lowering, against eager.

``python benchmarks/opinfo.py [--dtypes float32,int64] [--ops add,cat] [--samples 8] [--processes 2] [--backend] [--json out.json]``

For each dtype: operators lowered to loops whole, those with a torch call in them, those that stay with eager (refused or dependent on
data), and those that are wrong. ``--backend`` runs the compiled plan with generated kernels instead of the reference interpreter.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
import warnings
from collections import Counter, defaultdict
from typing import Any

import torch
from torch.utils import _pytree as pytree

DTYPES = "float32 float64 bfloat16 float16 int64 bool complex64"
LOOSE = {torch.bfloat16: (1.6e-2, 8e-3), torch.float16: (2e-3, 2e-3), torch.float32: (2e-5, 2e-5), torch.complex64: (2e-5, 2e-5), torch.float64: (1e-9, 1e-9)}
SEED = 42
"""The one that torch's samples of random operators set while they run: only tracing sees that."""
ALLOCATES = ("aten::empty", "aten::empty_strided")


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


def check(op: Any, sample: Any, backend: bool) -> tuple[str, str]:
    """What became of one sample: ("lowered" | "call" | "refused" | "wrong" | "crash", detail)."""
    from opmill_fake_tensors import FakeTensorError
    from opmill_graph_ir.capture.functionalize import functionalize
    from opmill_graph_ir.errors import GraphError
    from opmill_graph_ir.lowered import Extern
    from opmill_graph_ir.ops.lower import lower

    gm, tensors = graph_of(op.op, (sample.input, *sample.args), sample.kwargs)
    mine = [t.clone() for t in tensors]
    call = next(n for n in gm.graph.nodes if n.op == "call_function")
    values = iter(mine)
    torch.manual_seed(SEED)
    try:
        expected = call.target(*(next(values) if isinstance(a, torch.fx.Node) else a for a in call.args))
    except Exception as e:
        return "skipped", repr(e)[:80]
    ours = [t.clone() for t in tensors]
    try:
        graph = functionalize(gm, ours)
        program = lower(graph)
        calls = sorted({n.op for n in program.nodes if isinstance(n, Extern) and n.op not in ALLOCATES})
        torch.manual_seed(SEED)
        got = run(gm, program, ours, graph.held_tensors, backend)
    except (GraphError, FakeTensorError) as e:
        return "refused", str(e).partition("\n")[0][:140]
    except Exception as e:
        return "crash", f"{type(e).__name__}: {e}"[:200]
    if any(n.func.name().startswith(("aten::empty", "aten::new_empty")) for n in graph.nodes):
        expected = got = []
    precise = in_float64(call, tensors) if any(t.dtype in (torch.bfloat16, torch.float16) for t in expected) else [None] * len(expected)
    problem = next((p for e, g, r in zip(expected, got, precise, strict=False) if (p := difference(e, g, r))), "")
    problem = problem or next((f"mutated {p}" for e, g in zip(mine, ours, strict=True) if (p := difference(e, g))), "")
    return ("wrong", problem) if problem else ("call", ",".join(calls)) if calls else ("lowered", "")


def run(gm: Any, program: Any, tensors: list[Any], held: list[Any], backend: bool) -> list[Any]:
    if backend:
        from opmill_graph_ir.backend import compile_graph

        return list(compile_graph(gm, tensors)(*tensors))
    from opmill_graph_ir.evaluate import run_lowered

    return run_lowered(program, [*tensors, *held])


def in_float64(call: Any, tensors: list[torch.Tensor]) -> list[Any]:
    """What the operator gives in float64, to judge who is nearer."""
    values = iter([t.double() if t.is_floating_point() else t.clone() for t in tensors])
    try:
        return list(call.target(*(next(values) if isinstance(a, torch.fx.Node) else a for a in call.args)))
    except Exception:
        return [None] * 99


def difference(e: torch.Tensor, g: torch.Tensor, precise: torch.Tensor | None = None) -> str:
    """What is wrong with ``g``; empty where it is as eager's, or at most three times as far from a float64 result as eager is."""
    if (e.shape, e.dtype) != (g.shape, g.dtype):
        return f"{g.dtype}{list(g.shape)} for {e.dtype}{list(e.shape)}"
    if e.numel() and any(n != 1 and a != b for n, a, b in zip(e.shape, e.stride(), g.stride(), strict=True)):
        return f"strides {g.stride()} for {e.stride()}"
    rtol, atol = LOOSE.get(e.dtype, (0, 0))
    try:
        torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        if precise is not None and precise.shape == e.shape and e.is_floating_point():
            ours, theirs = ((t.double() - precise.double()).abs().nan_to_num().max() for t in (g, e))
            if ours <= 3 * theirs:
                return ""
        return " ".join(str(error).split())[:120]
    return ""


def sweep(job: tuple[str, list[str], int, bool, int]) -> dict[str, Any]:
    """The operators of one shard in one dtype: counts a sample kind by operator, and what went wrong."""
    dtype_name, names, limit, backend, seed = job
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtype = getattr(torch, dtype_name)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    notes: dict[str, dict[str, str]] = defaultdict(dict)
    wanted = set(names)
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if name not in wanted or dtype not in op.dtypes:
            continue
        torch.manual_seed(seed)
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit))
        except Exception:
            continue
        for sample in samples:
            leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
            if any(isinstance(t, torch.Tensor) and t.layout is not torch.strided for t in leaves):
                continue
            with torch.no_grad():
                kind, detail = check(op, sample, backend)
            counts[name][kind] += 1
            notes[name].setdefault(kind, detail)
    return {"dtype": dtype_name, "counts": counts, "notes": notes}


def verdict(counts: dict[str, int]) -> str:
    """One word for an operator: the worst of its samples."""
    return next((k for k in ("crash", "wrong", "refused", "call", "lowered") if counts.get(k)), "skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default=DTYPES.replace(" ", ","))
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=1000, help="at most so many samples an operator")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--backend", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    parser.add_argument("--show", default="crash,wrong", help="kinds of which details are printed")
    options = parser.parse_args()
    from torch.testing._internal.common_methods_invocations import op_db

    names = sorted({f"{o.name}.{o.variant_test_name}" if o.variant_test_name else o.name for o in op_db})
    if options.ops:
        names = [n for n in names if n in options.ops.split(",")]
    shards = [names[k :: options.processes * 4] for k in range(options.processes * 4)]
    jobs = [(d, shard, options.samples, options.backend, options.seed) for d in options.dtypes.split(",") for shard in shards if shard]
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        results = pool.map(sweep, jobs, chunksize=1)
    table: dict[str, dict[str, Any]] = defaultdict(dict)
    for r in results:
        for name, counts in r["counts"].items():
            table[r["dtype"]][name] = {"verdict": verdict(counts), "samples": dict(counts), "notes": r["notes"][name]}
    report(table, options.show.split(","))
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(table, f, indent=1)
    return int(any(v["verdict"] in ("wrong", "crash") for t in table.values() for v in t.values()))


def report(table: dict[str, dict[str, Any]], show: list[str]) -> None:
    kinds = ("lowered", "call", "refused", "wrong", "crash")
    print(f"{'dtype':>10} {'operators':>9} " + " ".join(f"{k:>8}" for k in kinds) + "  lowered")
    for dtype, rows in table.items():
        by = Counter(v["verdict"] for v in rows.values())
        total = sum(by[k] for k in kinds)
        print(f"{dtype:>10} {total:>9} " + " ".join(f"{by[k]:>8}" for k in kinds) + f"  {by['lowered'] / max(total, 1):.0%}")
    for dtype, rows in table.items():
        for name, row in rows.items():
            for kind in show:
                if kind in row["notes"]:
                    print(f"{dtype} {name} {kind} x{row['samples'][kind]}: {row['notes'][kind]}")


if __name__ == "__main__":
    raise SystemExit(main())
