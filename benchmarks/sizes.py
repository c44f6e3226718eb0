"""One compiled model at many batch sizes and sequence lengths: compilations, errors against float64, speed against eager at each size.

``python benchmarks/sizes.py [MODEL...] [--sizes 20] [--seconds 1.0] [--dynamic] [--json FILE]``

Without ``--dynamic``, sizes are found to vary as calls come. Sizes are the same in each run. Eager and compiled calls take turns, in one
process; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import opmill
import zoo
from measure import distance, in_double, tensors_of
from opmill.explain import explanation_of

DEFAULT = ("bert_s", "gpt2_s", "llama_s", "t5_s", "resnet18", "mobilenet_v3", "vit_tiny")


def sizes_of(kwargs: dict[str, Any], count: int) -> list[tuple[int, int]]:
    """(batch, length) pairs, small and large, the second of both another than the first; of images, the batch alone varies."""
    chosen = random.Random(0)
    lengths = [8, 31, 64, 96, 160, 16, 47, 100, 128]
    return [(chosen.choice([2, 4, 6, 12]) + k % 2, lengths[k % len(lengths)] if kwargs else 0) for k in range(count)]


def inputs_of(args: tuple[Any, ...], kwargs: dict[str, Any], batch: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = tuple(torch.randn(batch, *x.shape[1:]) for x in args)
    return given, {name: torch.randint(3, 900, (batch, length)) for name in kwargs}


def measure(name: str, count: int, seconds: float, dynamic: bool | None) -> dict[str, Any]:
    """What one model showed: ``compilations``, and one row a size."""
    torch.manual_seed(0)
    model, args, kwargs = zoo.MODELS[name]()
    compiled = opmill.compile(model, dynamic=dynamic)
    exactly = in_double(model)
    rows = []
    for batch, length in sizes_of(kwargs, count):
        given, named = inputs_of(args, kwargs, batch, length)
        start = time.perf_counter()
        ours = [t.clone() for t in tensors_of(compiled(*given, **named))]
        first = time.perf_counter() - start
        theirs = tensors_of(model(*given, **named))
        exact = tensors_of(exactly(*in_double(given), **in_double(named)))
        row = {"batch": batch, "length": length, "first_s": first, "error": distance(ours, exact), "eager_error": distance(theirs, exact)}
        row["layout_kept"] = [t.stride() for t in ours] == [t.stride() for t in theirs]
        rows.append(row)
    for row in rows:
        given, named = inputs_of(args, kwargs, row["batch"], row["length"])
        row["ms"], row["eager_ms"] = _in_turns(lambda g=given, n=named: compiled(*g, **n), lambda g=given, n=named: model(*g, **n), seconds)
    return {"model": name, "compilations": len(explanation_of(compiled).graphs), "rows": rows}


def _in_turns(ours: Any, theirs: Any, seconds: float) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = [], []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 5:
        for call, column in zip((ours, theirs), times, strict=True):
            begin = time.perf_counter()
            call()
            column.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times[0][1:]), 1e3 * statistics.median(times[1][1:])


def table_of(result: dict[str, Any]) -> Table:
    rows = result["rows"]
    speed = statistics.geometric_mean(r["eager_ms"] / r["ms"] for r in rows)
    slower = sum(r["ms"] > 1.02 * r["eager_ms"] for r in rows)
    table = Table(
        title=f"{result['model']}: {result['compilations']} compilations, {speed:.2f}x eager, slower at {slower} of {len(rows)} sizes"
    )
    for heading in ("batch", "length", "first s", "ms", "eager ms", "speed", "error", "eager's"):
        table.add_column(heading, justify="right")
    for r in sorted(rows, key=lambda r: (r["batch"] * max(r["length"], 1), r["batch"])):
        figures = f"{r['first_s']:.2f}", f"{r['ms']:.2f}", f"{r['eager_ms']:.2f}", f"{r['eager_ms'] / r['ms']:.2f}x", f"{r['error']:.1e}"
        table.add_row(str(r["batch"]), str(r["length"] or ""), *figures, f"{r['eager_error']:.1e}", style="" if r["layout_kept"] else "red")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dynamic", action="store_true", help="symbolic sizes from the first call on")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_grad_enabled(False)
    console, results = Console(), []
    for name in chosen.models:
        results.append(measure(name, chosen.sizes, chosen.seconds, True if chosen.dynamic else None))
        console.print(table_of(results[-1]))
        if chosen.json:
            chosen.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
