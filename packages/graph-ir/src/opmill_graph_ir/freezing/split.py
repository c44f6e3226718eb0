"""A graph in two: what is made of weights that stay, and what is left for each call."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from ..capture.graph import AtenGraph, Node, OutputTensor, values_in
from .constant import Constant, is_view


def split(graph: AtenGraph, frozen: Sequence[str], constant: Constant) -> tuple[AtenGraph, AtenGraph, tuple[int, ...]]:
    """The graph for calls, the graph for weights, and which of the weights the first one reads itself (positions in ``frozen``).

    The second takes ``frozen`` and gives what the first takes as held tensors: behind its own come the weights that it reads, then what the
    second gives. Views and what is made of numbers alone belong to both."""
    makers = graph.makers()
    once, kept, folded = _needed(graph, makers, constant, set(frozen))
    originals = [name for name in frozen if name in kept]
    main = replace(
        graph,
        inputs=[name for name in graph.inputs if name not in frozen],
        held=[*graph.held, *originals, *folded],
        nodes=[node for node in graph.nodes if id(node) in once],
    )
    whole = _used(graph.nodes, set(folded))
    weights = AtenGraph(
        inputs=list(frozen),
        constants={n: t for n, t in graph.constants.items() if n in whole},
        nodes=[node for node in graph.nodes if any(r in whole for r in node.results)],
        metas={name: replace(meta, multiplied=0) if meta.multiplied else meta for name, meta in graph.metas.items()},
        outputs=[OutputTensor(name) for name in folded],
    )
    read = {v.name for node in main.nodes for v in values_in((node.args, node.kwargs))} | {
        o.value for o in main.outputs if isinstance(o, OutputTensor)
    }
    main.constants = {n: t for n, t in graph.constants.items() if n in read}
    return main, weights, tuple(frozen.index(name) for name in originals)


def _needed(graph: AtenGraph, makers: dict[str, Node], constant: Constant, frozen: Set[str]) -> tuple[set[int], set[str], list[str]]:
    """Nodes of each call (by ``id``), weights that they read, and what they read of what is made of weights."""
    nodes = [node for node in graph.nodes if not node.results or not all(r is None or r in constant for r in node.results)]
    once, kept, folded = {id(node) for node in nodes}, set[str](), dict[str, None]()
    names = [v.name for node in nodes for v in values_in((node.args, node.kwargs))]
    names += [o.value for o in graph.outputs if isinstance(o, OutputTensor)] + list(graph.mutations.values())
    while names:
        name = names.pop()
        node = makers.get(name)
        if name in frozen:
            kept.add(name)
        elif node is None or id(node) in once:
            continue
        elif name in constant.weights and not is_view(node):
            folded[name] = None
        else:
            once.add(id(node))
            names += [v.name for v in values_in((node.args, node.kwargs))]
    order = {r: k for k, r in enumerate(makers)}
    return once, kept, sorted(folded, key=order.__getitem__)


def _used(nodes: Sequence[Node], wanted: set[str]) -> set[str]:
    """Everything that ``wanted`` is made of."""
    for node in reversed(nodes):
        if any(r in wanted for r in node.results):
            wanted.update(v.name for v in values_in((node.args, node.kwargs)))
    return wanted


__all__ = ["split"]
