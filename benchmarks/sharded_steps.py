"""How long a step of training takes over several processes with FSDP2: eager, torch.compile and opmill, in turns in the same processes.

    python benchmarks/sharded_steps.py [--processes 2] [--width 256] [--layers 4] [--rounds 30] [--only NAME ...] [--json FILE]

Each configuration trains three models from the same weights. A round is one step of each; their order turns from round to round, and all
processes begin a step together. A row has the medians of a step in milliseconds, and the medians over rounds of eager's and of
torch.compile's time by opmill's, on the clock and (for a machine that does other things meanwhile) of the processes' threads; the slowest process counts. The script fails where opmill is slower than either by more than 3%, or where
losses are further from eager's than torch.compile's by more than a factor of three and a small floor."""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import processes
from distributed_losses import Model, Sizes

LIMIT = 1500  # seconds for all processes together
WARM = 4  # steps that are not counted
FLOOR = 1e-5
SLOWER = 0.97
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
Compile = Callable[[Any], Any]


def blocks(model: Model, compiled: Compile, policy: MixedPrecisionPolicy | None = None) -> Any:
    """Each block compiled, then sharded."""
    options = {} if policy is None else {"mp_policy": policy}
    for position, block in enumerate(model.blocks):
        model.blocks[position] = fully_shard(compiled(block), **options)
    return fully_shard(model, **options)


def whole(model: Model, compiled: Compile) -> Any:
    """Sharded by blocks, then compiled."""
    for block in model.blocks:
        fully_shard(block)
    return compiled(fully_shard(model))


CONFIGURATIONS: dict[str, Callable[[Model, Compile], Any]] = {
    "blocks": blocks,
    "blocks, bfloat16": functools.partial(blocks, policy=HALF),
    "whole": whole,
}


def compilers() -> dict[str, Compile]:
    import opmill

    return {"eager": lambda module: module, "torch": torch.compile, "opmill": opmill.compile}


class Training:
    def __init__(self, name: str, compiled: Compile, sizes: Sizes, rows: int, length: int) -> None:
        torch.manual_seed(0)
        model = Model(sizes)
        self.call = CONFIGURATIONS[name](model, compiled)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=True)
        torch.manual_seed(1 + dist.get_rank())
        self.tokens = torch.randint(0, sizes.words, (4, rows, length + 1))
        self.losses: list[float] = []

    def step(self) -> tuple[float, float]:
        """Seconds on the clock, and of this process's threads."""
        batch = self.tokens[len(self.losses) % len(self.tokens)]
        dist.barrier()
        begin, worked = time.perf_counter(), time.process_time()
        loss = F.cross_entropy(self.call(batch[:, :-1]).float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        taken = time.perf_counter() - begin, time.process_time() - worked
        self.losses.append(float(loss.detach()))
        return taken


def work(rank: int, size: int, store: str, given: str, names: list[str]) -> None:
    settings = json.loads(given)
    sizes = Sizes(settings["width"], settings["width"] // 32, settings["width"] * 11 // 4, 1000, settings["layers"])
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    for name in names:
        trainings = {key: Training(name, compiled, sizes, settings["rows"], settings["length"]) for key, compiled in compilers().items()}
        first = {key: sum(training.step()[0] for _ in range(WARM)) for key, training in trainings.items()}
        taken: dict[str, list[tuple[float, float]]] = {key: [] for key in trainings}
        order = list(trainings)
        for _ in range(settings["rounds"]):
            for key in order:
                taken[key].append(trainings[key].step())
            order.append(order.pop(0))
        row = {"configuration": name, "first": first, "seconds": taken, "losses": {key: t.losses for key, t in trainings.items()}}
        print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of what all processes say of a configuration."""
    clock, work = (
        {key: [max(s[kind] for s in at) for at in zip(*(row["seconds"][key] for row in rows), strict=True)] for key in rows[0]["seconds"]}
        for kind in (0, 1)
    )

    def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
        return {k: statistics.median(a / b for a, b in zip(seconds[k], seconds["opmill"], strict=True)) for k in ("eager", "torch")}

    apart = {
        key: max(abs(a - b) for row in rows for a, b in zip(row["losses"][key], row["losses"]["eager"], strict=True))
        for key in ("torch", "opmill")
    }
    return {
        "configuration": rows[0]["configuration"],
        **{f"{key} ms": statistics.median(values) * 1e3 for key, values in clock.items()},
        **{f"{key} / opmill": value for key, value in ratios(clock).items()},
        **{f"{key} / opmill, work": value for key, value in ratios(work).items()},
        **{f"{key} from eager": value for key, value in apart.items()},
        **{f"{key} first s": max(row["first"][key] for row in rows) for key in ("torch", "opmill")},
    }


def holds(row: dict[str, Any]) -> bool:
    fast = row["eager / opmill"] >= SLOWER and row["torch / opmill"] >= SLOWER
    floor = 3e-2 if "bfloat16" in row["configuration"] else FLOOR
    return bool(fast and row["opmill from eager"] <= 3 * row["torch from eager"] + floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"processes": 2, "width": 256, "layers": 4, "rows": 4, "length": 128, "rounds": 30}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name for name in CONFIGURATIONS if not options.only or name in options.only]
    settings = {key: value for key, value in vars(options).items() if isinstance(value, int)}
    with tempfile.TemporaryDirectory() as folder:
        said = processes.together(Path(__file__), Path(folder), json.dumps(settings), *names, size=options.processes, limit=LIMIT)
    found = [figures(list(rows)) for rows in zip(*([json.loads(line) for line in out.splitlines()] for out in said), strict=True)]
    print(processes.table_head(found[0]))
    for row in found:
        print(processes.table_line(row.values(), ".3g"))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    wrong = [row["configuration"] for row in found if not holds(row)]
    raise SystemExit(f"slower, or other losses: {wrong}" if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        rank, size, store, given, *chosen = sys.argv[1:]
        work(int(rank), int(size), store, given, chosen)
    else:
        main()
