"""Measures one model under one compiler in this process and prints one line of JSON.

usage: measure.py MODEL COMPILER [--fullgraph] [--seconds S] [--no-reference]
COMPILER: eager, torch (torch.compile), torch-reduce-overhead, torch-max-autotune, or opmill.

What it prints: ``first_s``: the first call, compiling included (wrapping the model, and importing the compiler, count: a user waits for
them); ``steady_ms`` and ``eager_ms``: medians of calls taken in turns, so that both see the same machine; ``error`` and
``eager_error``: largest distance to a run in float64, relative to the largest value of each output; ``phases_ms``: where opmill's compiling
spent its time; ``imported``: which of
torch's own compiler modules were imported by compiling and the first call (transformers may have imported them before by itself).
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import zoo

TORCH_MODES = {"torch": None, "torch-reduce-overhead": "reduce-overhead", "torch-max-autotune": "max-autotune"}
COMPILERS = ("eager", *TORCH_MODES, "opmill")
Call = Callable[[], list[torch.Tensor]]


def tensors_of(output: Any) -> list[torch.Tensor]:
    """All tensors of a model's output, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, Sequence) and not isinstance(output, str):
        return [tensor for part in output for tensor in tensors_of(part)]
    return []


def in_double(value: Any) -> Any:
    """The same model or arguments in float64."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: in_double(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_double(each) for each in value]
    return tuple(in_double(each) for each in value) if isinstance(value, tuple) else value


def distance(outputs: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """Largest difference over all outputs, each relative to its reference's largest value. Infinite where shapes or NaNs differ."""
    if [tensor.shape for tensor in outputs] != [tensor.shape for tensor in reference]:
        return float("inf")
    worst = 0.0
    for ours, theirs in zip(outputs, reference):
        if theirs.numel() == 0:
            continue
        difference = (ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-30)
        worst = max(worst, float("inf") if bool(difference.isnan()) else float(difference))
    return worst


def compile_with(compiler: str, model: torch.nn.Module, fullgraph: bool) -> Any:
    if compiler == "eager":
        return model
    if compiler in TORCH_MODES:
        return torch.compile(model, fullgraph=fullgraph, mode=TORCH_MODES[compiler])
    import opmill

    return opmill.compile(model, fullgraph=fullgraph)


def not_compiled(compiled: Any) -> list[str]:
    """Why graphs of what opmill compiled run as torch's own operators; empty where generated kernels run. Breaks count."""
    from opmill.explain import explanation_of

    told = explanation_of(compiled)
    reasons = [graph.fallback or graph.report.operators_only for graph in told.graphs]
    reasons += [f"graph {graph.number} has no kernel" for graph in told.graphs if not graph.fallback and not graph.report.kernels]
    return [*map(str, told.breaks), *filter(None, reasons)] if told.graphs else ["nothing was captured"]


def phases(compiled: Any) -> dict[str, float]:
    """Milliseconds that opmill spent in each phase of compiling, over all graphs."""
    from opmill.explain import explanation_of

    total: dict[str, float] = {}
    for graph in explanation_of(compiled).graphs:
        for name, seconds in getattr(graph.report, "phases", {}).items():
            total[name] = round(total.get(name, 0.0) + 1e3 * seconds, 1)
    return total


def steady(ours: Call, eager: Call, seconds: float) -> tuple[float, float]:
    """Median milliseconds of a call of each, taken in turns of several calls."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (ours, eager) * 3:
        call()
    started = time.perf_counter()
    block = 5
    while time.perf_counter() - started < seconds or len(times[0]) < 2 * block:
        for call, column in zip((ours, eager), times):
            for _ in range(block):
                start = time.perf_counter()
                call()
                column.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[0]), 1e3 * statistics.median(times[1])


def measure(name: str, compiler: str, fullgraph: bool, seconds: float, reference: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model, args, kwargs = zoo.MODELS[name]()

    def caller(function: Any) -> Call:
        def call() -> list[torch.Tensor]:
            with torch.no_grad():
                return tensors_of(function(*args, **kwargs))

        return call

    eager = caller(model)
    expected = [tensor.clone() for tensor in eager()]
    result: dict[str, Any] = {"model": name, "compiler": compiler, "fullgraph": fullgraph, "threads": torch.get_num_threads()}

    before = set(sys.modules)
    start = time.perf_counter()
    compiled = compile_with(compiler, model, fullgraph)
    ours = caller(compiled)
    outputs = ours()
    result["first_s"] = time.perf_counter() - start
    outputs = [tensor.clone() for tensor in outputs]
    result["imported"] = sorted({"torch._dynamo", "torch._inductor"} & (set(sys.modules) - before))
    if compiler == "opmill":
        result["not_compiled"] = not_compiled(compiled)
        result["phases_ms"] = phases(compiled)
    result["difference"] = distance(outputs, expected)
    result["layout_kept"] = [(t.dtype, t.stride()) for t in outputs] == [(t.dtype, t.stride()) for t in expected]
    if reference:
        with torch.no_grad():
            exact = tensors_of(in_double(model)(*in_double(args), **in_double(kwargs)))
        result["error"], result["eager_error"] = distance(outputs, exact), distance(expected, exact)
    result["steady_ms"], result["eager_ms"] = steady(ours, eager, seconds)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(zoo.MODELS))
    parser.add_argument("compiler", choices=COMPILERS)
    parser.add_argument("--fullgraph", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long steady state is measured")
    parser.add_argument("--no-reference", action="store_true", help="skip the run in float64")
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.model, chosen.compiler, chosen.fullgraph, chosen.seconds, not chosen.no_reference)))


if __name__ == "__main__":
    main()
