"""Blocks that repeat are scheduled once: the program is the one that scheduling all of them gives, and computes what eager does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.graph import AtenGraph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.compiling import scheduled
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.repeated_regions.extend import names_in, renamed, without_origin
from opmill_graph_ir.repeated_regions.find import find
from opmill_graph_ir.repeated_regions.program import cuts
from opmill_graph_ir.repeated_regions.shorten import shorten
from opmill_graph_ir.schedule.steps import Schedule, schedule
from opmill_runtime_cache.store import Store

ROWS, WIDTH = 512, 32  # large enough that blocks are kernels of their own
Module = torch.nn.Module


class Block(Module):
    """A random block of a few operators on the stream ``x``; equal for equal seeds but for its weights. ``shared`` is the same for all
    blocks."""

    def __init__(self, seed: int, variation: int = 0) -> None:
        super().__init__()
        r = random.Random(seed)
        self.steps = [r.choice(STEPS) for _ in range(r.randint(5, 10))]
        if variation:
            self.steps[variation % len(self.steps)] = r.choice(STEPS)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)
        self.bias = torch.nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("scale", torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor, shared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, kept = x, x
        for step in self.steps:
            y, kept = step(self, x, y, kept, shared)
        return x + torch.tanh(y), kept


def _linear(b: Block, x: Any, y: Any, kept: Any, shared: Any) -> Any:
    return F.linear(y, b.weight, b.bias), y


STEPS: list[Callable[..., Any]] = [
    _linear,
    _linear,
    lambda b, x, y, kept, shared: (F.layer_norm(y, (WIDTH,), b.scale, b.bias), kept),
    lambda b, x, y, kept, shared: (F.gelu(y), y),
    lambda b, x, y, kept, shared: (y * b.scale + shared[:, None], kept),
    lambda b, x, y, kept, shared: (torch.softmax(y.transpose(0, 1), -1).transpose(0, 1) + x, kept),
    lambda b, x, y, kept, shared: (torch.cat([y[:, 2:], y[:, :2]], 1), kept * 2),
    lambda b, x, y, kept, shared: (y.view(-1, 2, WIDTH // 2).transpose(1, 2).reshape(-1, WIDTH), kept),
    lambda b, x, y, kept, shared: (torch.mm(y.t(), y)[:1] + y, kept),
    lambda b, x, y, kept, shared: (y / (1 + kept.abs()), y),
]


class Model(Module):
    """``variations``: by block, a changed step (0: none). ``returns``: which blocks' values are returned. ``reach``: a block also reads the
    one so many before."""

    def __init__(self, seed: int, variations: list[int], returns: str = "last", reach: int = 0, tied: bool = False) -> None:
        super().__init__()
        first = Block(seed)
        self.blocks = torch.nn.ModuleList([first if tied and not v else Block(seed, v) for v in variations])
        self.returns, self.reach = returns, reach

    def forward(self, x: torch.Tensor, shared: torch.Tensor) -> Any:
        kept, streams = [], [F.relu(x)]
        shared = torch.sigmoid(shared)
        x = streams[0]
        for k, block in enumerate(self.blocks):
            if self.reach and k >= self.reach:
                x = x + streams[k - self.reach]
            x, value = block(x, shared)
            streams.append(x)
            kept.append(value)
        out = x.sum(0)
        return (out, *streams, *kept) if self.returns == "all" else (out, *kept[::2]) if self.returns == "some" else (out,)


class _Flat(torch.fx.Tracer):
    def is_leaf_module(self, m: Module, name: str) -> bool:
        return False


def traced(model: Module) -> torch.fx.GraphModule:
    tracer = _Flat()
    return torch.fx.GraphModule(model, tracer.trace(model))


INPUTS = [
    torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1)),
    torch.randn(ROWS, generator=torch.Generator().manual_seed(2)),
]


def aten(model: Module) -> AtenGraph:
    return functionalize(traced(model), INPUTS)


def both(graph: AtenGraph) -> tuple[Schedule, Schedule]:
    return scheduled(graph)[1], schedule(lower(graph))


def agree(once: Schedule, plain: Schedule) -> None:
    """The same steps on the same buffers; those that no value of the graph has named may be called otherwise."""
    assert len(once.steps) == len(plain.steps)
    names: dict[str, str] = {}
    for ours, theirs in zip(once.steps, plain.steps, strict=True):
        for here, there in zip(names_in(ours), names_in(theirs), strict=True):
            assert here == there or here.startswith("t"), (here, there)
            assert names.setdefault(here, there) == there
            assert replace(once.buffers[here], name="", origin="") == replace(plain.buffers[there], name="", origin="")
        assert without_origin(renamed(ours, names.__getitem__)) == without_origin(theirs)
    assert len(set(names.values())) == len(names)
    assert [replace(o, buffer=names.get(o.buffer, o.buffer)) for o in once.lowered.outputs] == list(plain.lowered.outputs)


def models() -> list[Any]:
    found = []
    for seed in range(40):
        r = random.Random(1000 + seed)
        count = r.randint(6, 10)
        variations = [0] * count
        for at in r.choice([[], [], [0], [count - 1], [0, count - 1], [count // 2]]):
            variations[at] = r.randint(1, 9)
        how = r.choice(["last", "last", "all", "some"])
        reach, tied = r.choice([0, 0, 0, 1, 2]), r.random() < 0.15
        found.append(pytest.param(seed, variations, how, reach, tied, id=f"{seed}-{count}-{how}-{reach}{'-tied' if tied else ''}"))
    return found


@pytest.mark.parametrize(("seed", "variations", "returns", "reach", "tied"), models())
def test_the_same_program_as_without(seed: int, variations: list[int], returns: str, reach: int, tied: bool) -> None:
    with torch.no_grad():
        agree(*both(aten(Model(seed, variations, returns, reach, tied))))


def left_out(graph: AtenGraph) -> int:
    repeats = find(graph)
    return 0 if repeats is None or (cut := shorten(graph, repeats)) is None else cut.left_out


def test_most_blocks_are_left_out() -> None:
    """Of equal blocks all but four; with different ones among them the longest stretch of equal ones."""
    with torch.no_grad():
        assert left_out(aten(Model(3, [0] * 9))) in (4, 5)
        assert left_out(aten(Model(3, [0] * 9, "all"))) in (4, 5)
        assert left_out(aten(Model(3, [5, *[0] * 8, 7]))) in (3, 4)
        assert left_out(aten(Model(3, [0, 0, 5, *[0] * 8]))) in (3, 4)


class Constants(Model):
    """Blocks that differ in a number."""

    def forward(self, x: torch.Tensor, shared: torch.Tensor) -> Any:
        for k, block in enumerate(self.blocks):
            x, _ = block(x * (k + 1.5), shared)
        return (x,)


class Skips(Model):
    """What each block gives is needed at the end."""

    def forward(self, x: torch.Tensor, shared: torch.Tensor) -> Any:
        streams = [x]
        for block in self.blocks:
            streams.append(block(streams[-1], shared)[0])
        return (torch.stack(streams).sum(0),)


@pytest.mark.parametrize("kind", [Constants, Skips])
def test_what_is_no_repetition(kind: type[Model]) -> None:
    with torch.no_grad():
        graph = aten(kind(3, [0] * 9))
        assert left_out(graph) == 0
        agree(*both(graph))


class Coupling(Module):
    """A block of a normalizing flow: it changes the stream and gives a number a row."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LeakyReLU(), torch.nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.register_buffer("mask", torch.rand(WIDTH).round())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x * self.mask
        u = torch.tanh(self.scale(kept)) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * u.exp() + self.shift(kept)), u.sum(-1)


class Flow(Module):
    """The numbers of all blocks are added up as they come; nothing but the end reads the sum."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Coupling() for _ in range(count))

    def forward(self, x: torch.Tensor, shared: torch.Tensor) -> Any:
        total = shared
        for block in self.blocks:
            x, found = block(x)
            total = total + found
        return (x.square().sum(-1) + total,)


@pytest.mark.parametrize("count", [6, 9])
def test_sums_over_all_blocks_that_are_put_off_until_their_end(count: int) -> None:
    with torch.no_grad():
        graph = aten(Flow(count))  # type: ignore[arg-type]
        assert find(graph) is not None
        agree(*both(graph))


def test_several_stretches() -> None:
    """Each stretch of a graph is cut."""

    class Two(Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Model(4, [0] * 8), Model(2, [0] * 8)

        def forward(self, x: torch.Tensor, shared: torch.Tensor) -> Any:
            [y] = self.first(x, shared)
            return self.second(x + y, shared)

    with torch.no_grad():
        graph = aten(Two())
        assert [cut.left_out > 2 for cut in cuts(graph)] == [True, True]
        agree(*both(graph))


def test_short_stretches_of_long_graphs_are_left_as_they_are() -> None:
    """A cut that turns out not to repeat costs the schedule of all the rest: loops over a chunk that are written out were scheduled again
    for each."""

    def function(x: torch.Tensor) -> Any:
        for k in range(50):
            x = (x + k).sin()
        for _ in range(12):
            x = (x * 2).tanh()
        return (x,)

    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(function), [torch.ones(4)])
    repeats = find(graph)
    assert repeats is not None and shorten(graph, repeats) is not None and not cuts(graph)


def test_results_with_kernels_and_changed_weights(tmp_path: Path) -> None:
    """Each block has its own weights, also after they change."""
    if not (generators := installed_generators()):
        pytest.skip("no kernel generator is installed")
    torch.manual_seed(0)
    with torch.no_grad():
        model = Model(8, [0] * 8, "all")
        run = compile_graph(
            traced(model), INPUTS, generators=generators, options=GraphOptions(cache=False, verify=True), store=Store(tmp_path)
        )
        assert run.report.launches > 2 * run.report.kernels
        for _ in range(2):
            for got, want in zip(run(*INPUTS), model(*INPUTS), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)
                assert got.stride() == want.stride()
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) / 8)


@pytest.mark.parametrize("seed", [0, 3, 8, 31])
def test_training(seed: int) -> None:
    """The halves of a training graph return and take what each block saves. Where the backward computes a sum over blocks again, nothing
    repeats."""
    joint = capture_joint(traced(Model(seed, [0] * 9)), INPUTS)
    halves = partition(joint)
    assert left_out(halves.forward) >= 3
    assert left_out(halves.backward) >= 3 or seed == 3
    for graph in (halves.forward, halves.backward):
        agree(*both(graph))


def test_what_makes_sizes_known_is_like_nothing() -> None:
    with torch.no_grad():
        graph = aten(Model(3, [0] * 9))
    assert left_out(graph) >= 4
    graph.nodes[len(graph.nodes) // 2].binds = (("u0", None, 0),)
    assert left_out(graph) <= 1
