"""Which results of a graph can be differentiated one after the other.

Eager frees what its backward nodes saved when they have run. A program may differentiate two losses by two calls where no node that
saves is behind both: each such group of results gets a backward of its own, as if their graphs were two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

MOST = 8
"""Groups of one graph: each costs a node of autograd at every call. With more of them all are one."""


def groups(results: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
    """The groups, of positions in ``results``, in the order of their first ones."""
    if len(results) < 2:
        return [tuple(range(len(results)))]
    found: list[tuple[set[Any], list[int]]] = []
    for position, result in enumerate(results):
        nodes, members = {node for node in _behind(result) if _saves(type(node))}, [position]  # type: ignore[arg-type]
        for group in [g for g in found if g[0] & nodes]:
            found.remove(group)
            nodes, members = nodes | group[0], sorted([*members, *group[1]])
        found.append((nodes, members))
    parts = sorted(tuple(members) for _, members in found)
    return parts if len(parts) <= MOST else [tuple(range(len(results)))]


def _behind(result: torch.Tensor) -> Iterator[Any]:
    """The nodes of autograd that the gradient of ``result`` would go through."""
    stack, seen = [result.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            stack += [after for after, _ in node.next_functions]


@lru_cache(None)
def _saves(kind: type) -> bool:
    """Whether nodes of this class may hold tensors, which go when they have run. Those that sum gradients up for a leaf do not."""
    return kind.__name__ == "CopySlices" or any(name.startswith("_raw_saved") for name in dir(kind))


__all__ = ["groups"]
