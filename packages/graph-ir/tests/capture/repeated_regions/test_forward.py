"""Graphs whose blocks are not all run are the graphs that running them gives."""

from __future__ import annotations

import dataclasses
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.capture import joint
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.graph import AtenGraph
from opmill_graph_ir.capture.repeated_regions import forward
from opmill_graph_ir.capture.repeated_regions.backward import NotRepeated

SHAPE = (2, 3, 4)


class Program:
    """A graph of blocks that are one list of steps. ``odd``: what one of the blocks does another way, if anything."""

    def __init__(self, seed: int, count: int = 7, steps: int = 9, odd: bool = False, calm: bool = False, trained: bool = False) -> None:
        self.random, self.trained = random.Random(seed), trained
        self.root = torch.nn.Module()
        self.graph = torch.fx.Graph()
        self.inputs = [torch.ones(SHAPE, requires_grad=trained), torch.ones(SHAPE)]
        self.leaf_count = 0
        self.early = self.random.random() < 0.5
        entering, mask = (self.graph.placeholder(n) for n in ("x", "mask"))
        shared = self.call(torch.relu, mask)
        self.trained = trained and not calm and self.random.random() < 0.2
        self.pool = [self.leaf((4, 4)), self.leaf((4,)), self.leaf(SHAPE)]
        self.trained = trained
        plan = [(self.random.choice(CALM if calm else STEPS), [self.random.random() for _ in range(3)]) for _ in range(steps)]
        self.odd_block = self.random.randrange(count) if odd else -1
        self.odd_way = self.random.choice(("scalar", "layout", "tied", "type", "frozen")) if odd else ""
        returned = []
        value = entering
        early = [[self.leaves(k == self.odd_block) for _ in plan] for k in range(count)] if self.early else []
        for k in range(count):
            self.number = 2.5 if k == self.odd_block and self.odd_way == "scalar" else 1.5
            values = [value, shared]
            for j, (step, picks) in enumerate(plan):
                leaves = early[k][j] if early else self.leaves(k == self.odd_block)
                values.append(step(self, lambda n, p=picks, v=values: v[int(p[n] * len(v))], leaves))
            value = self.call(torch.add, values[-1], values[0] if trained else shared) if calm else values[-1]
            if plan[0][1][0] < 0.3:
                returned.append(values[len(values) // 2])
        self.graph.output((value, *returned))
        self.module = torch.fx.GraphModule(self.root, self.graph)

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.fx.Node:
        return self.graph.call_function(target, args, kwargs)

    def method(self, name: str, *args: Any) -> torch.fx.Node:
        return self.graph.call_method(name, args)

    def leaf(self, shape: tuple[int, ...], odd: str = "") -> torch.fx.Node:
        name = f"p{self.leaf_count}"
        self.leaf_count += 1
        tensor = torch.ones(shape[::-1]).permute(*range(len(shape))[::-1]) if odd == "layout" else torch.ones(shape)
        tensor = tensor.double() if odd == "type" and len(shape) == 3 else tensor
        if self.trained and odd != "frozen":
            self.root.register_parameter(name, torch.nn.Parameter(tensor))
        else:
            self.root.register_buffer(name, tensor)
        return self.graph.get_attr(name)

    def leaves(self, odd: bool) -> list[torch.fx.Node]:
        way = self.odd_way if odd else ""
        return self.pool if way == "tied" else [self.leaf((4, 4), way), self.leaf((4,)), self.leaf(SHAPE, way)]


Pick = Callable[[int], torch.fx.Node]
STEPS: list[Callable[[Program, Pick, list[torch.fx.Node]], torch.fx.Node]] = [
    lambda p, at, leaves: p.call(torch.add, at(0), at(1)),
    lambda p, at, leaves: p.call(torch.mul, at(0), p.number),
    lambda p, at, leaves: p.call(F.linear, at(0), leaves[0], leaves[1]),
    lambda p, at, leaves: p.call(torch.add, at(0), leaves[2]),
    lambda p, at, leaves: p.call(F.gelu, at(0)),
    lambda p, at, leaves: p.call(F.layer_norm, at(0), (4,), leaves[1], p.pool[1]),
    lambda p, at, leaves: p.call(F.scaled_dot_product_attention, at(0), at(1), at(2)),
    lambda p, at, leaves: p.method("reshape", p.method("transpose", at(0), 1, 2), *SHAPE),
    lambda p, at, leaves: p.call(
        torch.cat, [p.call(lambda_getitem, parts := p.method("chunk", at(0), 2, -1), 1), p.call(lambda_getitem, parts, 0)], -1
    ),
    lambda p, at, leaves: p.method("squeeze", p.method("unsqueeze", at(0), 0), 0),
    lambda p, at, leaves: p.method("expand", p.method("select", at(0), 0, 1), *SHAPE),
    lambda p, at, leaves: p.call(torch.mul, at(0), p.call(torch.tensor, 3.0)),
    lambda p, at, leaves: p.method("detach", at(0)),
    lambda p, at, leaves: p.call(F.dropout, at(0), 0.5, p.number == 1.5),
    lambda p, at, leaves: p.method("view", p.method("new_zeros", at(0), (6, 4)), *SHAPE),
    lambda p, at, leaves: p.method("relu_", p.method("clone", at(0))),
    lambda p, at, leaves: p.method("add_", p.call(torch.neg, at(0)), at(1)),
]
CALM = list(STEPS)


def step(function: Callable[[Program, Pick, list[torch.fx.Node]], torch.fx.Node]) -> None:
    STEPS.append(function)


def lambda_getitem(x: Any, k: int) -> Any:
    return x[k]


lambda_getitem.__module__ = "torch"
step(lambda p, at, leaves: p.method("add_", at(0), 1))
step(lambda p, at, leaves: p.method("mul_", leaves[2], at(0)))
step(lambda p, at, leaves: p.method("mul_", p.pool[2], 2))
step(lambda p, at, leaves: (p.method("zero_", p.method("select", at(0), 1, 0)), at(0))[1])
step(lambda p, at, leaves: (p.method("fill_", p.method("transpose", written := p.call(torch.exp, at(0)), 0, 2), 2.0), written)[1])
step(lambda p, at, leaves: p.method("squeeze_", p.method("unsqueeze_", p.call(torch.exp, at(0)), 0), 0))


def everything(graph: AtenGraph) -> str:
    constants = {n: (t.dtype, t.tolist()) for n, t in graph.constants.items()}
    facts = (
        [(n.binds, n.again, n.origin) for n in graph.nodes],
        sorted(map(str, graph.metas.items())),
        constants,
        graph.held,
        [id(t) for t in graph.held_tensors],
    )
    return f"{graph}\n{facts}"


def attempt(module: torch.fx.GraphModule, inputs: list[Any]) -> str:
    try:
        with torch.no_grad():
            return everything(functionalize(module, inputs))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks were written down without being run, by stretch."""
    found: list[int] = []
    write = forward._Turns.write

    def noted(turns: Any) -> int:
        last = write(turns)
        found.append(last - forward.RUN)
        return last

    monkeypatch.setattr(forward._Turns, "write", noted)
    return found


def check(program: Program, monkeypatch: pytest.MonkeyPatch, inputs: list[Any] | None = None) -> None:
    inputs = inputs or program.inputs
    ours = attempt(program.module, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(forward, "find_blocks", lambda *_: [])
        assert ours == attempt(program.module, inputs)


def attempt_joint(module: torch.fx.GraphModule, inputs: list[Any], repeats: bool) -> str:
    try:
        found = joint._capture(module, inputs, repeats)
    except NotRepeated:
        raise
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    rest = (getattr(found, f.name) for f in dataclasses.fields(found) if f.name != "graph")
    return f"{everything(found.graph)}\n{list(rest)}"


def check_joint(program: Program) -> bool:
    """Whether the graph is the same; False where it was not captured without all blocks."""
    try:
        assert attempt_joint(program.module, program.inputs, True) == attempt_joint(program.module, program.inputs, False)
    except NotRepeated:
        return False
    return True


@pytest.mark.parametrize("seed", range(10))
def test_random_blocks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(Program(seed), monkeypatch)
    check(Program(1000 + seed, odd=True), monkeypatch)
    check(Program(2000 + seed, calm=True, odd=True), monkeypatch)


@pytest.mark.parametrize("seed", range(8))
def test_blocks_without_writes_need_not_run(seed: int, monkeypatch: pytest.MonkeyPatch, written: list[int]) -> None:
    check(Program(seed, count=8, calm=True), monkeypatch)
    assert sum(written) >= 3


@pytest.mark.parametrize("seed", [1, 3, 5, 12, 17])
def test_blocks_are_trained_without_being_run(seed: int, written: list[int]) -> None:
    assert check_joint(Program(seed, count=9, calm=True, trained=True))
    assert sum(written) > 0
    check_joint(Program(4000 + seed, count=8, trained=True))
    check_joint(Program(5000 + seed, count=8, odd=True, trained=True))


def test_what_was_captured_lets_go_of_the_module(written: list[int]) -> None:
    program = Program(5, count=9, calm=True, trained=True)
    kept = [weakref.ref(p) for p in program.module.parameters()]
    joint._capture(program.module, program.inputs, True)
    assert sum(written) > 0
    del program
    gc.collect()
    assert [k() for k in kept] == [None] * len(kept)


@pytest.mark.parametrize("seed", range(5))
def test_symbolic_sizes(seed: int, monkeypatch: pytest.MonkeyPatch, written: list[int]) -> None:
    program = Program(3000 + seed, calm=True)
    results = []
    for find in (forward.find_blocks, lambda *_: []):
        monkeypatch.setattr(forward, "find_blocks", find)
        sizes = Sizes()
        context = FakeContext(sizes)
        size = sizes.new(3, origin="x.size(1)")
        inputs = [context.from_tensor(x, {1: size}) for x in program.inputs]
        results.append((attempt(program.module, inputs), str(sizes.decisions), str(sizes.symbols)))
    assert results[0] == results[1]
