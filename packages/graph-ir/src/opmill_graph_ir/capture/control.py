"""Operators of the aten graph that run graphs of their own: branches, loops and scans."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from opmill_fake_tensors.lazily import cached_property

from .graph import AtenGraph

_DRAWS = torch.Tag.nondeterministic_seeded


@dataclass(frozen=True, eq=False)
class ControlOperator:
    """Stands in a node where torch's operators stand. Its arguments and what it does are those of ``opmill::<kind>`` in a plan
    (``opmill_runtime_cache.executor.control``). ``bodies`` take tensors, then sizes; they hold no tensors, write none of their inputs,
    and what they return shares no memory with anything."""

    kind: str
    bodies: tuple[AtenGraph, ...]
    _overloadname = ""

    def name(self) -> str:
        return f"opmill::{self.kind}"

    @cached_property
    def tags(self) -> tuple[Any, ...]:
        return (_DRAWS,) if any(_DRAWS in node.func.tags for body in self.bodies for node in body.nodes) else ()

    @cached_property
    def _schema(self) -> Any:
        """What a schema says of an operator that only computes."""
        return SimpleNamespace(name=self.name(), overload_name="", is_mutable=False, arguments=(), returns=())

    def __str__(self) -> str:
        return self.name()


def bodies_of(graph: AtenGraph) -> list[AtenGraph]:
    """The graphs that nodes of ``graph`` run."""
    return [body for node in graph.nodes if isinstance(node.func, ControlOperator) for body in node.func.bodies]
