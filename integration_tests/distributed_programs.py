"""What two processes run together: each compares its compiled results with eager's and writes one line a program. Run by
test_distributed.py: ``python distributed_programs.py RANK WORLD STORE [BACKEND]``."""

import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import opmill
from opmill.compile import record_of
from telling import tell

STEPS = 4
DEVICE = torch.device("cpu")


def net(seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = [
        torch.nn.Linear(32, 64),
        torch.nn.GELU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 4),
    ]
    return torch.nn.Sequential(*layers).to(DEVICE)


class Branching(torch.nn.Module):
    """A parameter without a gradient in some steps, on some ranks; a print in the middle breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.odd, self.last = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, odd: bool) -> torch.Tensor:
        x = self.first(x).relu()
        torch._assert(x.shape[0] > 0, "rows")
        if odd:
            x = self.odd(x)
        print(end="")
        return self.last(x)


def train(model: Any, parameters: list[torch.Tensor], *, odd: bool = False, quiet: bool = False) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    for step in range(STEPS):
        x, target = torch.randn(8, 32).to(DEVICE), torch.randint(0, 4, (8,)).to(DEVICE)
        given = (x, bool((step + dist.get_rank()) % 2)) if odd else (x,)
        optimizer.zero_grad()
        if quiet and step % 2:
            with model.no_sync():
                F.cross_entropy(model(*given), target).backward()
        F.cross_entropy(model(*given), target).backward()
        optimizer.step()
    return [p.detach().clone() for p in parameters]


def data_parallel(outer: bool, make: Any = net, odd: bool = False, quiet: bool = True, **options: Any) -> str:
    """Weights after some steps against those of eager's DistributedDataParallel."""
    trained = []
    for compiled in (False, True):
        model = make().to(DEVICE)
        inside = opmill.compile(model) if compiled and not outer else model
        parallel = DistributedDataParallel(inside, device_ids=[DEVICE] if DEVICE.type == "cuda" else None, bucket_cap_mb=0.005, **options)
        trained.append(train(opmill.compile(parallel) if compiled and outer else parallel, list(model.parameters()), odd=odd, quiet=quiet))
    return differences(*trained)


def differences(wanted: Any, found: Any) -> str:
    pairs = list(zip(wanted, found, strict=True))
    worst = max(float((a.double() - b.double()).abs().max()) for a, b in pairs)
    return "" if worst < 2e-5 else f"differs by {worst}"


def gradients_come_early() -> str:
    """The first bucket is on its way before the last gradient is made."""
    model = net()
    compiled = opmill.compile(model)
    parallel = DistributedDataParallel(compiled, device_ids=[DEVICE] if DEVICE.type == "cuda" else None, bucket_cap_mb=0.005)
    order: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        order.append(f"bucket {bucket.index()}")
        return allreduce_hook(state, bucket)

    parallel.register_comm_hook(None, hook)
    for _ in range(3):
        order.clear()
        parallel(torch.randn(8, 32).to(DEVICE)).sum().backward()
    first = order.index("bucket 0")
    return "" if first < len(order) - 3 and not order[-1].startswith("5") and any(n[0].isdigit() for n in order[first:]) else str(order)


def agree(function: Any, graphs: int | None = None, fullgraph: bool = False, eager: Any = None) -> str:
    """``eager``: what it is compared with, where that is not the function itself."""
    compiled = opmill.compile(function, fullgraph=fullgraph)
    torch.manual_seed(dist.get_rank())
    found = ""
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 4).to(DEVICE)
            y = x.clone()
            wanted, got = (eager or function)(x), compiled(y)
            found = found or differences([wanted, x], [got, y])
    record = record_of(compiled)
    assert record is not None
    if graphs is not None and len(record[1].graphs) != graphs:
        found += f" {len(record[1].graphs)} graphs, {[str(b) for b in record[1].breaks]}"
    return found + "".join(g.fallback for g in record[1].graphs)


def world() -> Any:
    return dist.group.WORLD


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2, "sum", world()) + 1


def all_gather(x: torch.Tensor) -> torch.Tensor:
    return functional.all_gather_tensor(x.sin(), 0, world()).cos()


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    return functional.reduce_scatter_tensor(x.sin(), "sum", 0, world()) * 3


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    return functional.all_to_all_single(x.exp(), None, None, world()) * 2


def several(x: torch.Tensor, unused: Any = lambda y: y) -> torch.Tensor:
    a = functional.all_reduce(x * 2, "sum", world())
    b = functional.all_reduce(x.t() * 3, "max", world())
    unused(functional.all_reduce(x * 5, "sum", world()))
    h = (x.sin() + 1).softmax(-1) @ x
    return functional.broadcast(a + b.t(), 1, world()) + h


def several_waited(x: torch.Tensor) -> torch.Tensor:
    """What nobody waits for, torch keeps until the process ends, and its process group with it: a thread of Gloo that then drops a tensor
    of Python's while the interpreter ends is ended in the middle, and the process aborts."""
    return several(x, functional.wait_tensor)


def raw(x: torch.Tensor) -> torch.Tensor:
    space, name = torch.ops._c10d_functional, world().group_name
    y = x * 3
    space.wait_tensor(space.all_reduce_(y, "sum", name))
    h = space.all_gather_into_tensor(x.cos(), dist.get_world_size(), name)
    z = (x + 1).exp().sum(0)
    return space.wait_tensor(h) + z + y.sum()


def two() -> Any:
    return torch.empty(2, 4, 4, device=DEVICE)


def collective(call: Any) -> Any:
    """A function in which the collective comes between other operations; ``call(x)`` gives what is read afterwards."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return call(x * 2).sin() * x.sum()

    return function


def reduced(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def greatest(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, dist.ReduceOp.MAX, dist.group.WORLD)
    return x


def reduced_part(x: torch.Tensor) -> torch.Tensor:
    y = x.sigmoid()  # whose gradient reads what was reduced
    dist.all_reduce(y[1])
    return y


def later(x: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(x, async_op=True)
    y = x.new_ones(4, 4).exp()
    work.wait()
    return x + y


@opmill.disable
def apart() -> None:
    """Where a graph ends."""


def later_still(x: torch.Tensor) -> torch.Tensor:
    """Waited for in another graph."""
    work = dist.all_reduce(x, async_op=True)
    apart()
    assert work.wait()
    return x


def gathered(x: torch.Tensor) -> torch.Tensor:
    out = two()
    dist.all_gather_into_tensor(out.view(8, 4), x)
    return out[1] - out[0] + x


def gathered_list(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return parts[1] - parts[0] + x


def scattered(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(2, 4, device=DEVICE)
    dist.reduce_scatter_tensor(out, x.detach())  # Gloo makes gradients of its own part of it, which nobody means
    return torch.cat([out, x[2:]])


def scattered_list(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    dist.reduce_scatter(out, [x.detach(), x.detach() + 1])
    return out + x


def turned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out + x


def turned_in_parts(x: torch.Tensor) -> torch.Tensor:
    rank = dist.get_rank()
    out = torch.empty((6 if rank else 2), 4, device=DEVICE)
    dist.all_to_all_single(out, x, [1, 1] if rank == 0 else [3, 3], [1, 3])
    return out.sum(0) + x


def sent(x: torch.Tensor) -> torch.Tensor:
    dist.broadcast(x, 1)
    return x


def complex_sum(x: torch.Tensor) -> torch.Tensor:
    y = torch.complex(x, x + 1).detach()
    dist.all_reduce(y)
    return y.abs() + x


def of_a_group(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, group=GROUPS[0])
    return x


def in_turn(x: torch.Tensor) -> torch.Tensor:
    y, z = x + 1, x.t().contiguous()
    dist.all_reduce(y)
    dist.broadcast(z, 0)
    dist.all_reduce(z, group=GROUPS[0])
    return y - z


def differentiated(x: torch.Tensor) -> torch.Tensor:
    import torch.distributed.nn.functional as through

    return through.all_reduce(x.sin())


COLLECTIVES = [reduced, greatest, reduced_part, later, gathered, gathered_list, scattered, scattered_list, turned, turned_in_parts, sent, complex_sum, of_a_group, in_turn, differentiated]  # fmt: skip
GROUPS: list[Any] = []


def same_gradients(call: Any, graphs: int = 1) -> str:
    """Results and gradients of a collective in the middle of a function, against eager's; in ``graphs`` graphs."""
    function = collective(call)
    compiled, found = opmill.compile(function), []
    for run in (function, compiled):
        torch.manual_seed(dist.get_rank())
        leaf = torch.randn(4, 4).to(DEVICE).requires_grad_()
        out = run(leaf)
        out.sum().backward()
        with torch.no_grad():
            x = torch.randn(4, 4).to(DEVICE)
            found.append([out.detach(), leaf.grad, run(x), x])
    record = record_of(compiled)
    assert record is not None
    said = "".join(g.fallback for g in record[1].graphs)
    if len(record[1].graphs) != 2 * graphs:  # with and without gradients
        said += f" {len(record[1].graphs)} graphs, {[str(b) for b in record[1].breaks]}"
    return differences(*found) + said


def asked(question: Callable[[torch.Tensor, Any], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A program that asks something of a reduction that is under way."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        return y * question(y, work)

    return function


@opmill.disable
def asked_elsewhere(y: torch.Tensor, work: Any) -> float:
    assert isinstance(work, dist.Work) and work.get_future().wait()[0] is y
    return float(y.sum())


def held(y: torch.Tensor, work: Any, holder: Any = types.SimpleNamespace()) -> int:
    holder.work, holder.result = work, y
    holder.work.wait()
    return 2


ASKED: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "future": lambda y, work: work.get_future().wait()[0] is y,
    "value of the future": lambda y, work: work.get_future().wait()[0].sum(),
    "behind the future": lambda y, work: work.get_future().then(lambda done: done.value()[0].sin()).wait(),
    "result": lambda y, work: work.wait() and work.result()[0] is y,
    "class": lambda y, work: work.wait() and 1 + isinstance(work, dist.Work),
    "exception": lambda y, work: work.wait() and 1 + (work.exception() is None),
    "success": lambda y, work: work.wait() and 1 + work.is_success() + work.is_completed(),
    "native code": asked_elsewhere,
    "an object that keeps it": held,
}


def gathered_ahead(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x, async_op=True).get_future().wait()
    return parts[0] - parts[1]


def an_argument(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x + dist.get_rank()


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes, device=DEVICE)


MISTAKEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "a source that there is not": lambda y: dist.broadcast(y, src=9),
    "a negative source": lambda y: dist.broadcast(y, src=-1),
    "a source that the group has not": lambda y: dist.broadcast(y, group_src=5),
    "two sources": lambda y: dist.broadcast(y, src=0, group_src=0),
    "no source": lambda y: dist.broadcast(y),
    "bits of floats": lambda y: dist.all_reduce(y, op=dist.ReduceOp.BAND),
    "the greatest complex number": lambda y: dist.all_reduce(torch.complex(y, y), op=dist.ReduceOp.MAX),
    "a list": lambda y: dist.all_reduce([y]),
    "no list": lambda y: dist.all_gather(y, y),
    "an empty list": lambda y: dist.all_gather([], y),
    "another type": lambda y: dist.all_gather_into_tensor(ones(4).double(), ones(2)),
    "parts of two sizes": lambda y: dist.all_to_all_single(ones(4), ones(6)),
    "sums of parts": lambda y: dist.all_to_all_single(ones(4), ones(4), [2, 2], [1, 2]),
    "too few parts": lambda y: dist.all_to_all_single(ones(4), ones(4), [4], [4]),
    "too few tensors": lambda y: dist.all_to_all([ones(2)], [ones(2), ones(2)]),
    "too few results": lambda y: dist.all_gather([ones(2)], ones(2)),
    "too little room": lambda y: dist.all_gather_into_tensor(ones(3), ones(2)),
}
"""Exchanges that torch refuses in each process by itself, over any backend."""
MISTAKEN_OVER_GLOO: dict[str, Callable[[torch.Tensor], Any]] = {
    "parts of no size": lambda y: dist.all_to_all_single(ones(3), ones(3)),
    "another row": lambda y: dist.all_gather_into_tensor(ones(2, 2), ones(2)),
    "another shape in a list": lambda y: dist.all_gather([ones(2), ones(1, 2)], ones(2)),
    "small unsigned integers": lambda y: dist.all_reduce(ones(2).to(torch.uint16)),
    "eight bits": lambda y: dist.all_reduce(ones(2).to(torch.float8_e4m3fn)),
}


def hearing(call: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], tuple[torch.Tensor, str]]:
    """A program whose own ``except`` hears what is refused where it calls it."""

    def function(x: torch.Tensor) -> Any:
        y = x * 2
        try:
            call(y)
        except Exception as error:
            return y + 1, type(error).__name__
        return y, ""

    return function


def mistaken(call: Callable[[torch.Tensor], Any]) -> str:
    """What is refused is so where the program calls it, and the program's own ``except`` hears of it."""
    function, x = hearing(call), ones(3)
    (wanted, error), (found, other) = function(x), opmill.compile(function)(x)
    return differences([wanted], [found]) or ("" if error == other else f"{other}, not {error}")


def embedded(how: str) -> str:
    """Of an embedding each process has some rows. Until it is summed, the placement of its result has a mask: no graph gives that, and no
    fake one is left to eager's calls."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))

    def summed(x: Any) -> torch.Tensor:
        return x.redistribute(mesh, [Replicate()]).to_local()

    def program(tokens: torch.Tensor, table: Any) -> Any:
        found = F.embedding(DTensor.from_local(tokens, mesh, [Replicate()], run_check=False), table)
        if how == "a break":
            print(end="")
        if how == "an error":
            raise ValueError(str(tokens.shape))
        return found if how == "unsummed" else summed(found) * 2

    torch.manual_seed(0)
    table, tokens = distribute_tensor(torch.randn(9, 4).to(DEVICE), mesh, [Shard(0)]), torch.randint(0, 9, (3, 5)).to(DEVICE)
    compiled, said = opmill.compile(program), []
    for run in (program, compiled, compiled, program):
        try:
            result = run(tokens, table)
            said.append(str((summed(result) if how == "unsummed" else result).tolist()))
        except (ValueError, RuntimeError) as error:
            said.append(str(error))
    return "" if len(set(said)) == 1 else f"{said[0]} and {set(said[1:])}"


def sharded() -> str:
    """FSDP: parameters are there only while they are used."""
    from torch.distributed.fsdp import fully_shard

    trained = []
    for compiled in (False, True):
        model = net()
        for part in model:
            if isinstance(part, torch.nn.Linear):
                fully_shard(part)
        fully_shard(model)
        call = opmill.compile(model) if compiled else model
        trained.append([p.full_tensor() if hasattr(p, "full_tensor") else p for p in train(call, list(model.parameters()))])
    return differences(*trained)


WRAPPING = """
import functools, torch
from torch.utils.checkpoint import checkpoint

class Layer(torch.nn.Module):
    def __init_subclass__(cls):
        forward = cls.forward
        @functools.wraps(forward)
        def checkpointing(self, *args):
            if type(self).forward is checkpointing:
                return checkpoint(functools.partial(forward, self), *args, use_reentrant=False)
            return forward(self, *args)
        cls.forward = checkpointing

class Block(Layer):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
    def forward(self, x):
        return x + self.inner(x.to(torch.float32)).relu()
"""


def checkpointed_blocks() -> str:
    """Blocks of a library that wraps their ``forward`` in every class derived from theirs, as the one that FSDP makes."""
    from torch.distributed.fsdp import fully_shard

    library: dict[str, Any] = {"__name__": "wrapping"}
    exec(compile(WRAPPING, "/site-packages/wrapping.py", "exec"), library)
    x, gradients = torch.randn(3, 8, device=DEVICE), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), library["Block"](), library["Block"]()).to(DEVICE)
        before = opmill.counters()["graphs"]
        for k in (1, 2):
            model[k] = fully_shard(opmill.compile(model[k]) if compiled else model[k])
        fully_shard(model)
        model(x).square().sum().backward()
        gradients.append([p.grad.full_tensor() for p in model.parameters()])
        if compiled and opmill.counters()["graphs"] == before:
            return "no graph"
    return differences(*gradients)


PROGRAMS: dict[str, Any] = {
    "ddp, compiled outside": lambda: data_parallel(True),
    "ddp, compiled inside": lambda: data_parallel(False),
    "ddp, gradients as views of buckets": lambda: data_parallel(False, gradient_as_bucket_view=True),
    "ddp, static graph": lambda: data_parallel(True, quiet=False, static_graph=True),
    "ddp, unused parameters": lambda: data_parallel(False, Branching, odd=True, quiet=False, find_unused_parameters=True),
    "ddp, gradients come early": gradients_come_early,
    "all_reduce": lambda: agree(all_reduce, 1, True),
    "all_gather": lambda: agree(all_gather, 1, True),
    "reduce_scatter": lambda: agree(reduce_scatter, 1, True),
    "all_to_all": lambda: agree(all_to_all, 1, True),
    "several": lambda: agree(several, 1, True, several_waited),
    "raw": lambda: agree(raw, 1, True),
    **{f"work asked for {name}": partial(agree, asked(question)) for name, question in ASKED.items()},
    "work of several tensors": lambda: agree(gathered_ahead),
    "an argument": lambda: agree(an_argument, 1, True),
    **{call.__name__: partial(same_gradients, call) for call in COLLECTIVES},
    **{f"mistaken: {name}": partial(mistaken, call) for name, call in MISTAKEN.items()},
    "later, in another graph": lambda: same_gradients(later_still, 3),
    **{f"embedding, {how}": partial(embedded, how) for how in ("summed", "a break", "unsummed", "an error")},
    "fsdp": sharded,
    "fsdp, checkpointed blocks": checkpointed_blocks,
}


def main(rank: int, size: int, store: str, backend: str = "gloo") -> None:
    global DEVICE
    if backend == "nccl":
        torch.cuda.set_device(rank)
        DEVICE = torch.device("cuda", rank)
    dist.init_process_group(backend, store=dist.FileStore(store, size), rank=rank, world_size=size)
    if backend == "gloo":
        PROGRAMS.update((f"mistaken: {name}", partial(mistaken, call)) for name, call in MISTAKEN_OVER_GLOO.items())
    GROUPS.append(dist.new_group(list(range(size))))
    tell(PROGRAMS)
    GROUPS.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
