"""The plan of last resort: each aten operator called as torch has it. Right wherever capture is; used where no kernel can be built."""

from __future__ import annotations

from typing import Any

from ..capture.attending import with_dense_attention
from ..capture.control import ControlOperator
from ..capture.graph import AtenGraph, Node, OutputTensor, values_in
from ..capture.places import writing
from ..capture.sizes import late_sizes
from ..content import content_of
from ..loops.index import index
from ..lowered import BufferArg, BufferInfo, BufferRole, Extern, Lowered
from ..ops.arguments import call_argument, plan_output


def lower_to_operators(graph: AtenGraph) -> Lowered:
    """The graph as extern calls alone."""
    graph = with_dense_attention(graph)
    roles: dict[str, BufferRole] = dict.fromkeys(graph.inputs, "input")
    roles.update(dict.fromkeys(graph.held, "held"))
    roles.update(dict.fromkeys(graph.constants, "constant"))
    buffers = {
        n: BufferInfo(
            n,
            m.dtype,
            tuple(map(index, m.sizes)),
            tuple(map(index, m.strides)),
            m.device,
            roles.get(n, "temporary"),
            opaque=m.opaque,
            multiplied=m.multiplied,
        )
        for n, m in graph.metas.items()
    }
    read = _read(graph)
    nodes = [
        Extern(
            n.func.name(),
            tuple(_arg(a) for a in n.args),
            {k: _arg(a) for k, a in n.kwargs.items()},
            tuple(r if r in read else None for r in n.results),
            None,
            (),
            n.origin,
            _binds(n),
            _bodies(n),
        )
        for n in graph.nodes
    ]
    origins = graph.origins()
    for target, value in graph.mutations.items():
        origin = writing(target, origins.get(value))
        nodes.append(Extern("aten::copy_", (BufferArg(target), BufferArg(value)), {}, (None,), None, (target,), origin))
    constants = {n: content_of(t) for n, t in graph.constants.items()}
    outputs = tuple(plan_output(o, str) for o in graph.outputs)
    return Lowered(tuple(nodes), buffers, (*graph.inputs, *graph.held), outputs, constants, graph.symbols(), *late_sizes(graph.sizes))


def _read(graph: AtenGraph) -> set[str]:
    """What anybody looks at. Of other results nothing is known, not even whether they are tensors: attention that is asked for no weights
    gives none."""
    found = {v.name for n in graph.nodes for v in values_in((n.args, n.kwargs))} | set(graph.mutations.values())
    found |= {o.value for o in graph.outputs if isinstance(o, OutputTensor)}
    return found | {name for n in graph.nodes for _, k, _ in n.binds if k is not None and (name := n.results[k]) is not None}


def _binds(node: Node) -> tuple[tuple[str, str | None, int], ...]:
    return tuple((symbol, None if k is None else node.results[k], dim) for symbol, k, dim in node.binds)


def _bodies(node: Node) -> tuple[AtenGraph, ...]:
    return node.func.bodies if isinstance(node.func, ControlOperator) else ()


def _arg(arg: Any) -> object:
    return call_argument(arg, lambda value: BufferArg(value.name))
