"""Graphs of one operator from torch's own sample inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower


def ops_by_name() -> dict[str, Any]:
    return {f"{o.name}{'.' + o.variant_test_name if o.variant_test_name else ''}": o for o in op_db}


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    torch.manual_seed(0)
    for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        yield (s.input, *s.args), s.kwargs


def graph_of(fn: Any, args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """``fn(*args, **kwargs)`` as an FX graph whose placeholders are the tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    graph, tensors, nodes = torch.fx.Graph(), [], []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            nodes.append(graph.placeholder(f"a{len(tensors)}"))
            tensors.append(leaf)
        else:
            nodes.append(leaf)

    def call(*flat: Any) -> Any:
        a, k = pytree.tree_unflatten(flat, spec)
        return pytree.tree_leaves(fn(*a, **k))

    graph.output(graph.call_function(call, tuple(nodes)))
    return torch.fx.GraphModule(torch.nn.Module(), graph), tensors


def compiled(gm: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> tuple[list[Any], Any]:
    graph = functionalize(gm, tensors)
    program = lower(graph)
    return run_lowered(program, [t.clone() for t in tensors] + graph.held_tensors), program
