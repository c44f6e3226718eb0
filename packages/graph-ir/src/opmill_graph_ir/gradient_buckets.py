"""Splits a backward graph where enough gradients are ready, so that these can be sent to other processes while the rest is computed.

A stage is a stretch of the backward's nodes, in their order. A gradient belongs to the stage in which the last node stands that reads it,
or that reads the tensor it is for: who receives it may write to either at once (an optimizer's hook does).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from opmill_fake_tensors.operator import describe

from .capture.graph import AtenGraph, Node, Output, OutputTensor, values_in
from .capture.joint import moves_on
from .capture.partition import Halves
from .ops.records import record_of
from .staged import Stage


def split(halves: Halves, targets: Sequence[str], bucket_bytes: int) -> tuple[list[Stage], list[AtenGraph]]:
    """The backward in stages that give at least ``bucket_bytes`` of gradients each, but the last. ``targets``: for whom each gradient is,
    by name. One stage alone is said by two empty lists."""
    graph = halves.backward
    if any(_has_state(node) or not _is_plain(node) for node in graph.nodes):
        return [], []  # what moves a state stays in one plan, in order
    ends = _ends(graph, targets, bucket_bytes)
    return _cut(graph, ends, len(halves.sizes)) if len(ends) > 1 else ([], [])


def _has_state(node: Node) -> bool:
    """Backward operators are tagged like what they belong to; the numbers that they use are their arguments."""
    return moves_on(node) and not node.func._schema.name.endswith("_backward")


def _is_plain(node: Node) -> bool:
    return node.func.namespace in ("aten", "prims") and not node.func._schema.is_mutable


def _is_view(node: Node) -> bool:
    op = describe(node.func)
    return op.aliases and not op.writes


def _shares(node: Node) -> bool:
    """Whether the result may lie in the memory of the first tensor."""
    return _is_view(node) or record_of(node.func.name()).shares


def _ends(graph: AtenGraph, targets: Sequence[str], bucket_bytes: int) -> list[tuple[int, tuple[int, ...]]]:
    """The stages: how many nodes have run at the end of each, and the gradients that it gives."""
    roots: dict[str, str] = {}
    last: dict[str, int] = {}
    for k, node in enumerate(graph.nodes, 1):
        read = [roots.get(v.name, v.name) for v in values_in((node.args, node.kwargs))]
        for result in node.results:
            if result:
                roots[result] = read[0] if read and _shares(node) else result
                last[roots[result]] = k
        last.update(dict.fromkeys(read, k))
    ready = []
    for target, out in zip(targets, graph.outputs, strict=True):
        made = last.get(roots.get(out.value, out.value), 0) if isinstance(out, OutputTensor) else 0
        ready.append(max(made, last.get(target, 0)))
    ends: list[tuple[int, tuple[int, ...]]] = []
    bucket: list[int] = []
    held = 0
    for k in sorted(range(len(ready)), key=ready.__getitem__):
        if held >= bucket_bytes and ready[k] > ready[bucket[-1]]:
            ends.append((ready[bucket[-1]], tuple(bucket)))
            bucket, held = [], 0
        bucket.append(k)
        held += _bytes(graph, graph.outputs[k])
    return [*ends, (len(graph.nodes), tuple(bucket))]


def _bytes(graph: AtenGraph, out: Output) -> int:
    if not isinstance(out, OutputTensor):
        return 0
    meta, symbols = graph.metas[out.value], graph.symbols()
    sizes = (n if isinstance(n, int) else n.evaluate({s: symbols[s] or 1 for s in n.symbols}) for n in meta.sizes)
    return int(getattr(torch, meta.dtype).itemsize * math.prod(sizes))


def _cut(graph: AtenGraph, ends: Sequence[tuple[int, tuple[int, ...]]], sizes: int) -> tuple[list[Stage], list[AtenGraph]]:
    given = graph.inputs[: len(graph.inputs) - sizes]
    makers = graph.makers()
    parts = [graph.nodes[a:b] for a, b in zip([0, *(end for end, _ in ends)], [end for end, _ in ends], strict=False)]
    bodies = [_with_views(part, [graph.outputs[k] for k in gradients], makers) for part, (_, gradients) in zip(parts, ends, strict=True)]
    needs = [_taken(body, [graph.outputs[k] for k in gradients], graph) for body, (_, gradients) in zip(bodies, ends, strict=True)]
    pool = {name: k for k, name in enumerate(given)}
    stages, graphs = [], []
    for number, (body, (_, gradients)) in enumerate(zip(bodies, ends, strict=True)):
        later = {name for need in needs[number + 1 :] for name in need}
        taken = tuple(pool[name] for name in needs[number])
        carried = [r for node in body for r in node.results if r and r in later and r not in pool]
        pool |= {name: len(pool) + k for k, name in enumerate(carried)}
        drops = tuple(sorted(pool[name] for name in needs[number] if name not in later))
        stages.append(Stage(taken, gradients, drops))
        outputs = [*(graph.outputs[k] for k in gradients), *map(OutputTensor, carried)]
        graphs.append(_graph(graph, body, [*needs[number], *graph.inputs[len(given) :]], outputs))
    return stages, graphs


def _with_views(part: Sequence[Node], outputs: Sequence[Output], makers: Mapping[str, Node]) -> list[Node]:
    """The nodes of a stage, and once more the views that it reads of what came before: a view is not handed on, its base is."""
    own = {id(node) for node in part}
    extra: list[Node] = []

    def add(name: str) -> None:
        node = makers.get(name)
        if node is None or id(node) in own or not _is_view(node):
            return
        own.add(id(node))
        for value in values_in((node.args, node.kwargs)):
            add(value.name)
        extra.append(node)

    for node in part:
        for value in values_in((node.args, node.kwargs)):
            add(value.name)
    for out in outputs:
        if isinstance(out, OutputTensor):
            add(out.value)
    return [*extra, *part]


def _taken(body: Sequence[Node], outputs: Sequence[Output], graph: AtenGraph) -> list[str]:
    """What a stage reads and does not make, constants left out."""
    made = {r for node in body for r in node.results if r}
    read = [v.name for node in body for v in values_in((node.args, node.kwargs))]
    read += [out.value for out in outputs if isinstance(out, OutputTensor)]
    return [name for name in dict.fromkeys(read) if name not in made and name not in graph.constants]


def _graph(whole: AtenGraph, nodes: list[Node], inputs: list[str], outputs: list[Output]) -> AtenGraph:
    read = {v.name for node in nodes for v in values_in((node.args, node.kwargs))} | {
        o.value for o in outputs if isinstance(o, OutputTensor)
    }
    constants = {name: tensor for name, tensor in whole.constants.items() if name in read}
    return AtenGraph(inputs, [], [], constants, nodes, whole.metas, {}, outputs, whole.sizes)
