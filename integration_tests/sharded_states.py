"""What two processes do with a fully sharded model that is compiled: state dicts, checkpoints, gradients that are not exchanged, what is told of it.
Each case says "right", or what is wrong. Run by test_sharded_states.py: ``python sharded_states.py RANK SIZE STORE FOLDER``."""

import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

import opmill
from opmill.compile import record_of
from telling import tell

FOLDER: list[Path] = []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = torch.nn.ModuleList(Block() for _ in range(3)), torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def eager(model: Model) -> Any:
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def outside(model: Model) -> Any:
    return opmill.compile(eager(model))


def blocks_before(model: Model) -> Any:
    for position, block in enumerate(model.blocks):
        model.blocks[position] = fully_shard(opmill.compile(block))
    return fully_shard(model)


def blocks_after(model: Model) -> Any:
    for position, block in enumerate(model.blocks):
        model.blocks[position] = opmill.compile(fully_shard(block))
    return fully_shard(model)


def whole_before(model: Model) -> Any:
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(opmill.compile(model))


WAYS: dict[str, Callable[[Model], Any]] = {f.__name__: f for f in (outside, blocks_before, blocks_after, whole_before)}


def made(way: Callable[[Model], Any], seed: int = 0) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = way(Model())
    return model, torch.optim.AdamW(model.parameters(), 0.01)


def train(model: Any, optimizer: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        torch.manual_seed(100 * step + dist.get_rank())
        loss = model(torch.randn(4, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def whole(state: dict[str, Any]) -> dict[str, Any]:
    return {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in state.items()}


def alike(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    if list(found) != list(wanted):
        return f"keys {sorted(set(found) ^ set(wanted))}, or their order"
    for name, value in wanted.items():
        if type(found[name]) is not type(value) or getattr(found[name], "placements", None) != getattr(value, "placements", None):
            return f"{name} is {type(found[name])}"
    found, wanted = whole(found), whole(wanted)
    return next((f"{k} differs" for k, v in wanted.items() if not torch.allclose(found[k], v, atol=1e-5)), "")


def close(found: list[float], wanted: list[float]) -> str:
    return "" if torch.allclose(torch.tensor(found), torch.tensor(wanted), rtol=1e-4, atol=1e-6) else f"losses {found}, not {wanted}"


def state_dicts(way: Callable[[Model], Any]) -> str:
    """The same after training as in eager, and loaded into the other they go on alike."""
    model, optimizer = made(way)
    reference, its = made(eager)
    said = close(train(model, optimizer, range(3)), train(reference, its, range(3)))
    said = said or alike(model.state_dict(), reference.state_dict())
    other, others = made(way, seed=1)
    first, firsts = made(eager, seed=1)
    train(other, others, range(1))
    train(first, firsts, range(1))
    other.load_state_dict(reference.state_dict())
    first.load_state_dict(model.state_dict())
    return said or close(train(other, others, range(3, 5)), train(first, firsts, range(3, 5)))


def checkpoints(way: Callable[[Model], Any], writer: Callable[[Model], Any], reader: Callable[[Model], Any]) -> str:
    """Written by one and read by another, training goes on as if it had not stopped."""
    model, optimizer = made(writer)
    train(model, optimizer, range(2))
    folder = FOLDER[0] / f"{way.__name__} {writer.__name__} {reader.__name__}"
    parts = get_state_dict(model, optimizer)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder)
    wanted = train(model, optimizer, range(2, 4))
    again, its = made(reader, seed=5)
    train(again, its, range(1))  # what is compiled before it is loaded reads what was loaded
    state = dict(zip(("model", "optimizer"), get_state_dict(again, its)))
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(again, its, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return close(train(again, its, range(2, 4)), wanted)


def full_state(way: Callable[[Model], Any]) -> str:
    """A whole state dict on rank 0, and back."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optimizer = made(way)
    reference, its = made(eager)
    train(model, optimizer, range(1))
    train(reference, its, range(1))
    found, wanted = (get_state_dict(*pair, options=options)[0] for pair in ((model, optimizer), (reference, its)))
    said = alike(found, wanted)
    file = io.BytesIO()
    torch.save(found, file)
    file.seek(0)
    alone = Model()
    if dist.get_rank() == 0:
        alone.load_state_dict(torch.load(file))
    return said


def accumulated(way: Callable[[Model], Any]) -> str:
    """Gradients that are exchanged with the second of two backwards."""
    grads = []
    for each in (way, eager):
        model, _ = made(each)
        for step in range(2):
            model.set_requires_gradient_sync(step == 1)
            torch.manual_seed(step + dist.get_rank())
            model(torch.randn(4, 16)).square().mean().backward()
        grads.append({k: p.grad for k, p in model.named_parameters()})
    return alike(*grads)


def told(way: Callable[[Model], Any]) -> str:
    """Graphs and breaks are known of each part that was compiled, whatever class it has got since."""
    model, optimizer = made(way)
    train(model, optimizer, range(2))
    for part in [p for p in model.modules() if "_opmill_original" in {n for c in type(p).__mro__ for n in vars(c)}]:
        record = record_of(part)
        if record is None or not record[1].graphs or any(g.fallback for g in record[1].graphs):
            return f"{type(part).__name__}: {record and record[1].graphs}"
    return ""


def data_parallel(**options: Any) -> str:
    """No break at the wrapper, and the gradients of eager."""
    grads = []
    for compiled in (True, False):
        torch.manual_seed(0)
        model = DistributedDataParallel(Model(), bucket_cap_mb=0.002, **options)
        call = opmill.compile(model) if compiled else model
        for step in range(4):
            torch.manual_seed(step + 10 * dist.get_rank())
            call(torch.randn(4, 16)).square().mean().backward()
        if compiled:
            record = record_of(call)
            assert record is not None
            if record[1].breaks or len(record[1].graphs) != 1 or record[1].graphs[0].fallback:
                return f"{len(record[1].graphs)} graphs, {[str(b) for b in record[1].breaks]}"
        grads.append({k: p.grad for k, p in model.named_parameters()} | dict(model.named_buffers()))
    return alike(*grads)


def flat_parameters(original: bool, where: str) -> str:
    """FSDP1, whose parameters are parts of flat ones, and whose forward keeps the books."""
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        model: Any = Model()
        if compiled and where == "inside":
            for position, block in enumerate(model.blocks):
                model.blocks[position] = opmill.compile(block)
        policy = ModuleWrapPolicy({Block})
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=original, device_id=torch.device("cpu"))
        call = opmill.compile(model) if compiled and where == "outside" else model
        losses = train(call, torch.optim.SGD(model.parameters(), 0.1), range(4))
        with FullyShardedDataParallel.summon_full_params(model):
            found.append((losses, {k: v.detach().clone() for k, v in model.state_dict().items()}))
    return close(found[0][0], found[1][0]) or alike(found[0][1], found[1][1])


CASES: dict[str, Callable[[], str]] = {
    **{f"{f.__name__}, {name}": partial(f, way) for f in (state_dicts, full_state, accumulated, told) for name, way in WAYS.items()},
    **{f"checkpoints, {name}": partial(checkpoints, way, way, way) for name, way in WAYS.items()},
    **{f"checkpoints, {name} to eager": partial(checkpoints, way, way, eager) for name, way in WAYS.items()},
    **{f"checkpoints, eager to {name}": partial(checkpoints, way, eager, way) for name, way in WAYS.items()},
    **{f"fsdp1, {w}, {o}": partial(flat_parameters, o, w) for w in ("outside", "inside") for o in (True, False)},
    "ddp": data_parallel,
    "ddp, views": partial(data_parallel, gradient_as_bucket_view=True),
    "ddp, unused": partial(data_parallel, find_unused_parameters=True),
    "ddp, static graph": partial(data_parallel, static_graph=True),
}


def main(rank: int, size: int, store: str, folder: str) -> None:
    FOLDER.append(Path(folder))
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    tell(CASES)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
