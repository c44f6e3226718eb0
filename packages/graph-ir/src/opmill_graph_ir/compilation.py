"""What is known of a graph while the steps of the pipeline work on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from opmill_runtime_cache.plan.model import Plan
from opmill_runtime_cache.store import Store

from .freezing.weights import Weights
from .generator.protocol import KernelGenerator
from .layout import Layout
from .options import GraphOptions
from .pipeline import Observer
from .report import Report

if TYPE_CHECKING:  # a plan from the store needs none of these
    from .capture.graph import AtenGraph
    from .capture.joint import Joint
    from .capture.partition import Halves
    from .freezing.copies import FrozenCopies
    from .repeated_regions.shorten import Shortened
    from .schedule.steps import Schedule, Scheduling


@dataclass
class Draft:
    """A graph on its way to a plan. ``part``: what people call it. ``cuts``: the graph shortened at its repetitions, None before that was
    tried. ``calls``: nodes that are left to torch (the names of their first results), for ``reason``; ``problem``: why all are.
    ``products``: results of matrix products that are loops, and whether they compute their operands, once that is decided. ``work``: the
    program while it is scheduled; ``program``: its schedule."""

    graph: AtenGraph
    part: str = ""
    problem: str = ""
    cuts: list[Shortened] | None = None
    work: Scheduling | None = None
    program: Schedule | None = None
    refs: dict[Any, Any] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()
    products: Mapping[str, bool] | None = None
    reason: str = ""
    done: bool = False

    @property
    def open(self) -> bool:
        """Whether its kernels are still to be had."""
        return not self.done and not self.problem


@dataclass
class Compilation:
    """``inputs``: what ``module`` is compiled for. ``graphs``: with ``parts``, what people call them. ``held``: tensors that the forward
    holds, ``known``: those that autograd is told of, ``layout``: how the plans of a graph with gradients are joined. ``chained``: graphs
    run in this order, and values have one name in all. ``weights``: how a plan that was taken apart gets what is made of weights that stay;
    ``frozen``: what keeps that. ``run``: what calls the plans, once they are bound."""

    options: GraphOptions
    store: Store
    generators: Sequence[KernelGenerator]
    report: Report
    module: Any = None
    inputs: Sequence[Any] = ()
    binder: Any = None
    key: str | None = None
    graphs: list[AtenGraph] = field(default_factory=list)
    parts: tuple[str, ...] = ("",)
    chained: bool = False
    joint: Joint | None = None
    halves: Halves | None = None
    stages: list[Any] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    bodies: dict[int, Plan] = field(default_factory=dict)
    placing: Any = None
    plans: list[Plan] = field(default_factory=list)
    held: Sequence[torch.Tensor] = ()
    known: Sequence[torch.Tensor] = ()
    layout: Layout | None = None
    assumed: Any = ()
    offsets: tuple[tuple[int, int], ...] = ()
    """Where inputs begin in their storages, by position, if that matters."""
    turn: ExitStack = field(default_factory=ExitStack)
    """Held from when this process begins to compile the graph until its plan is in the store."""
    weights: Weights | None = None
    frozen: FrozenCopies | None = None
    run: Callable[..., Any] | None = None
    observe: Observer | None = None
    finished: bool = False

    @cached_property
    def trains(self) -> bool:
        """Whether gradients are wanted."""
        from .capture.joint import needs_gradients

        return needs_gradients(self.module, self.inputs)

    def waiting(self) -> list[Draft]:
        """Those that are not scheduled yet."""
        return [draft for draft in self.drafts if draft.open and draft.program is None]

    def on_each(self, function: Callable[[Any], object]) -> Iterator[tuple[str, object]]:
        """Runs a pass on the program of each graph that is being scheduled; its part, and what the pass gave."""
        return iter([(draft.part, function(draft.work)) for draft in self.waiting()])

    def beside(self, graphs: list[AtenGraph], parts: tuple[str, ...] | None = None, options: GraphOptions | None = None) -> Compilation:
        """One of other graphs, with the same generators and store."""
        parts = parts if parts is not None else ("",) * len(graphs)
        return Compilation(options or self.options, self.store, self.generators, self.report, graphs=graphs, parts=parts)


def part_names(count: int) -> tuple[str, ...]:
    """What people call a forward and the ``count - 1`` graphs of its backward."""
    return ("forward", *(f"backward {k + 1}" if count > 2 else "backward" for k in range(count - 1)))


__all__ = ["Compilation", "Draft", "part_names"]
