"""Losses of training over several processes, compiled against eager of the same configuration, both judged by eager in float64.

    python benchmarks/distributed_losses.py [--processes 2] [--steps 200] [--only NAME ...] [--json FILE]
    torchrun --nproc-per-node 2 benchmarks/distributed_losses.py [--steps 200] [--only NAME ...]

For each configuration the model is trained three times from the same weights on the same data: eager in float64, eager, and compiled by
opmill. A row has how far the losses of both are from float64 at most, and from one another, the number of graphs, and of graph breaks. The
script fails where compiled losses are further from float64 than eager's by more than a factor of two and a small floor. torchrun's
processes have a GPU each where there are as many, and the rows of the first are lines of JSON, as they are found."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)  # fmt: skip
from torch.nn.parallel import DistributedDataParallel

import processes

ROWS, LENGTH = 4, 16
LIMIT = 1200  # seconds for all processes together
REASON = 600
"""Characters."""
FLOOR = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a model: ``width`` of rows, ``hidden`` of what is between gate and down."""

    width: int = 32
    heads: int = 4
    hidden: int = 64
    words: int = 48
    layers: int = 3


SMALL = Sizes()


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.size = sizes.width // sizes.heads
        self.q, self.k, self.v, self.out = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (part(x).view(rows, length, -1, self.size).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, -1))


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(sizes.width, sizes.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(sizes.width), nn.RMSNorm(sizes.width)
        self.attention, self.feed = Attention(sizes), FeedForward(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Model(nn.Module):
    def __init__(self, sizes: Sizes = SMALL) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.head = nn.RMSNorm(sizes.width), nn.Linear(sizes.width, sizes.words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


Compile = Callable[[Any], Any]
Made = tuple[Any, Any, Any]  # what is called, what has the parameters, what tells whether gradients are exchanged


def _data_parallel(model: Model, compiled: Compile, outside: bool) -> Made:
    if outside:
        parallel = DistributedDataParallel(model, bucket_cap_mb=0.01)
        return compiled(parallel), model, parallel
    parallel = DistributedDataParallel(compiled(model), bucket_cap_mb=0.01)
    return parallel, model, parallel


def _sharded(model: Model, compiled: Compile, where: str, mesh: Any = None, policy: Any = None, **options: Any) -> Made:
    options |= {} if policy is None else {"mp_policy": policy}
    for position, block in enumerate(model.blocks):
        if where == "before":  # compiled, then sharded
            model.blocks[position] = block = compiled(block)
        fully_shard(block, mesh=mesh, **options)
        if where == "after":
            model.blocks[position] = compiled(block)
    fully_shard(model, mesh=mesh, **options)
    return (compiled(model) if where == "outside" else model), model, model


def tensor_parallel(model: Model, mesh: Any, sequence: bool) -> None:
    """Tensor parallel; ``sequence``: what lies between the parallel layers is divided along the sequence."""
    between = SequenceParallel() if sequence else None
    for block in model.blocks:
        plan: dict[str, Any] = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {f"feed.{name}": ColwiseParallel() for name in ("gate", "up")}
        ends = {"output_layouts": Shard(1)} if sequence else {}
        plan |= {name: RowwiseParallel(**ends) for name in ("attention.out", "feed.down")}
        if between is not None:
            given = functools.partial(PrepareModuleInput, input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
            plan |= {"first": between, "second": between, "attention": given(), "feed": given()}
        parallelize_module(block, mesh, plan)
    if between is not None:
        whole = {"input_layouts": Replicate(), "output_layouts": Shard(1)}
        last = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(model, mesh, {"words": RowwiseParallel(**whole), "norm": between, "head": last})
    else:
        parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def _tensor_parallel(model: Model, compiled: Compile, sequence: bool = False) -> Made:
    tensor_parallel(model, init_device_mesh(processes.place().type, (dist.get_world_size(),), mesh_dim_names=("tensor",)), sequence)
    return compiled(model), model, model


def _both(model: Model, compiled: Compile, where: str = "before") -> Made:
    size = dist.get_world_size()
    mesh = init_device_mesh(processes.place().type, (size // 2, 2), mesh_dim_names=("data", "tensor"))
    tensor_parallel(model, mesh["tensor"], True)
    return _sharded(model, compiled, where, mesh["data"])


def _hybrid(model: Model, compiled: Compile, where: str) -> Made:
    """Sharded over two processes, the same on each two."""
    mesh = init_device_mesh(processes.place().type, (dist.get_world_size() // 2, 2), mesh_dim_names=("replicas", "shards"))
    return _sharded(model, compiled, where, mesh)


HALF = functools.partial(MixedPrecisionPolicy, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
CONFIGURATIONS: dict[str, Callable[[Model, Compile], Made]] = {
    # First: torch takes a mesh without names, once there was one of the same processes, for one with names.
    "fsdp2 + tensor parallel": _both,
    "fsdp2 + tensor parallel, outside": functools.partial(_both, where="outside"),
    "hsdp": functools.partial(_hybrid, where="before"),
    "hsdp, outside": functools.partial(_hybrid, where="outside"),
    "ddp, outside": functools.partial(_data_parallel, outside=True),
    "ddp, inside": functools.partial(_data_parallel, outside=False),
    "fsdp2, outside": functools.partial(_sharded, where="outside"),
    "fsdp2, blocks compiled before": functools.partial(_sharded, where="before"),
    "fsdp2, blocks compiled after": functools.partial(_sharded, where="after"),
    "fsdp2, kept after forward": functools.partial(_sharded, where="before", reshard_after_forward=False),
    "fsdp2, bfloat16": lambda model, compiled: _sharded(model, compiled, "before", None, HALF()),
    "fsdp2, bfloat16, outside": lambda model, compiled: _sharded(model, compiled, "outside", None, HALF()),
    "tensor parallel": _tensor_parallel,
    "sequence parallel": functools.partial(_tensor_parallel, sequence=True),
}
ACCUMULATED = ("ddp, inside", "fsdp2, outside", "fsdp2, blocks compiled before")
"""Also with gradients of two steps added up before they are exchanged."""


@contextlib.contextmanager
def _unexchanged(holder: Any) -> Iterator[None]:
    if isinstance(holder, DistributedDataParallel):
        with holder.no_sync():
            yield
    else:
        holder.set_requires_gradient_sync(False)
        yield
        holder.set_requires_gradient_sync(True)


def losses(name: str, compiled: Compile, dtype: torch.dtype, steps: int) -> list[float]:
    """The losses of this rank in training by a configuration."""
    base, _, accumulated = name.partition(" | ")
    torch.manual_seed(0)
    place = processes.place()
    model = Model().to(place, dtype)
    call, owner, holder = CONFIGURATIONS[base](model, compiled)
    if isinstance(holder, nn.Module) and dtype is torch.float64 and "bfloat16" in base:
        call, owner, holder = _sharded(Model().to(place, dtype), compiled, "outside")
    optimizer = torch.optim.AdamW(owner.parameters(), lr=2e-3, foreach=False)
    alike = "tensor" in base or "sequence" in base  # ranks that share a row of data; two of each where both are
    part = dist.get_rank() // 2 if base.startswith("fsdp2 + ") else 0 if alike else dist.get_rank()
    torch.manual_seed(1 + part)
    tokens = torch.randint(0, SMALL.words, (8, ROWS, LENGTH + 1)).to(place)
    found = []
    for step in range(steps):
        batch = tokens[step % len(tokens)]
        first = bool(accumulated) and step % 2 == 0
        with _unexchanged(holder) if first else contextlib.nullcontext():
            loss = F.cross_entropy(call(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
        if not first:
            optimizer.step()
            optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


def work(steps: int, names: list[str]) -> Iterator[dict[str, Any]]:
    """A row of each configuration, once it has been trained by the processes of the default group."""
    import opmill
    from opmill.compile import record_of

    for name in names:
        made: list[Any] = []

        def compiled(module: Any, made: list[Any] = made) -> Any:
            made.append(opmill.compile(module))
            return made[-1]

        exact, eager = (losses(name, lambda module: module, dtype, steps) for dtype in (torch.float64, torch.float32))
        ours = losses(name, compiled, torch.float32, steps)
        records = {id(found[1]): found[1] for found in map(record_of, made) if found is not None}.values()
        yield {
            "configuration": name,
            "eager from float64": _apart(eager, exact),
            "opmill from float64": _apart(ours, exact),
            "opmill from eager": _apart(ours, eager),
            "last loss": ours[-1],
            "graphs": sum(len(r.graphs) for r in records),
            "breaks": sum(len(r.breaks) for r in records),
            "reasons": sorted({str(b)[:REASON] for r in records for b in r.breaks}),
            "fallbacks": [g.fallback for r in records for g in r.graphs if g.fallback],
        }
        opmill.reset()


def _apart(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf for a, b in zip(one, other, strict=True))


def together(size: int, steps: int, names: list[str], limit: float = LIMIT) -> list[list[dict[str, Any]]]:
    """What each process says of each configuration. Raises what `processes.together` raises."""
    with tempfile.TemporaryDirectory() as folder:
        said = processes.together(Path(__file__), Path(folder), str(steps), *names, size=size, limit=limit)
    return [[json.loads(line) for line in out.splitlines()] for out in said]


def is_right(row: dict[str, Any]) -> bool:
    """Whether compiled losses are as good as eager's."""
    floor = FLOOR[torch.bfloat16 if "bfloat16" in row["configuration"] else torch.float32]
    return bool(row["opmill from float64"] <= 2 * row["eager from float64"] + floor)


def names_for(processes: int) -> list[str]:
    return [*CONFIGURATIONS, *(f"{name} | accumulated" for name in ACCUMULATED)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [n for n in names_for(options.processes) if not options.only or n in options.only]
    if processes.launched():
        for row in work(options.steps, names):
            if dist.get_rank() == 0:
                print(json.dumps(row | {"right": is_right(row)}), flush=True)
        return dist.destroy_process_group()
    rows = together(options.processes, options.steps, names)[0]
    columns = [key for key in rows[0] if key not in ("fallbacks", "reasons")]
    print(processes.table_head(columns))
    for row in rows:
        print(processes.table_line([row[c] for c in columns], ".2e"))
        for fallback in row["fallbacks"]:
            print(f"  runs as torch's operators: {fallback}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    wrong = [row["configuration"] for row in rows if not is_right(row)]
    raise SystemExit(f"further from float64 than eager: {wrong}" if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        rank, size, store, steps, *chosen = sys.argv[1:]
        dist.init_process_group("gloo", store=dist.FileStore(store, int(size)), rank=int(rank), world_size=int(size))
        for row in work(int(steps), chosen):
            print(json.dumps(row), flush=True)
        dist.destroy_process_group()
    else:
        main()
