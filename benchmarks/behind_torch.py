"""opmill as a backend of torch.compile: every model, inference at several sizes and a training step, against float64 and eager.

usage: behind_torch.py [MODEL...] [--json FILE]

Prints, a model: graphs that torch's tracer made, graphs that ran uncompiled (GI033) and why, the error of outputs and of gradients relative
to eager's own (1.0: just as far from float64), and the seconds it took. Ends with status 1 where an error is more than 3 times eager's or a
graph ran uncompiled.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from measure import distance, in_double, tensors_of
from opmill_graph_ir.torch_backend import torch_backend
from train_one import MODELS, built, distances, loss_of, without_dropout

FLOOR = 1e-7
"""Errors below this are rounding, whoever makes them."""


class Counting:
    """The backend, counting graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, inputs: Any, **options: Any) -> Any:
        self.graphs += 1
        return torch_backend(gm, inputs, **options)


def resized(args: tuple[Any, ...], kwargs: dict[str, Any], times: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs with a larger batch, texts also longer."""
    grow = lambda t: torch.cat([t] * times) if t.is_floating_point() else torch.cat([torch.cat([t] * times)] * times, 1)
    return tuple(map(grow, args)), {k: grow(v) for k, v in kwargs.items()}


def ratio(ours: float, eager: float) -> float:
    return ours / max(eager, FLOOR)


def inference(name: str, backend: Counting) -> float:
    model, args, kwargs = built(name)
    model.eval()
    exact = in_double(model)
    compiled = torch.compile(model, backend=backend)
    worst = 0.0
    with torch.no_grad():
        for times in (1, 2, 3, 1):
            given, named = resized(args, kwargs, times)
            reference = tensors_of(exact(*in_double(given), **in_double(named)))
            errors = [distance(tensors_of(m(*given, **named)), reference) for m in (compiled, model)]
            worst = max(worst, ratio(*errors))
    return worst


def training(name: str, backend: Counting) -> float:
    case = built(name)
    found = []
    for kind in ("double", "eager", "ours"):
        model, args, kwargs = in_double(case) if kind == "double" else copy.deepcopy(case)
        model = without_dropout(model)
        loss = torch.compile(loss_of, backend=backend) if kind == "ours" else loss_of
        loss(model, args, kwargs).backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    theirs, ours = (distances(f, found[0]) for f in found[1:])
    return ratio(max(ours.values()), max(theirs.values()))  # single ones flip with a ReLU whose input is rounding


def measure(name: str) -> dict[str, Any]:
    torch._dynamo.reset()
    backend, start = Counting(), time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        row: dict[str, Any] = {"model": name}
        for part, run in (("inference", inference), ("training", training)):
            try:
                row[part] = round(run(name, backend), 2)
            except Exception as error:
                row[part] = f"{type(error).__name__}: {error}"[:300]
    uncompiled = sorted({str(w.message).replace("\n", " ") for w in said if "GI03" in str(w.message)})
    return {**row, "graphs": backend.graphs, "uncompiled": uncompiled, "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        rows.append(measure(name))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    table = Table("model", "graphs", "uncompiled", "inference", "training", "seconds")
    for row in rows:
        table.add_row(
            row["model"], str(row["graphs"]), "; ".join(row["uncompiled"]), str(row["inference"]), str(row["training"]), str(row["seconds"])
        )
    Console().print(table)
    fine = lambda value: isinstance(value, float) and value <= 3
    if not all(fine(row["inference"]) and fine(row["training"]) and not row["uncompiled"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
