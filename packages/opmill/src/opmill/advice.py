"""What costs time in a compiled callable and what to do about it, each with its number: for ``opmill.explain``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch.utils import _pytree as pytree

from .record import BreakRecord, GraphRecord, RecompileRecord

_OFTEN = 3
_SMALL = 64 << 10
"""Bytes of a step below which starting it takes about as long as running it."""
_MANY = 50
_CHANGING = (
    torch.nn.Dropout,
    torch.nn.Dropout1d,
    torch.nn.Dropout2d,
    torch.nn.Dropout3d,
    torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
    torch.nn.BatchNorm1d,
    torch.nn.BatchNorm2d,
    torch.nn.BatchNorm3d,
    torch.nn.SyncBatchNorm,
)
"""Modules that do something else in training mode."""


class Seen(Struct, frozen=True):
    """What advice is about. ``model``: what was compiled; ``result``: what its call returned."""

    graphs: Sequence[GraphRecord]
    breaks: Sequence[BreakRecord]
    recompiles: Sequence[RecompileRecord]
    model: Any
    result: Any


def advice_on(seen: Seen) -> tuple[str, ...]:
    """A sentence for each finding."""
    return tuple(line for rule in RULES for line in rule(seen))


def _breaks(seen: Seen) -> Iterator[str]:
    for found in seen.breaks:
        if found.turns:
            yield f"the break at {found.where} is inside of a loop, and ends a graph in each turn: {found.hint or found.what}"
        elif found.times >= _OFTEN:
            yield f"the break at {found.where} was met {found.times} times: {found.hint or found.what}"


def _sizes(seen: Seen) -> Iterator[str]:
    changed = [each for each in seen.recompiles if each.reasons and "size" in each.reasons[0]]
    if len(changed) >= 2:
        took = sum(graph.seconds for graph in seen.graphs[-len(changed) :])
        told = changed[-1].reasons[0]
        yield (
            f"{len(changed)} recompiles for other sizes ({took:.1f} s in the backend), the last: {told}; "
            "opmill.mark_dynamic(tensor, dimension) ends them"
        )


def _training(seen: Seen) -> Iterator[str]:
    if not isinstance(seen.model, torch.nn.Module):
        return
    tensors = [t for t in pytree.tree_leaves(seen.result) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    tracked = any(t.requires_grad for t in tensors)
    changing = [m for m in seen.model.modules() if isinstance(m, _CHANGING)]
    if tensors and not tracked and seen.model.training and changing:
        yield f"{len(changing)} modules (dropout, batch norm) are in training mode and no gradients are recorded: was .eval() forgotten?"
    if tracked and not seen.model.training:
        yield "gradients are recorded in evaluation mode: under torch.no_grad() nothing is kept for a backward"


def _specs(graph: GraphRecord) -> list[Any]:
    """What is known of the tensors that a graph makes."""
    steps = getattr(getattr(graph.report, "plan", None), "steps", ())
    promised = (spec for step in steps for spec in getattr(step, "specs", ()) if spec is not None)
    return [*(step.spec for step in steps if hasattr(step, "spec")), *promised]


def _float64(seen: Seen) -> Iterator[str]:
    for graph in seen.graphs:
        given = {item.spec.dtype for item in getattr(getattr(graph.report, "plan", None), "inputs", ()) if hasattr(item, "spec")}
        wide = [
            spec for spec in _specs(graph) if spec.dtype == "float64" and math.prod(n if isinstance(n, int) else 2 for n in spec.sizes) > 1
        ]
        if wide and "float32" in given and "float64" in given:
            yield (
                f"graph {graph.number}: {len(wide)} of {len(_specs(graph))} tensors are float64, of "
                "which an input is one, the others float32"
            )


def _small(seen: Seen) -> Iterator[str]:
    for graph in seen.graphs:
        count = getattr(graph.report, "launches", 0) + getattr(graph.report, "calls", 0)
        sizes = [math.prod(s.sizes) * getattr(torch, s.dtype).itemsize for s in _specs(graph) if all(isinstance(n, int) for n in s.sizes)]
        if count >= _MANY and sizes and max(sizes) < _SMALL:
            yield (
                f"graph {graph.number}: {count} steps, none of more than {max(sizes)} bytes: "
                "their number costs, not their work; larger batches are nearly free"
            )


def _uncompiled(seen: Seen) -> Iterator[str]:
    fallen = [graph for graph in seen.graphs if graph.fallback]
    if fallen:
        yield f"{len(fallen)} of {len(seen.graphs)} graphs run uncompiled, the first: {fallen[0].fallback.splitlines()[0]}"


RULES: tuple[Callable[[Seen], Iterator[str]], ...] = (_uncompiled, _breaks, _sizes, _training, _float64, _small)

__all__ = ["RULES", "Seen", "advice_on"]
