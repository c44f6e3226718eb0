"""Clean-up of the aten graph: copies that copy nothing, common subexpressions, dead code."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.raising import raises_for_content
from opmill_fake_tensors.symbols import Index

from .graph import AtenGraph, Node, OutputTensor, Value, replace_values, values_in

aten = torch.ops.aten
IDENTITY = {aten.alias.default, aten.detach.default, aten.lift_fresh.default}


def clean(graph: AtenGraph) -> AtenGraph:
    """The same function with fewer nodes."""
    _share(graph)
    drop_dead(graph)
    _wait_late(graph)
    return graph


def _share(graph: AtenGraph) -> None:
    """Equal operators on equal values once; values that are another under a second name, by the first. Values that leave the graph as
    different tensors stay different."""
    new: dict[str, str] = {}
    seen: dict[Any, tuple[str | None, ...]] = {}
    leaving = {o.value for o in graph.outputs if isinstance(o, OutputTensor)} | set(graph.mutations.values())
    nodes = []
    for node in graph.nodes:
        if new:
            node.args, node.kwargs = replace_values(node.args, new), replace_values(node.kwargs, new)
        if node.func in IDENTITY and (result := node.results[0]) not in leaving and isinstance(node.args[0], Value):
            assert result is not None
            new[result] = node.args[0].name
            continue
        op = describe(node.func)
        key = _key(node) if op.pure and not node.binds else None
        if key is not None and not leaving.intersection(r for r in node.results if r):
            known = seen.setdefault(key, node.results)
            if known is not node.results:
                if all(graph.metas[a] == graph.metas[b] for a, b in zip(known, node.results, strict=True) if a and b):
                    new.update((b, a) for a, b in zip(known, node.results, strict=True) if a and b)
                    continue
        nodes.append(node)
    graph.nodes = nodes


def _key(node: Node) -> Any:
    try:
        key = (node.func, _freeze(node.args), _freeze(tuple(sorted(node.kwargs.items()))))
        hash(key)
    except TypeError:
        return None
    return key


def _freeze(arg: Any) -> Any:
    """An argument by value, exactly."""
    kind = type(arg)
    if kind is tuple or kind is list:
        return tuple([_freeze(a) for a in arg])
    if kind is Value:
        return kind, arg.name
    return (kind, repr(arg)) if kind is float or kind is complex else (kind, arg)


def _wait_late(graph: AtenGraph) -> None:
    """Waits for other processes come right before what reads the tensor, so that what does not is computed meanwhile."""
    waits = {node.results[0]: node for node in graph.nodes if node.func.name() == "_c10d_functional::wait_tensor"}
    if not waits:
        return
    nodes: list[Node] = []

    def wait(node: Node) -> None:
        for value in values_in((node.args, node.kwargs)):
            if (before := waits.pop(value.name, None)) is not None:
                wait(before)
                nodes.append(before)

    for node in graph.nodes:
        if node.results and node.results[0] in waits:
            continue
        wait(node)
        nodes.append(node)
    rest = list(waits.values())
    graph.nodes = [*nodes, *rest]


def drop_dead(graph: AtenGraph, idle: Container[str] = ()) -> None:
    """Without operators that nobody needs, and the constants and held tensors that only these read (those that are made of weights stay:
    they are given by their places). ``idle``: results of operators that are known to do nothing else, also where others of their kind
    may."""
    live = {o.value for o in graph.outputs if isinstance(o, OutputTensor)} | set(graph.mutations.values())
    kept = []
    for node in reversed(graph.nodes):
        if any(r in live for r in node.results) or (must_run(node, graph) and not any(r in idle for r in node.results)):
            live.update(v.name for v in values_in((node.args, node.kwargs)))
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.constants = {n: t for n, t in graph.constants.items() if n in live}
    made = graph.held[len(graph.held_tensors) :]
    pairs = [(n, t) for n, t in zip(graph.held, graph.held_tensors, strict=False) if n in live or n in graph.mutations]
    graph.held, graph.held_tensors = [*(n for n, _ in pairs), *made], [t for _, t in pairs]


def must_run(node: Node, graph: AtenGraph) -> bool:
    """Whether the node does more than its results say: it writes, draws, takes part in an exchange, makes a size known, gives nothing at
    all, or raises for some contents of its arguments, as eager does where nobody reads what it gives."""
    op = describe(node.func)
    if op.writes or op.exchanges or not node.results or node.binds or torch.Tag.nondeterministic_seeded in node.func.tags:
        return True
    dtype = next((graph.metas[r].dtype for r in node.results if r), "")
    if op.packet == "aten::pow" and "int" in dtype and len(node.args) > 1 and isinstance(node.args[1], Index):
        return True  # of a number that data tell, which may be negative
    return raises_for_content(op.packet, dtype, len(node.args) > 1 and isinstance(node.args[1], Value))
