"""What two processes compute with tensors over a mesh, compiled, against eager: sizes that change, optimizers, attributes, exchanges that
are differentiated. Each case says "right", or what is wrong. Run by test_mesh_programs.py: ``python mesh_programs.py RANK SIZE STORE``."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor as over_mesh
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import opmill
from opmill.compile import record_of
from telling import tell

SIZES = (4, 6, 10, 16, 8)
UNEVEN = (5, 9, 12, 7, 8, 15, 6)
"""Of which the processes have parts of one size or of two: each kind has a graph."""


@cache
def mesh() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def noise(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def over(placement: Any, *sizes: int, seed: int = 0) -> Any:
    return distribute_tensor(noise(*sizes, seed=seed), mesh(), [placement])


def known(value: Any) -> Any:
    """A result as something to compare: the whole of it, and how it is laid out."""
    if isinstance(value, DTensor):
        return [value.placements, value.to_local().detach().clone(), value.full_tensor().detach()]
    if isinstance(value, tuple):
        return [known(each) for each in value]
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def apart(found: Any, wanted: Any) -> str:
    if isinstance(wanted, (list, tuple)):
        return next(filter(None, map(apart, found, wanted)), "") if len(found) == len(wanted) else f"{found}, not {wanted}"
    if not isinstance(wanted, torch.Tensor):
        return "" if found == wanted else f"{found}, not {wanted}"
    alike = type(found) is type(wanted) and found.shape == wanted.shape and found.dtype is wanted.dtype
    return "" if alike and torch.allclose(found, wanted) else f"{found}, not {wanted}"


def told(compiled: Any, graphs: int) -> str:
    record = record_of(compiled)
    assert record is not None
    said = "".join(g.fallback for g in record[1].graphs)
    good = len(record[1].graphs) <= graphs and not record[1].breaks
    return said if good else f"{said} {len(record[1].graphs)} graphs, {[str(b) for b in record[1].breaks]}"


def of_sizes(make: Callable[[], Any], give: Callable[[int], tuple[Any, ...]], graphs: int = 2, sizes: Sequence[int] = SIZES) -> str:
    """A function for rows of many numbers: the first graph is of the first number, the second of all others."""
    function = make()
    compiled = opmill.compile(function)
    for rows in sizes:
        found = []
        for run in (compiled, function):
            inputs = give(rows)
            leaves = [x.detach().requires_grad_() for x in inputs]
            result = run(*leaves)
            result.square().sum().backward()
            parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
            found.append([known(result), *(known(x.grad) for x in (*leaves, *parameters))])
            for parameter in parameters:
                parameter.grad = None
        if said := apart(*found):
            return f"{rows} rows: {said}"
    return told(compiled, graphs)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def block(plan: dict[str, Any]) -> Any:
    return parallelize_module(Block().double(), mesh(), plan)


COLUMNS = {"up": ColwiseParallel(), "down": RowwiseParallel()}
SEQUENCE = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}
ROWS_APART = {
    "norm": SequenceParallel(sequence_dim=0),
    "up": ColwiseParallel(input_layouts=Shard(0)),
    "down": RowwiseParallel(output_layouts=Shard(0)),
}


class OwnRows(nn.Module):
    """Each process takes its part of the rows: which of two ways to lay out operands costs less is asked of sizes that are quotients."""

    def __init__(self) -> None:
        super().__init__()
        self.block = block(ROWS_APART)

    def forward(self, x: Any) -> Any:
        return self.block(x.chunk(dist.get_world_size())[dist.get_rank()])


OF_SIZES: dict[str, Callable[[], str]] = {
    "points": partial(of_sizes, lambda: lambda x: (x * 2).relu() + x.sin(), lambda n: (over(Shard(0), n, 8),)),
    "a sum": partial(of_sizes, lambda: lambda x: (x * 2).sum(1), lambda n: (over(Shard(0), n, 8),)),
    "a sum over processes": partial(of_sizes, lambda: lambda x: (x * 2).sum(0), lambda n: (over(Shard(0), n, 8),)),
    "columns": partial(of_sizes, lambda: lambda x: x.softmax(-1), lambda n: (over(Shard(1), n, 8),)),
    "a product": partial(of_sizes, lambda: lambda x, w: x @ w, lambda n: (over(Shard(0), n, 8), over(Replicate(), 8, 4))),
    "a product of columns": partial(of_sizes, lambda: lambda x, w: x @ w, lambda n: (over(Replicate(), n, 8), over(Shard(1), 8, 4))),
    "rows in three dimensions": partial(of_sizes, lambda: lambda x: x.flatten(0, 1).exp(), lambda n: (over(Shard(0), n, 3, 8),)),
    "a product still to be summed": partial(
        of_sizes, lambda: lambda x, w: (x @ w).relu().sum(1), lambda n: (over(Replicate(), n, 8), over(Shard(1), 8, 4))
    ),
    "gathered": partial(of_sizes, lambda: lambda x: x.redistribute(x.device_mesh, [Replicate()]) * 2, lambda n: (over(Shard(0), n, 8),)),
    "here": partial(of_sizes, lambda: lambda x: x.to_local() * 2, lambda n: (over(Shard(0), n, 8),)),
    "tensor parallel": partial(of_sizes, lambda: block(COLUMNS), lambda n: (noise(n, 8),)),
    "sequence parallel": partial(of_sizes, lambda: block(SEQUENCE), lambda n: (noise(n, 4, 8),)),
    "sequence parallel, own rows": partial(of_sizes, OwnRows, lambda n: (noise(n, 8),)),
}


uneven = partial(of_sizes, graphs=3, sizes=UNEVEN)
OF_UNEVEN: dict[str, Callable[[], str]] = {
    "points": partial(uneven, lambda: lambda x: (x * 2).relu() + x.sin(), lambda n: (over(Shard(0), n, 8),)),
    "sums": partial(uneven, lambda: lambda x: (x * 2).sum(1).exp(), lambda n: (over(Shard(0), n, 8),)),
    "columns": partial(uneven, lambda: lambda x: x.softmax(-1), lambda n: (over(Shard(1), 3, n),)),
    "a product": partial(uneven, lambda: lambda x, w: x @ w, lambda n: (over(Shard(0), n, 8), over(Replicate(), 8, 4))),
    "gathered": partial(uneven, lambda: lambda x: x.redistribute(x.device_mesh, [Replicate()]) * 2, lambda n: (over(Shard(0), n, 8),)),
    "whole": partial(uneven, lambda: lambda x: x.full_tensor() * x.shape[0], lambda n: (over(Shard(0), n, 8),)),
    "here": partial(uneven, lambda: lambda x: x.to_local() * x.shape[0], lambda n: (over(Shard(0), n, 8),)),
    "turned": partial(uneven, lambda: lambda x: x.redistribute(placements=[Shard(1)]).cos(), lambda n: (over(Shard(0), n, 8),)),
    "transposed": partial(uneven, lambda: lambda x, y: x.t() + y, lambda n: (over(Shard(0), n, 8), over(Shard(1), 8, n))),
}


def optimized(cls: Any, **options: Any) -> str:
    """Steps over parameters of which one lies in parts, one is whole everywhere and one is plain."""
    found = []
    for compiled in (True, False):
        made = [over(Shard(0), 6, 4), over(Replicate(), 3, seed=1), noise(5, seed=2)]
        parameters = [nn.Parameter(x) for x in made]
        optimizer = cls(parameters, lr=0.1, **options)
        step = opmill.compile(optimizer.step) if compiled else optimizer.step
        for k in range(4):
            for parameter, x in zip(parameters, made, strict=True):
                parameter.grad = (x.detach() + k).sin()
            step()
        if compiled:
            moved = [(u.compiled, u.left) for u in step.updates()]
            if moved != [(len(parameters), 0)]:
                return f"compiled and left: {moved}"
        if any(p._version < 4 for p in parameters):
            return f"versions {[p._version for p in parameters]}"
        found.append([known(p.detach()) for p in parameters])
    return apart(*found)


@opmill.disable
def in_rows(x: Any) -> Any:
    """Runs between graphs: its gradient is gathered while the backward goes on."""
    return x.redistribute(x.device_mesh, [Shard(0)], async_op=True)


def late_gradients() -> str:
    """A compiled graph waits for the gradient that it is handed."""

    def program(x: Any) -> Any:
        return in_rows(x.sin() * 2).cos()

    compiled, found = opmill.compile(program), []
    for run in (compiled, program):
        x = over(Replicate(), 2048, 1024).requires_grad_()
        run(x).sum().backward()
        found.append(known(x.grad))
    return apart(*found)


def embedded() -> str:
    """Rows of an embedding that other processes have, of many numbers of tokens: what DTensor runs for sizes alone is in no graph, where it
    would read memory that nobody has written."""
    model = parallelize_module(nn.Sequential(nn.Embedding(32, 8)).double(), mesh(), {"0": RowwiseParallel(input_layouts=Replicate())})
    compiled = opmill.compile(model)
    for length in SIZES:
        tokens, found = torch.arange(2 * length).view(2, length) * 7 % 32, []
        for run in (compiled, model):
            result = run(tokens)
            result.square().sum().backward()
            found.append([known(result), *(known(p.grad) for p in model.parameters())])
            model.zero_grad()
        if said := apart(*found):
            return said
    record = record_of(compiled)
    assert record is not None
    extra = [step for g in record[1].graphs for plan in g.report.plans for step in plan.steps if "empty_strided" in str(step)]
    return told(compiled, 2) or "".join(map(str, extra))


def inferred() -> str:
    """In inference mode, where DTensor asks what an operator is made of by running it without data. Of the costs that it compares, two swap
    places between these sizes, though others are lower: there is a graph for each side."""
    model = block(COLUMNS)
    compiled = opmill.compile(model)
    for rows in SIZES:
        x = noise(rows, 8)
        with torch.inference_mode():
            wanted = model(x)
            if said := apart(compiled(x), wanted):
                return said
    return told(compiled, 3)


def of_the_whole(x: Any) -> Any:
    spec = x._spec
    return x.to_local() * spec.tensor_meta.shape[0] + spec.ndim * spec.num_shards


def of_what_is_computed(x: Any) -> Any:
    spec = (x * 2)._spec
    return x.to_local() * spec.tensor_meta.shape[0] + spec.shape[0]


def compared(x: Any) -> Any:
    other = (x * 2)._spec
    return x.to_local() + (x._spec == other) + 2 * (hash(x._spec) == hash(other)) + 4 * (x._spec is x._spec)


def described(question: Callable[[Any], Any]) -> str:
    """What a program asks of the layout of a tensor, which has the sizes of the whole, is that of the tensor of the call."""
    compiled = opmill.compile(question)
    for rows in (*SIZES, 5, 7):
        for placement in (Shard(0), Replicate()):
            x = over(placement, rows, 3)
            if said := apart(compiled(x), question(x)):
                return f"{rows} rows: {said}"
    return ""


def made_over_a_mesh() -> str:
    """Functions that make tensors over a mesh are operations of the graph; their sizes may be those of an argument."""
    devices = mesh()

    def program(x: Any) -> Any:
        parts = {"device_mesh": devices, "placements": [Shard(0)], "dtype": torch.float64}
        rows = DTensor.from_local(x, devices, [Replicate()], run_check=False).redistribute(placements=[Shard(0)])
        first = over_mesh.ones(x.shape[0], 3, **parts) + over_mesh.full((x.shape[0], 3), 2.5, **parts)
        last = distribute_tensor(x, devices, [Shard(0)], src_data_rank=None) + over_mesh.zeros(x.shape[0], 3, **parts)
        return first * rows, last, over_mesh.empty(x.shape[0], 3, **parts).shape

    compiled = opmill.compile(program)
    for rows in SIZES:
        x = noise(rows, 3)
        if said := apart(known(compiled(x)), known(program(x))):
            return f"{rows} rows: {said}"
    return told(compiled, 2)


def noted() -> str:
    """What a program puts on parameters over a mesh, and on what it computes."""
    found = []

    def program(parameter: Any, x: Any) -> Any:
        parameter.main, parameter.shared = x * 2, True
        result = parameter * x
        result.note = result.shape[0] + int(parameter.shared)
        return result, result.note * parameter.main

    compiled = opmill.compile(program)
    for run in (compiled, program):
        parameter = nn.Parameter(over(Shard(0), 4, 2))
        result, other = run(parameter, over(Shard(0), 4, 2, seed=1))
        found.append([known(result), known(other), result.note, parameter.shared, known(parameter.main)])
    return apart(*found) or told(compiled, 1)


def replicated(x: Any, y: Any) -> Any:
    with implicit_replication():
        return (x * y + y).sin()


def replicated_in_the_middle(x: Any, y: Any) -> Any:
    a = x.exp()
    with implicit_replication():
        with implicit_replication():  # whose end ends both
            b = a + y
        try:
            b = b * y
        except RuntimeError:
            b = b * 3
    return b.cos()


def replicated_and_raised(x: Any, y: Any) -> Any:
    try:
        with implicit_replication():
            a = x + y
            raise ValueError
    except ValueError:
        pass
    try:
        return a + y
    except RuntimeError:
        return a * 2


def replicated_around_a_break(x: Any, y: Any) -> Any:
    with implicit_replication():
        a = x + y
        in_between()
        return a * y


@opmill.disable
def in_between() -> None:
    """Where a graph ends."""


@implicit_replication()
def replicated_whole(x: Any, y: Any) -> Any:
    return x - y


def replicated_gradients(x: Any, y: Any) -> Any:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    with implicit_replication():
        return torch.autograd.grad((x * y).sum().full_tensor(), [x, y])


def of_replication(function: Callable[..., Any], order: Sequence[Callable[[], Any]], graphs: int = 1) -> str:
    """What eager gives or raises, without gradients, with them, and where the caller has let plain tensors be taken."""
    compiled = opmill.compile(function)
    for around in order:
        for differentiated in (False, True):
            found: list[Any] = []
            for run in (compiled, function):
                x, y = over(Shard(0), 4, 8).requires_grad_(differentiated), noise(4, 8, seed=1)
                try:
                    with around():
                        result = run(x, y)
                        if getattr(result, "requires_grad", False):
                            result.square().sum().full_tensor().backward()
                    found.append([known(result), known(x.grad)])
                except RuntimeError as error:
                    found.append(str(error))
                found[-1] = [found[-1], allows()]
            if said := apart(*found):
                return f"{around.__name__}, {differentiated}: {said}"
    record = record_of(compiled)
    assert record is not None
    first = record[1].graphs[:graphs]
    return "" if len(first) == graphs and not any(g.fallback for g in first) else f"{first} {[str(b) for b in record[1].breaks]}"


def made_inside() -> str:
    """Where the first tensor over a mesh is made inside of the block, and a graph ends there: the next calls run the same code."""

    def program(x: Any, ones: Any) -> Any:
        with implicit_replication():
            y = DTensor.from_local(x, devices, [Shard(0)], run_check=False) * ones
            in_between()
            return y + ones

    compiled, ones, devices = opmill.compile(program), noise(8, 8, seed=1), mesh()
    for seed in range(3):
        if said := apart(known(compiled(noise(4, 8, seed=seed), ones)), known(program(noise(4, 8, seed=seed), ones))):
            return said
    return told_ends(compiled, 2)


def of_a_cache() -> str:
    """The mesh is what a function with a cache gives, which would make another one if it ran again: what the capture knows is the one that
    the program has, and the graph runs."""
    mesh().get_group()

    def program(x: Any) -> Any:
        y = x * 2
        return DTensor.from_local(y, mesh(), [Shard(0)], run_check=False) + 1

    over(Shard(0), 4, 8).redistribute(placements=[Replicate()])  # torch keeps weak references to meshes
    compiled = opmill.compile(program)
    for seed in range(3):
        x = noise(4, 8, seed=seed)
        if said := apart(known(compiled(x)), known(program(x))):
            return said
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(x)
    ran = [str(event.name) for event in profile.events()]
    return told_ends(compiled, 2) or ("" if "aten::add" not in ran else f"the graph does not run: {ran}")


def told_ends(compiled: Any, graphs: int) -> str:
    record = record_of(compiled)
    assert record is not None
    found = len(record[1].graphs)
    return "" if found == graphs else f"{found} graphs, {[str(b) for b in record[1].breaks]}"


def allows() -> bool:
    return bool(DTensor._op_dispatcher._allow_implicit_replication)  # type: ignore[attr-defined]


def mixed(x: Any, y: Any) -> Any:
    return x + y


REPLICATED = [
    replicated,
    replicated_in_the_middle,
    replicated_and_raised,
    replicated_around_a_break,
    replicated_whole,
    replicated_gradients,
]
OPTIMIZERS: dict[str, Callable[[], str]] = {
    "AdamW": partial(optimized, torch.optim.AdamW, foreach=False),
    "Adam, amsgrad": partial(optimized, torch.optim.Adam, amsgrad=True, weight_decay=0.1, foreach=False),
    "Adagrad": partial(optimized, torch.optim.Adagrad, foreach=False),
    "RMSprop": partial(optimized, torch.optim.RMSprop, momentum=0.5, foreach=False),
}

CASES: dict[str, Callable[[], str]] = (
    {f"sizes, {name}": case for name, case in OF_SIZES.items()}
    | {f"uneven, {name}": case for name, case in OF_UNEVEN.items()}
    | OPTIMIZERS
    | {function.__name__: partial(of_replication, function, (nullcontext, implicit_replication, nullcontext)) for function in REPLICATED}
    | {"mixed": partial(of_replication, mixed, (nullcontext, implicit_replication, nullcontext), 0)}
    | {"mixed, taken first": partial(of_replication, mixed, (implicit_replication, nullcontext, implicit_replication))}
    | {f"layout, {question.__name__}": partial(described, question) for question in (of_the_whole, of_what_is_computed, compared)}
    | {"taken where it is made": made_inside, "a mesh of a cache": of_a_cache}
    | {"late gradients": late_gradients, "embedded": embedded, "noted": noted, "inferred": inferred, "made over a mesh": made_over_a_mesh}
)


def main(rank: int, size: int, store: str, *names: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    tell({name: case for name, case in CASES.items() if not names or name in names})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
