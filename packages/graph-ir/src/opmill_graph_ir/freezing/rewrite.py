"""The driver: a graph with inputs that are promised to stay, as one for calls and one for weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..capture.graph import AtenGraph
from .batch_norm import fold_batch_norms
from .constant import constant_values, frozen_inputs
from .packing import pack
from .split import split


@dataclass(frozen=True)
class Frozen:
    """``graph``: for each call, without the inputs at ``positions``; ``weights``: for each set of these, its inputs. ``kept``: those of
    them that the first graph reads, too; it holds them and what the second gives behind what else it holds."""

    graph: AtenGraph
    weights: AtenGraph
    positions: tuple[int, ...]
    kept: tuple[int, ...]


def freeze(graph: AtenGraph, promised: Sequence[int]) -> Frozen | None:
    """``graph`` taken apart; it must not be used any more. ``promised``: positions of inputs that stay as they are. None where none of them
    can be relied upon: what a graph writes, or gives out, does not stay."""
    names = frozen_inputs(graph, {graph.inputs[k] for k in promised})
    frozen = [name for name in graph.inputs if name in names]
    if not frozen:
        return None
    positions = tuple(k for k, name in enumerate(graph.inputs) if name in names)
    fold_batch_norms(graph, constant_values(graph, names))
    pack(graph, names)
    main, weights, kept = split(graph, frozen, constant_values(graph, names))
    return Frozen(main, weights, positions, kept)


__all__ = ["Frozen", "freeze"]
