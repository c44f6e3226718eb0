"""Labels that a program puts around what it does, for profilers: ``torch.profiler.record_function``, ``torch.cuda.nvtx.range``.

A graph knows them as data: ``meta["labels"]`` of the module lists the name of each and the number of the one around it, in the order in
which they opened; ``meta["label"]`` of a node is the number of the innermost, ``meta["opened"]`` how many had opened by then. A backend
shows them while a profiler runs. Where a graph ends inside of a label, that is opened for good behind the graph, and closed by what
follows."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from ..values.base import Value
from ..values.constant import ConstantValue

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class OpenLabel(Struct, eq=False):
    """``region``: the tracked ``record_function``; None for a range of nvtx, which is known by its place alone."""

    number: int
    name: str
    region: Value | None


class Labels:
    """The labels met in a capture. ``found``: name of each, and the number of the one around it (-1: none)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self.open: list[OpenLabel] = []

    def note(self, node: torch.fx.Node) -> None:
        """A node recorded now is inside of what is open, and behind what was."""
        if self.found:
            node.meta["opened"] = len(self.found)
        if self.open:
            node.meta["label"] = self.open[-1].number

    def enter(self, name: str, region: Value | None) -> None:
        self.found.append((name, self.open[-1].number if self.open else -1))
        self.open.append(OpenLabel(len(self.found) - 1, name, region))

    def leave(self, region: Value | None) -> bool:
        """Closes the innermost label of this region; False where it was not opened in this capture."""
        for position in reversed(range(len(self.open))):
            if self.open[position].region is region:
                del self.open[position]
                return True
        return False

    def opened(self) -> list[tuple[object, list[Value], dict[str, Value]]]:
        """The calls that open for good what is open at the end of a graph."""
        return [
            (enter_range, [ConstantValue(label.name)], {}) if label.region is None else (enter_region, [label.region], {})
            for label in self.open
        ]


# ---- what runs ---------------------------------------------------------------------------------------------------------------


def enter_region(region: AbstractContextManager[object]) -> None:
    """Begins a region of the profiler."""
    region.__enter__()


def leave_region(region: AbstractContextManager[object]) -> None:
    """Ends a region of the profiler."""
    region.__exit__(None, None, None)


def enter_range(name: str) -> None:
    """Begins a range of NVTX."""
    torch.cuda.nvtx.range_push(name)


def leave_range() -> None:
    """Ends the innermost range of NVTX."""
    torch.cuda.nvtx.range_pop()


def mark(name: str) -> None:
    """A label around nothing that a graph does."""
    with torch.profiler.record_function(name):
        pass


def _enter(name: str) -> object:
    return torch.ops.profiler._record_function_enter_new(name)


def _leave(record: object) -> None:
    torch.ops.profiler._record_function_exit._RecordFunction(record)


def labelled(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with calls that open and close its labels, for running it as it is. Without labels the module itself."""
    labels = gm.meta.get("labels")
    if not labels:
        return gm
    nodes = list(gm.graph.nodes)
    shown = _Shown([_path(labels, node.meta.get("label", -1)) for node in nodes], labels)
    for position, node in enumerate(nodes):
        if node.op == "output":
            shown.arrive(position, len(labels))
        elif "opened" in node.meta:
            shown.arrive(position, node.meta["opened"])
        shown.copies[node] = shown.graph.node_copy(node, shown.copies.__getitem__)
    module = torch.fx.GraphModule(gm, shown.graph)
    module.meta.update(gm.meta)
    return module


def _path(labels: Sequence[tuple[str, int]], label: int) -> tuple[int, ...]:
    """The label and those around it, the outermost first."""
    path: tuple[int, ...] = ()
    while label >= 0:
        path, label = (label, *path), labels[label][1]
    return path


class _Shown:
    """The graph with its labels, as far as it is written. ``inside``: by node the labels around it."""

    def __init__(self, inside: list[tuple[int, ...]], labels: Sequence[tuple[str, int]]) -> None:
        self.inside, self.labels = inside, labels
        self.graph = torch.fx.Graph()
        self.copies: dict[torch.fx.Node, torch.fx.Node] = {}
        self.records: dict[int, torch.fx.Node] = {}
        """Of the labels that are open, in the order in which they opened."""
        self.opened = 0

    def arrive(self, position: int, opened: int) -> None:
        """Closes and opens what the program does before this node; ``opened``: how many labels it has opened by then."""
        later = {label for path in self.inside[position:] for label in path}
        self.close(later)
        for number in range(self.opened, opened):
            self.close(later.union(_path(self.labels, number)))
            self.records[number] = self.graph.call_function(_enter, (self.labels[number][0],))
        self.opened = max(self.opened, opened)
        self.close(self.inside[position] or later.intersection(self.records))

    def close(self, kept: Container[int]) -> None:
        for number in [n for n in reversed(self.records) if n not in kept]:
            self.graph.call_function(_leave, (self.records.pop(number),))


__all__ = ["Labels", "labelled", "mark"]
