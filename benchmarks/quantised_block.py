"""How long a block of a model like Llama 7B takes for one token, its weights of one byte (torchao): eager, torch.compile and opmill in turns.

    python benchmarks/quantised_block.py [--device cuda] [--width 4096] [--config int8 float8 plain] [--modes default reduce-overhead]

A line of JSON for each configuration: microseconds of a call (medians), how far results are from float64 relative to its norm, and with a
GPU the share of its memory's bandwidth (``--bandwidth``, bytes a second) that reading the weights once in that time takes."""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from distributed_losses import Block, Sizes

ROUNDS, CALLS = 20, 20
LONGEST = 10
"""Seconds of a configuration's rounds."""


def int8() -> Any:
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig()


def int8_dynamic() -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig()


def float8() -> Any:
    from torchao.quantization import Float8WeightOnlyConfig

    return Float8WeightOnlyConfig()


CONFIGURATIONS: dict[str, Callable[[], Any] | None] = {"int8": int8, "float8": float8, "int8 dynamic": int8_dynamic, "plain": None}


def quantised(block: nn.Module, config: Callable[[], Any] | None) -> nn.Module:
    block = copy.deepcopy(block)
    if config is not None:
        from torchao.quantization import quantize_

        quantize_(block, config())
    return block.eval()


def compilers(block: nn.Module, modes: list[str]) -> dict[str, Any]:
    import opmill

    found: dict[str, Any] = {"eager": block}
    for mode in modes:
        mark = "" if mode == "default" else f" {mode}"
        found |= {
            f"torch{mark}": torch.compile(copy.deepcopy(block), mode=mode),
            f"opmill{mark}": opmill.compile(copy.deepcopy(block), mode=mode),
        }
    return found


def row(name: str, block: nn.Module, x: torch.Tensor, modes: list[str], bandwidth: float) -> dict[str, Any]:
    changed = quantised(block, CONFIGURATIONS[name])
    exact = copy.deepcopy(block).double()(x.double())
    calls = compilers(changed, modes)
    found: dict[str, Any] = {}
    for key, call in list(calls.items()):
        begin = time.perf_counter()
        try:
            results = [call(x).clone() for _ in range(4)]
        except Exception as error:
            found[f"{key} failed"] = f"{type(error).__name__}: {error}"[:200]
            del calls[key]
            continue
        found[f"{key} first s"] = round(time.perf_counter() - begin, 2)
        found[f"{key} apart"] = float((results[-1].double() - exact).norm() / exact.norm())
        print(json.dumps({"configuration": name, "first": key, "seconds": found[f"{key} first s"]}), flush=True)
    times: dict[str, list[float]] = {key: [] for key in calls}
    end = time.perf_counter() + LONGEST
    while len(times["eager"]) < ROUNDS and time.perf_counter() < end:
        for key, call in calls.items():
            settle(x)
            begin = time.perf_counter()
            for _ in range(CALLS):
                call(x)
            settle(x)
            times[key].append(1e6 * (time.perf_counter() - begin) / CALLS)
    found |= {f"{key} us": round(statistics.median(values), 1) for key, values in times.items()}
    if bandwidth and x.is_cuda:
        weights = sum(w.numel() for w in block.parameters() if w.dim() == 2) * (2 if name == "plain" else 1)
        found |= {f"{key} of bandwidth": round(weights / bandwidth / (1e-6 * found[f"{key} us"]), 3) for key in calls}
    return {"configuration": name, **found}


def settle(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--config", nargs="+", choices=CONFIGURATIONS, default=["int8", "plain"])
    parser.add_argument("--modes", nargs="+", default=["default"])
    parser.add_argument("--bandwidth", type=float, default=0.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = Sizes(options.width, options.width // 128, options.width * 11 // 4)
    block = Block(sizes).to(options.device, torch.bfloat16)
    x = torch.randn(1, 1, options.width, device=options.device, dtype=torch.bfloat16)
    with torch.no_grad():
        for name in options.config:
            print(json.dumps(row(name, block, x, options.modes, options.bandwidth)), flush=True)


if __name__ == "__main__":
    main()
