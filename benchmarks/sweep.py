"""eager, torch.compile and opmill side by side: every model in its own processes, with empty and with warm caches.

usage: sweep.py [MODEL...] [--compilers torch,opmill] [--seconds S] [--timeout S] [--output FILE] [--history FILE]
Prints one table and says of each demand whether it is met; writes everything measured as JSON, and adds it to the history (``history.py``).
A model that crashes or hangs is a row that says so. Exit status 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import history
import zoo
from demands import demands
from processes import caches, measured

HERE = Path(__file__).resolve().parent
MARKS = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}
PHASES = ("cold", "warm")
Results = dict[str, dict[str, dict[str, dict[str, Any]]]]  # model -> compiler -> phase -> what measure.py printed


def run(model: str, compiler: str, cache: str, seconds: float, timeout: float) -> dict[str, Any]:
    """One process of measure.py. ``{"failed": why}`` where it gave no result."""
    command = [sys.executable, str(HERE / "measure.py"), model, compiler, "--seconds", str(seconds), "--fullgraph"]
    start = time.perf_counter()
    found = measured(command, timeout, caches(cache))
    return found if "failed" in found else {**found, "wall_s": time.perf_counter() - start}


def sweep(models: list[str], compilers: list[str], seconds: float, timeout: float, console: Console) -> Results:
    results: Results = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(models) * len(compilers) * len(PHASES))
        for model in models:
            for compiler in compilers:
                with tempfile.TemporaryDirectory(prefix="bench-") as cache:
                    for phase in PHASES:
                        progress.update(task, description=f"{model} {compiler} {phase}")
                        found = run(model, compiler, cache, seconds if phase == "warm" else min(1.0, seconds), timeout)
                        results.setdefault(model, {}).setdefault(compiler, {})[phase] = found
                        progress.advance(task)
                        if "failed" in found:
                            progress.console.print(f"[red]{model} {compiler} {phase}: {found['failed']}[/]")
    return results


def number(row: dict[str, Any], key: str, unit: str = "") -> str:
    return f"{row[key]:.3g}{unit}" if key in row else "[red]failed[/]"


def show(results: Results, compilers: list[str], console: Console) -> None:
    table = Table(title="first call with empty and with warm caches, then steady state", title_justify="left")
    for name in ("model", "compiler", "cold s", "warm s", "steady ms", "eager ms", "speed", "error", "eager's", "imported"):
        table.add_column(name, justify="left" if name in ("model", "compiler", "imported") else "right")
    for model, rows in results.items():
        for compiler in compilers:
            cold, warm = rows[compiler]["cold"], rows[compiler]["warm"]
            speed = f"{warm['eager_ms'] / warm['steady_ms']:.2f}x" if "steady_ms" in warm else ""
            imported = ", ".join(name.removeprefix("torch.") for name in cold.get("imported", ()))
            numbers = (number(cold, "first_s"), number(warm, "first_s"), number(warm, "steady_ms"), number(warm, "eager_ms"), speed)
            table.add_row(model, compiler, *numbers, number(warm, "error"), number(warm, "eager_error"), imported)
        table.add_section()
    console.print(table)


def show_demands(results: Results, console: Console) -> list[dict[str, Any]]:
    table = Table(title="What is asked for", title_justify="left")
    for name in ("demand", "seen", "at least", "", "aim", ""):
        table.add_column(name)
    rows = demands(results)
    for row in rows:
        table.add_row(row["what"], row["seen"], row["least"], MARKS[row["met"]], row["aim"], MARKS[row["aim_met"]])
    console.print(table)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of: {', '.join(zoo.MODELS)} (default: all)")
    parser.add_argument("--compilers", default="torch,opmill", help="comma-separated; eager is measured beside each of them")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long steady state is measured")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds one process may take")
    parser.add_argument("--output", type=Path, default=Path("bench-results") / "latest.json")
    parser.add_argument(
        "--history", type=Path, default=history.FILE, help="where the run is added; /dev/null for a run that is no measurement"
    )
    chosen = parser.parse_args()
    missing = sorted(set(chosen.models) - set(zoo.MODELS))
    if missing:
        parser.error(f"unknown models {', '.join(missing)}; there are: {', '.join(zoo.MODELS)}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    compilers = chosen.compilers.split(",")
    results = sweep(chosen.models or list(zoo.MODELS), compilers, chosen.seconds, chosen.timeout, console)
    show(results, compilers, console)
    rows = show_demands(results, console)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    machine = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    chosen.output.write_text(json.dumps({"machine": machine, "results": results, "demands": rows}, indent=1))
    console.print(f"written to {chosen.output}")
    for loss in history.append(chosen.history, {**machine, "processor": platform.machine()}, results):
        console.print(f"[red]slower than before[/] {loss}")
    return any(row["met"] is False for row in rows)


if __name__ == "__main__":
    sys.exit(main())
