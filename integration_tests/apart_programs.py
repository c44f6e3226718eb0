"""What two processes do where one of them fails, is late, or compiles something else. Run by test_processes_apart.py:
``python apart_programs.py RANK SIZE STORE CASE``. A process says what it got, and what it raised."""

import datetime
import os
import sys
import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

import opmill
import opmill.backend
from opmill_graph_ir.exchanges.others import tell

PATIENT, HASTY = 300, 15
"""Seconds after which a process group gives up: one that nobody is to leave waiting, and one that is left waiting."""
CASE, RANK = sys.argv[4], int(sys.argv[1])
STORE = dist.FileStore(sys.argv[3], int(sys.argv[2]))


def function(x: torch.Tensor, odd: bool) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    if CASE == "breaks" and odd:
        print(end="")
    elif CASE == "other code" and odd:
        y = (y + 1) * 2 / 2 - 1
    z = y.sum(0).sin()
    dist.all_reduce(z)
    return z + 1


def sharded_step() -> list[float]:
    """FSDP2, where one process has batches of sizes that come and go, and code of its own between the blocks."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(3)))
    for k, block in enumerate(model):
        model[k] = fully_shard(opmill.compile(block))
    model, losses = fully_shard(model), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        x = torch.ones(2 + step * RANK, 8) * (step + 1)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return [float(p.full_tensor().sum()) for p in model.parameters()]


def over_a_mesh() -> list[float]:
    """Weights that lie in parts and are gathered, forward and backward, with gradients, in inference mode, and for sizes that change, while
    the second process runs uncompiled: both send the same in the same order."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh, results = init_device_mesh("cpu", (2,)), []

    def net() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).double()

    def in_parts(name: str, module: torch.nn.Module, mesh: Any) -> None:
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, torch.nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

    ends = lambda m, given, mesh: DTensor.from_local(given[0], mesh, [Replicate()], run_check=False), lambda m, out, mesh: out.full_tensor()
    columns = {"1": ColwiseParallel(), "3": RowwiseParallel()}
    sequence = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1)), "3": RowwiseParallel(output_layouts=Shard(1))}
    modules = [distribute_module(net(), mesh, in_parts, *ends), *(parallelize_module(net(), mesh, p) for p in (columns, sequence))]
    for module in modules:
        call = module if RANK else opmill.compile(module)
        for rows in (4, 6, 3, 10):
            x = torch.full((rows, 4, 8), 0.5, dtype=torch.float64) + torch.arange(8)
            with torch.inference_mode():
                call(x)
            out = call(x)
            out = out.full_tensor() if isinstance(out, DTensor) else out
            (out * out).sum().backward()
            gradients = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in module.parameters()]
            results += [float(out.detach().sum()), *(float(g.abs().sum()) for g in gradients)]
            module.zero_grad()
    return results


def as_sent(x: torch.Tensor) -> torch.Tensor:
    """What lies in another order than it is numbered in, and what is sent together: the second process runs this uncompiled."""
    y, z = x.t(), x * 2
    dist.all_reduce(y)
    with dist._coalescing_manager(group=dist.group.WORLD, async_ops=True) as manager:
        dist.all_reduce(z)
        dist.all_reduce(x)
    manager.wait()
    return y.sum(1) + z.sum(0) + x.sum(0)


def hanging(*names: str) -> dict[str, str]:
    """Options: a shared cache, whose file system never answers to these."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    def never(self: Any, *args: Any, **kwargs: Any) -> Any:
        threading.Event().wait()

    fsspec.register_implementation("hanging", type("Hanging", (MemoryFileSystem,), {"protocol": "hanging", **dict.fromkeys(names, never)}))
    os.environ["OPMILL_CACHE_KEY"] = "a secret that both of the processes know"
    return {"cache_url": "hanging://cache"}


def interfere() -> None:
    """The second process ends, or stands still, when it is about to compile."""

    def call(self: Any, *args: Any) -> Any:
        tell(f"{CASE}, when it was about to compile")
        if CASE == "killed":
            os._exit(9)
        STORE.wait(["gave up"], datetime.timedelta(seconds=PATIENT))
        os._exit(0)

    opmill.backend.GraphBackend.__call__ = call  # type: ignore[method-assign]


def main(rank: int, size: int) -> None:
    dist.init_process_group("gloo", store=STORE, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=PATIENT))
    dist.barrier()
    if CASE == "stands still":
        _set_pg_timeout(datetime.timedelta(seconds=HASTY))
    if rank == 1 and CASE in ("killed", "stands still"):
        interfere()
    try:
        if CASE == "sharded":
            print([round(v, 3) for v in sharded_step()], flush=True)
        elif CASE == "as sent":
            call = as_sent if RANK else opmill.compile(as_sent)
            print([call(torch.arange(6.0 * n).view(-1, 3) + RANK).tolist() for n in (1, 2, 3)], flush=True)
        elif CASE == "over a mesh":
            print([round(v, 6) for v in over_a_mesh()], flush=True)
        else:
            stuck = {"store without answers": ("cat",), "store that takes nothing": ("pipe_file", "makedirs")}.get(CASE)
            options = hanging(*stuck) if stuck and (rank == 1 or CASE.endswith("nothing")) else None
            compiled = opmill.compile(function, options=options)
            for _ in range(3):
                print(compiled(torch.full((4, 3), 0.5), rank == 1).tolist(), flush=True)
    except RuntimeError as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        print(f"raised {type(error).__name__}: {error} {notes}".replace("\n", " "), flush=True)
        STORE.set("gave up", "")
    finally:
        sys.stdout.flush()
        if CASE in ("killed", "stands still"):
            os._exit(0)  # the group is broken: nothing of it can be ended in order
    dist.destroy_process_group()


if __name__ == "__main__":
    main(RANK, int(sys.argv[2]))
