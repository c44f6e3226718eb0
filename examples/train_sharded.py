"""Trains a small Llama-like model on the bytes of this repository's documentation, on as many processes as there are:

    torchrun --nproc-per-node 2 examples/train_sharded.py --compiler opmill

Parameters are sharded (FSDP2) over one dimension of a mesh and split (tensor parallelism) over the other, in bfloat16 with float32 copies;
of each block the products are kept for the backward and the rest is computed again; blocks are compiled one by one. Checkpoints are written
by torch.distributed.checkpoint: a run that is stopped goes on where it was, with the same losses, under any of the compilers.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import opmill  # whatever compiles: it waits for threads of process groups before the interpreter ends

KEPT = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default, torch.ops.aten._scaled_dot_product_cudnn_attention.default}  # fmt: skip


def policy(context, operator, *args, **kwargs):
    """What is dear to compute again is kept."""
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).type_as(x)


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(3 * width, width, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.feed = Attention(width, heads), FeedForward(width)
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)

    def layer(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x), cos, sin)
        return x + self.feed(self.between(x))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(self.layer, x, cos, sin, use_reentrant=False, context_fn=contexts)


class Llama(nn.Module):
    def __init__(self, width: int, heads: int, depth: int, vocabulary: int = 256) -> None:
        super().__init__()
        self.size = width // heads
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        angles = places[:, None] * 10_000.0 ** -(torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        x, cos, sin = self.words(tokens), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def split(model: Llama, mesh: DeviceMesh) -> None:
    """Each block over the processes of the mesh: first by columns, then by rows, one reduction after each pair."""
    plan = {f"attention.{n}": ColwiseParallel() for n in "qkv"} | {f"feed.{n}": ColwiseParallel() for n in ("gate", "up")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan | {"attention.out": RowwiseParallel(), "feed.down": RowwiseParallel()})


def compile_blocks(model: Llama, compiler: str) -> None:
    for block in model.blocks:
        if compiler == "opmill":
            block.forward = opmill.compile(block.forward)
        elif compiler == "torch":
            block.forward = torch.compile(block.forward)


def shard(model: Llama, mesh: DeviceMesh) -> None:
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=half)


def text(folder: Path) -> torch.Tensor:
    """The documentation, one byte after the other."""
    pages = sorted([*folder.glob("*.md"), *folder.glob("docs/**/*.md"), *folder.glob("packages/*/*.md")])
    return torch.frombuffer(bytearray(b"\n".join(page.read_bytes() for page in pages)), dtype=torch.uint8)


def batch(data: torch.Tensor, step: int, part: int, rows: int, length: int, device: str) -> torch.Tensor:
    """Rows of text, the same for a step whenever it is run; those of one ``part`` of the mesh go to all that share its parameters."""
    generator = torch.Generator().manual_seed(step * 1009 + part)
    starts = torch.randint(len(data) - length - 1, (rows,), generator=generator)
    return torch.stack([data[start : start + length + 1] for start in starts.tolist()]).long().to(device)


def memory(device: str) -> float:
    """GiB at most, of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Progress:
    """A line with the loss, tokens a second and memory, by the first process; plain lines where nobody watches."""

    def __init__(self, first: int, steps: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.shown = dist.get_rank() == 0
        columns = TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        self.bar = Progress(*columns, disable=not (self.shown and sys.stderr.isatty()))
        self.task = self.bar.add_task("", total=steps, completed=first)

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def step(self, number: int, loss: float, rate: float, gib: float) -> None:
        said = f"loss {loss:.6f}  {rate:,.0f} tokens/s  {gib:.2f} GiB"
        self.bar.update(self.task, completed=number + 1, description=said)
        if self.shown and self.bar.disable:
            print(f"step {number}  {said}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", choices=["eager", "torch", "opmill"], default="opmill")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stop-after", type=int, help="end after so many steps, as if interrupted")
    parser.add_argument(
        "--tensor-parallel", type=int, default=1, help="processes that one block is split over; the others share batches and parameters"
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--checkpoints", type=Path, help="folder to write to every --every steps, and to go on from")
    parser.add_argument("--every", type=int, default=50)
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    world = dist.get_world_size()
    mesh = init_device_mesh(device, (world // wanted.tensor_parallel, wanted.tensor_parallel), mesh_dim_names=("data", "tensor"))

    torch.manual_seed(0)
    model = Llama(wanted.width, wanted.heads, wanted.depth).to(device)
    if wanted.tensor_parallel > 1:
        split(model, mesh["tensor"])
    compile_blocks(model, wanted.compiler)
    shard(model, mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, foreach=wanted.tensor_parallel == 1)

    first, data = 0, text(Path(__file__).parents[1])
    folder = wanted.checkpoints
    if folder is not None and (folder / "step").exists():
        first = int((folder / "step").read_text())
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"{first}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)

    last = min(wanted.steps, first + wanted.stop_after) if wanted.stop_after else wanted.steps
    part, began = mesh["data"].get_local_rank(), time.perf_counter()
    with Progress(first, wanted.steps) as progress:
        for step in range(first, last):
            tokens = batch(data, step, part, wanted.rows, wanted.length, device)
            loss = F.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach().clone()
            dist.all_reduce(mean, group=mesh["data"].get_group())
            mean /= mesh["data"].size()
            now = time.perf_counter()
            rate, began = wanted.rows * wanted.length * mesh["data"].size() / (now - began), now
            progress.step(step, mean.item(), rate, memory(device))
            if folder is not None and ((step + 1) % wanted.every == 0 or step + 1 == last):
                weights, moments = get_state_dict(model, optimizer)
                dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"{step + 1}")
                if dist.get_rank() == 0:
                    (folder / "step").write_text(str(step + 1))
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
