"""What a call costs besides the computation: guards and dispatch alone, with a backend that does nothing but run the graph's last result.

usage: frontend.py [MODEL...]. For each model prints one line of JSON with the microseconds of a call whose compiled graph returns outputs
computed before: what is left is argument binding, guards, dispatch and the rebuilding of outputs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch

import zoo

CALLS = 200
ROUNDS = 15


def remembering(graph_module: Any, example_inputs: Any) -> Any:
    """A backend whose graphs compute once and then give the same outputs again."""
    remembered: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not remembered:
            remembered.append(graph_module.forward(*inputs))
        return remembered[0]

    return run


def microseconds(call: Any, calls: int = CALLS) -> float:
    """Median over rounds of the time of one call."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter() - start) / calls)
    return 1e6 * statistics.median(rounds)


def main() -> None:
    import opmill

    for name in sys.argv[1:] or list(zoo.MODELS):
        torch.manual_seed(0)
        model, args, kwargs = zoo.MODELS[name]()
        compiled = opmill.compile(model, backend=remembering)
        with torch.no_grad():
            compiled(*args, **kwargs)
            print(json.dumps({"model": name, "frontend_us": microseconds(lambda: compiled(*args, **kwargs))}), flush=True)


if __name__ == "__main__":
    main()
