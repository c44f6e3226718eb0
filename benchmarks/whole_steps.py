"""Whole training steps as one program: zero_grad, loss, backward, clipping, AdamW and a scheduler, compiled under ``fullgraph=True``.

usage: whole_steps.py [MODEL...] [--seconds S] [--timeout S] [--output FILE]
Beside it, in one process and in turns: eager, and the loss and the optimizer's step compiled apart by opmill. Each model has a process of its
own. A row says whether the step was one program (else why not), how far the losses of five steps are from those in float64 (eager's beside
it), the seconds of the first steps, and the medians of a step. The script fails where a step is not whole, or where its losses are further
from float64 than eager's by more than a factor of three and a small floor."""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import opmill
import other_models
import zoo
from measure import in_double
from processes import measured
from train_one import built, loss_of, without_dropout

_SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1000}
_OTHERS = "diffusion efficientnet mamba graph tables recurrent conformer waves codes experts rays".split()
MODELS: dict[str, Callable[[], zoo.Case]] = {
    **{name: make for name, make in zoo.MODELS.items() if name not in ("bert_base", "resnet50")},
    **{name: other_models.MODELS[name] for name in _OTHERS},
    "electra": zoo.text_model("ElectraModel", "ElectraConfig", **_SMALL, embedding_size=128),
    "gemma": zoo.text_model("GemmaForCausalLM", "GemmaConfig", **_SMALL, num_key_value_heads=2, head_dim=32),
    "qwen3": zoo.text_model("Qwen3ForCausalLM", "Qwen3Config", **_SMALL, num_key_value_heads=2, head_dim=32),
    "regnet": other_models.vision("regnet_y_400mf", 2),
}
STEPS = 5
FLOOR = 1e-5


class Step:
    """One model with its optimizer and scheduler; ``how``: eager, apart or whole."""

    def __init__(self, how: str, case: zoo.Case) -> None:
        model, args, kwargs = case
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 10)
        loss_in, update = loss_of, optimizer.step
        if how == "apart":
            loss_in, update = opmill.compile(loss_of), opmill.compile(optimizer.step)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_in(model, args, kwargs)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            update()
            scheduler.step()
            return loss.detach()

        self.step: Callable[[], torch.Tensor] = step
        if how == "whole":
            self.step = opmill.compile(step, fullgraph=True)

    def losses(self) -> list[float]:
        return [float(self.step()) for _ in range(STEPS)]


def furthest(found: list[float], exact: list[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1e-3) if math.isfinite(a) else float("inf") for a, b in zip(found, exact, strict=True))


def case_of(name: str) -> zoo.Case:
    if name in zoo.MODELS:
        return built(name)
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    return model.train(), args, kwargs


def measure(name: str, seconds: float) -> dict[str, Any]:
    """One model, in this process."""
    case = case_of(name)
    without_dropout(case[0])
    result: dict[str, Any] = {"model": name, "parameters": sum(1 for p in case[0].parameters() if p.requires_grad)}
    exact = Step("eager", in_double(case)).losses()
    steps: dict[str, Step] = {}
    for how in ("eager", "apart", "whole"):
        started = time.perf_counter()
        steps[how] = Step(how, copy.deepcopy(case))
        try:
            result[f"{how}_error"] = furthest(steps[how].losses(), exact)
        except Exception as error:
            if how != "whole":
                raise
            return {**result, "refused": str(error).splitlines()[0][:200]}
        result[f"{how}_first_s"] = time.perf_counter() - started
    times: dict[str, list[float]] = {how: [] for how in steps}
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times["whole"]) < 8:
        for how, each in steps.items():
            start = time.perf_counter()
            each.step()
            times[how].append(time.perf_counter() - start)
    return {**result, **{f"{how}_ms": 1e3 * statistics.median(column) for how, column in times.items()}}


def run(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, name, "--one", "--seconds", str(chosen.seconds)]
    return {"model": name, **measured(command, chosen.timeout)}


def right(row: dict[str, Any]) -> bool:
    return "whole_error" in row and row["whole_error"] <= 3 * row["eager_error"] + FLOOR


def show(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="whole training steps, milliseconds", title_justify="left")
    for column in ("model", "parameters", "error", "eager's", "first s", "apart's", "eager", "apart", "whole", "over eager", "over apart"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        if why := row.get("failed") or row.get("refused"):
            console.print(f"[red]{row['model']}: {why}[/]")
            continue
        table.add_row(
            row["model"],
            str(row["parameters"]),
            *(f"{row[k]:.1g}" for k in ("whole_error", "eager_error")),
            *(f"{row[k]:.1f}" for k in ("whole_first_s", "apart_first_s")),
            *(f"{row[k]:.2f}" for k in ("eager_ms", "apart_ms", "whole_ms")),
            *(f"{row[k] / row['whole_ms']:.2f}x" for k in ("eager_ms", "apart_ms")),
        )
    console.print(table)
    timed = [row for row in rows if "whole_ms" in row]
    for other in ("eager", "apart"):
        if timed:
            mean = math.exp(sum(math.log(row[f"{other}_ms"] / row["whole_ms"]) for row in timed) / len(timed))
            console.print(f"over {other}, geometric mean of {len(timed)}: {mean:.2f}x")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of: {', '.join(MODELS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long steps are timed")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that one model may take")
    parser.add_argument("--output", type=Path, default=Path("bench-results") / "whole_steps.json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if missing := sorted(set(chosen.models) - set(MODELS)):
        parser.error(f"unknown models {', '.join(missing)}; there are: {', '.join(MODELS)}")
    if chosen.one:
        print(json.dumps(measure(chosen.models[0], chosen.seconds)))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows: list[dict[str, Any]] = []
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        names = chosen.models or list(MODELS)
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            rows.append(run(name, chosen))
            chosen.output.write_text(json.dumps(rows, indent=1))
            progress.advance(task)
    show(rows, console)
    return not all(map(right, rows))


if __name__ == "__main__":
    sys.exit(main())
