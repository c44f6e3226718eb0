"""How long a step of training takes over several processes with FSDP2: eager, torch.compile and opmill, in turns in the same processes.

    python benchmarks/sharded_steps.py [--processes 2] [--width 256] [--layers 4] [--rounds 30] [--only NAME ...] [--json FILE]
    torchrun --nproc-per-node 2 benchmarks/sharded_steps.py ...

Each configuration trains three models from the same weights. A round is one step of each; their order turns from round to round, and all
processes begin a step together. A row has the medians of a step in milliseconds, and the medians over rounds of eager's and of
torch.compile's time by opmill's, on the clock and (for a machine that does other things meanwhile) of the processes' threads; the slowest process counts. The script fails where opmill is slower than either by more than 3%, or where
losses are further from eager's than torch.compile's by more than a factor of three and a small floor. torchrun's processes have a GPU
each where there are as many, and then a row has what `exchanged.profiled` says of each compiler, too."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import exchanged
import processes
from distributed_losses import Model, Sizes, tensor_parallel

LIMIT = 1500  # seconds for all processes together
WARM = 4  # steps that are not counted
FLOOR = 1e-5
SLOWER = 0.97
REASON = 200
"""Characters."""
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
Compile = Callable[[Any], Any]


def blocks(model: Model, compiled: Compile, policy: MixedPrecisionPolicy | None = None) -> Any:
    """Each block compiled, then sharded."""
    options = {} if policy is None else {"mp_policy": policy}
    for position, block in enumerate(model.blocks):
        model.blocks[position] = fully_shard(compiled(block), **options)
    return fully_shard(model, **options)


def whole(model: Model, compiled: Compile, policy: MixedPrecisionPolicy | None = None) -> Any:
    """Sharded by blocks, then compiled."""
    options = {} if policy is None else {"mp_policy": policy}
    for block in model.blocks:
        fully_shard(block, **options)
    return compiled(fully_shard(model, **options))


def tensors(model: Model, compiled: Compile, sequence: bool) -> Any:
    """Tensor parallel, and along the sequence between, in half precision; each block compiled."""
    model = model.to(torch.bfloat16)
    tensor_parallel(model, init_device_mesh(processes.place().type, (dist.get_world_size(),), mesh_dim_names=("tensor",)), sequence)
    for position, block in enumerate(model.blocks):
        model.blocks[position] = compiled(block)
    return model


def both(model: Model, compiled: Compile) -> Any:
    """Tensor parallel over pairs, sharded over what is left; each block compiled, then sharded."""
    mesh = init_device_mesh(processes.place().type, (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    tensor_parallel(model, mesh["tensor"], False)
    for position, block in enumerate(model.blocks):
        model.blocks[position] = fully_shard(compiled(block), mesh=mesh["data"], mp_policy=HALF)
    return fully_shard(model, mesh=mesh["data"], mp_policy=HALF)


def replicas(model: Model, compiled: Compile) -> Any:
    return compiled(DistributedDataParallel(model.to(torch.bfloat16)))


CONFIGURATIONS: dict[str, Callable[[Model, Compile], Any]] = {
    "blocks": blocks,
    "blocks, bfloat16": functools.partial(blocks, policy=HALF),
    "whole": whole,
}
HALVES: dict[str, Callable[[Model, Compile], Any]] = {
    "whole, bfloat16": functools.partial(whole, policy=HALF),
    "tensor parallel, bfloat16": functools.partial(tensors, sequence=False),
    "sequence parallel, bfloat16": functools.partial(tensors, sequence=True),
    "fsdp2 + tensor parallel, bfloat16": both,
    "ddp, bfloat16": replicas,
}
"""Only where they are asked for, and on GPUs."""


def compilers() -> dict[str, Compile]:
    import opmill

    return {"eager": lambda module: module, "torch": torch.compile, "opmill": opmill.compile}


class Training:
    def __init__(self, name: str, compiled: Compile, sizes: Sizes, rows: int, length: int) -> None:
        torch.manual_seed(0)
        place = processes.place()
        model = Model(sizes).to(place)
        self.call = (CONFIGURATIONS | HALVES)[name](model, compiled)
        alike: dict[Any, list[torch.Tensor]] = {}
        for p in model.parameters():  # the fused optimizer takes no plain and sharded ones together, nor those of several meshes
            alike.setdefault(p.device_mesh if isinstance(p, DTensor) else None, []).append(p)
        self.optimizer = torch.optim.AdamW([{"params": each} for each in alike.values()], lr=1e-3, foreach=False, fused=True)
        torch.manual_seed(1 if "parallel" in name else 1 + dist.get_rank())
        self.tokens = torch.randint(0, sizes.words, (4, rows, length + 1)).to(place)
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


def begun(trainings: dict[str, Training]) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds of the first steps; why those fail that fail, on all processes, which are taken out."""
    first, failed = {}, {}
    for key, training in list(trainings.items()):
        try:
            first[key] = sum(training.step()[0] for _ in range(WARM))
        except Exception as error:
            failed[key] = f"{type(error).__name__}: {error}"[:REASON]
            del trainings[key]
    return first, failed


@dataclasses.dataclass(frozen=True)
class Settings:
    width: int = 256
    layers: int = 4
    head: int = 32
    words: int = 1000
    rows: int = 4
    length: int = 128
    rounds: int = 30


def work(settings: Settings, names: list[str]) -> Iterator[dict[str, Any]]:
    """What this process of the default group finds of each configuration."""
    width = settings.width
    sizes = Sizes(width, width // settings.head, width * 11 // 4, settings.words, settings.layers)
    for name in names:
        trainings = {key: Training(name, compiled, sizes, settings.rows, settings.length) for key, compiled in compilers().items()}
        first, failed = begun(trainings)
        taken: dict[str, list[tuple[float, float]]] = {key: [] for key in trainings}
        order = list(trainings)
        for _ in range(settings.rounds):
            for key in order:
                taken[key].append(trainings[key].step())
            order.append(order.pop(0))
        row = {"configuration": name, "first": first, "seconds": taken, "losses": {key: t.losses for key, t in trainings.items()}}
        row["failed"] = failed
        if processes.place().type == "cuda" and settings.rounds > 1:
            row["device"] = {key: exchanged.profiled(training.step) for key, training in trainings.items()}
        yield row


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of what all processes say of a configuration."""
    clock, work = (
        {key: [max(s[kind] for s in at) for at in zip(*(row["seconds"][key] for row in rows), strict=True)] for key in rows[0]["seconds"]}
        for kind in (0, 1)
    )

    others = [key for key in ("eager", "torch") if key in clock]

    def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
        return {k: statistics.median(a / b for a, b in zip(seconds[k], seconds["opmill"], strict=True)) for k in others}

    apart = {
        key: max(abs(a - b) for row in rows for a, b in zip(row["losses"][key], row["losses"]["eager"], strict=True))
        for key in clock
        if key != "eager"
    }
    return {
        "configuration": rows[0]["configuration"],
        **{f"{key} ms": statistics.median(values) * 1e3 for key, values in clock.items()},
        **{f"{key} / opmill": value for key, value in ratios(clock).items()},
        **{f"{key} / opmill, work": value for key, value in ratios(work).items()},
        **{f"{key} from eager": value for key, value in apart.items()},
        **{f"{key} first s": max(row["first"][key] for row in rows) for key in apart},
        **({"failed": rows[0]["failed"]} if rows[0]["failed"] else {}),
    }


def holds(row: dict[str, Any]) -> bool:
    fast = row["eager / opmill"] >= SLOWER and row.get("torch / opmill", 1) >= SLOWER
    floor = 3e-2 if "bfloat16" in row["configuration"] else FLOOR
    return bool(fast and row["opmill from eager"] <= 3 * row.get("torch from eager", 0) + floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    for field in dataclasses.fields(Settings):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings = Settings(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Settings)})
    names = [name for name in CONFIGURATIONS | HALVES if (name in options.only if options.only else name in CONFIGURATIONS)]
    if processes.launched():
        return launched(settings, names)
    given = json.dumps(dataclasses.asdict(settings))
    with tempfile.TemporaryDirectory() as folder:
        said = processes.together(Path(__file__), Path(folder), given, *names, size=options.processes, limit=LIMIT)
    found = [figures(list(rows)) for rows in zip(*([json.loads(line) for line in out.splitlines()] for out in said), strict=True)]
    print(processes.table_head(found[0]))
    for row in found:
        print(processes.table_line(row.values(), ".3g"))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    wrong = [row["configuration"] for row in found if not holds(row)]
    raise SystemExit(f"slower, or other losses: {wrong}" if wrong else 0)


def launched(settings: Settings, names: list[str]) -> None:
    for row in work(settings, names):
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, row)
        if dist.get_rank() == 0:
            print(json.dumps(figures(rows)), flush=True)
            for name, found in row.get("device", {}).items():
                print(json.dumps({"configuration": row["configuration"], "compiler": name, **found}), flush=True)
    dist.barrier()  # the first process keeps the store that others may still ask
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        rank, size, store, given, *chosen = sys.argv[1:]
        dist.init_process_group("gloo", store=dist.FileStore(store, int(size)), rank=int(rank), world_size=int(size))
        for row in work(Settings(**json.loads(given)), chosen):
            print(json.dumps(row), flush=True)
        dist.destroy_process_group()
    else:
        main()
