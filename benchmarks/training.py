"""Training steps by eager, torch.compile and opmill side by side: loss, backward and AdamW, every model in processes of its own.

usage: training.py [MODEL...] [--compilers torch,opmill] [--seconds S] [--timeout S] [--output FILE] [--keep | --resume]
Each compiler starts with empty caches. Prints one table and whether each demand is met; writes everything measured as JSON, after each
process, so that ``--resume`` goes on where a run was ended.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from processes import caches, measured
from train_one import MODELS

HERE = Path(__file__).resolve().parent
NOISE = 1.03
Results = dict[str, dict[str, dict[str, Any]]]  # model -> compiler -> what train_one.py printed


def run(model: str, compiler: str, seconds: float, timeout: float) -> dict[str, Any]:
    """Two processes of train_one.py, the second for memory. ``{"failed": why}`` where one gave no result."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        for more in ([], ["--memory"]):
            if compiler == "eager" and not more:
                continue
            command = [sys.executable, str(HERE / "train_one.py"), model, compiler, "--seconds", str(seconds), *more]
            found |= measured(command, timeout, caches(cache))
            if "failed" in found:
                break
    return found


def sweep(todo: list[tuple[str, str]], results: Results, chosen: argparse.Namespace, console: Console) -> None:
    """Measures what is ``todo``, pairs of model and compiler, into ``results``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(todo))
        for model, compiler in todo:
            progress.update(task, description=f"{model} {compiler}")
            started = time.perf_counter()
            found = results.setdefault(model, {})[compiler] = run(model, compiler, chosen.seconds, chosen.timeout)
            found["took_s"] = time.perf_counter() - started
            chosen.output.write_text(json.dumps({"results": results}, indent=1))
            progress.advance(task)
            if "failed" in found:
                progress.console.print(f"[red]{model} {compiler}: {found['failed']}[/]")


def show(results: Results, console: Console) -> None:
    table = Table(title="a training step: loss + backward + AdamW, milliseconds", title_justify="left")
    for name in (
        "model",
        "compiler",
        "cold s",
        "step",
        "eager",
        "speed",
        "by cpu",
        "loss",
        "backward",
        "optimizer",
        "error",
        "eager's",
        "peak MB",
    ):
        table.add_column(name, justify="left" if name in ("model", "compiler") else "right")
    for model, rows in results.items():
        for compiler, row in rows.items():
            if "failed" in row:
                table.add_row(model, compiler, "[red]failed[/]")
                continue
            timed = [f"{row[k]:.3g}" if k in row else "" for k in ("first_s", "steady_ms", "eager_ms")]
            speed = f"{row['eager_ms'] / row['steady_ms']:.2f}x" if "steady_ms" in row else ""
            by_cpu = f"{row['eager_cpu_ms'] / row['steady_cpu_ms']:.2f}x" if "steady_cpu_ms" in row else ""
            parts = [f"{a:.3g}/{b:.3g}" for a, b in zip(row.get("parts_ms", ()), row.get("eager_parts_ms", ()))] or [""] * 3
            errors = [f"{row[k]:.2g}" if k in row else "" for k in ("error", "eager_error")]
            table.add_row(model, compiler, *timed, speed, by_cpu, *parts, *errors, f"{row['peak_mb']:.0f}")
        table.add_section()
    console.print(table)


def demands(results: Results) -> list[tuple[str, str, bool]]:
    """(what is asked, what was seen, whether it is met), of the models where all compilers gave a result."""
    rows = {m: r for m, r in results.items() if all("failed" not in x for x in r.values())}
    out = [("every model trains", f"{len(rows)} of {len(results)}", len(rows) == len(results))]
    ours = {m: r["opmill"] for m, r in rows.items() if "opmill" in r}
    theirs = {m: r["torch"] for m, r in rows.items() if "torch" in r}
    eager = {m: r["eager"] for m, r in rows.items() if "eager" in r}

    def worst(what: str, ratios: dict[str, float], limit: float) -> None:
        if ratios:
            model = max(ratios, key=lambda m: ratios[m])
            out.append((what, f"{ratios[model]:.2f} ({model})", ratios[model] <= limit))

    worst("gradients: at most 3x eager's error", {m: r["error"] / max(r["eager_error"], 1e-9) for m, r in ours.items()}, 3.0)
    worst("never slower than eager", {m: r["steady_ms"] / r["eager_ms"] for m, r in ours.items()}, NOISE)
    both = ours.keys() & theirs.keys()
    worst("cold: at most 1/4 of torch.compile's time", {m: ours[m]["first_s"] / theirs[m]["first_s"] for m in both}, 0.25)
    if both:
        speeds = [theirs[m]["steady_ms"] / theirs[m]["eager_ms"] / (ours[m]["steady_ms"] / ours[m]["eager_ms"]) for m in both]
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        out.append(("torch.compile's speed in geometric mean", f"{mean:.2f}x", mean >= 1))
    worst("peak memory: at most eager's", {m: ours[m]["peak_mb"] / max(eager[m]["peak_mb"], 1) for m in ours.keys() & eager.keys()}, NOISE)
    worst("peak memory: at most torch.compile's", {m: ours[m]["peak_mb"] / max(theirs[m]["peak_mb"], 1) for m in both}, NOISE)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of: {', '.join(MODELS)} (default: all)")
    parser.add_argument("--compilers", default="eager,torch,opmill", help="comma-separated; eager is timed beside each of the others")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long steady state is measured")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds one process may take")
    parser.add_argument("--output", type=Path, default=Path("bench-results") / "training.json")
    parser.add_argument(
        "--keep", action="store_true", help="what the output file has of other models and compilers stays in it, and is shown"
    )
    parser.add_argument(
        "--resume", action="store_true", help="the same, and what it has of these is not measured again, but where it failed"
    )
    chosen = parser.parse_args()
    missing = sorted(set(chosen.models) - set(MODELS))
    if missing:
        parser.error(f"unknown models {', '.join(missing)}; there are: {', '.join(MODELS)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    results: Results = {}
    if (chosen.keep or chosen.resume) and chosen.output.exists():
        results = json.loads(chosen.output.read_text())["results"]
    todo = [(model, compiler) for model in chosen.models or MODELS for compiler in chosen.compilers.split(",")]
    if chosen.resume:
        todo = [
            (model, compiler) for model, compiler in todo if "failed" in results.get(model, {}).get(compiler, {"failed": "not measured"})
        ]
    sweep(todo, results, chosen, console)
    show(results, console)
    rows = demands(results)
    table = Table("demand", "seen", "", title="What is asked for", title_justify="left")
    for what, seen, met in rows:
        table.add_row(what, seen, "[green]met[/]" if met else "[red]missed[/]")
    console.print(table)
    chosen.output.write_text(json.dumps({"results": results, "demands": rows}, indent=1))
    console.print(f"written to {chosen.output}")
    return not all(met for *_, met in rows)


if __name__ == "__main__":
    sys.exit(main())
