"""Lowers an aten graph to unfused loops over named buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from opmill_fake_tensors import DataDependent
from opmill_fake_tensors.operator import describe
from opmill_fake_tensors.raising import raises_for_content
from opmill_fake_tensors.symbols.index import SizeUnknown

from ..capture.control import ControlOperator
from ..capture.graph import AtenGraph, Node, OutputTensor, Value
from ..capture.places import writing
from ..capture.sizes import late_sizes
from ..content import content_of
from ..loops.ir import Expr
from ..lowered import PARTS, BufferArg, Extern, Lowered, Pointwise
from .arguments import plan_argument
from .biases import add_biases_apart
from .compared import compared
from .context import Context, View, extents_of, named_axes, positions
from .devices import constant_there, gathered
from .exactness import as_eager
from .exprs import MOVABLE, SUPPORTED, cast
from .in_place import write_in_place
from .leaving import outputs_of
from .overflow import overflows
from .pairs import lower_pairs
from .records import Lowering, OperatorRecord, all_records, record_of

_COPIES = ("aten::clone", "aten::_to_copy")
_VECTORS = {"aten::_linalg_svd": (2, (0, 2)), "aten::_linalg_eigh": (2, (1,))}
"""Which argument says whether vectors are computed beside values, and which results these are: functions that give values alone ask for
vectors, too, where they are traced."""


def lower(
    graph: AtenGraph, calls: Set[str] = frozenset(), *, exact: bool = False, products: Mapping[str, bool] = MappingProxyType({})
) -> Lowered:
    """The loops of ``graph``. Operators without a row become ``Extern``s, and so do those among ``calls`` (names of first results) and,
    with ``exact``, those whose loops would round otherwise than eager. ``products``: results of matrix products that shall be loops,
    and whether these may compute their operands."""
    readers = Counter(n for node in graph.nodes for n in _names((node.args, node.kwargs))) + Counter(graph.mutations.values())
    readers.update(o.value for o in graph.outputs if isinstance(o, OutputTensor))
    leaving = frozenset(o.value for o in graph.outputs if isinstance(o, OutputTensor))
    used = set(readers) | {
        name for node in graph.nodes for _, k, _ in node.binds if k is not None and (name := node.results[k]) is not None
    }
    ctx = Context(
        graph.metas,
        sizes=graph.sizes,
        used=frozenset(used),
        leaving=leaving,
        readers=readers,
        constants=dict(graph.constants),
        exact=exact,
        products=products,
        compared=frozenset() if exact else compared(graph),
    )
    for names, role in ((graph.inputs, "input"), (graph.held, "held"), (graph.constants, "constant")):
        for name in filter(graph.metas.__contains__, names):
            ctx.views[name] = ctx.buffer(name, graph.metas[name], role)
    for node in graph.nodes:
        ctx.origin = _origin_of(node)
        ctx.source = next(filter(None, node.results), "")
        before = len(ctx.nodes)
        if ctx.source in calls or node.binds:
            _extern(ctx, node)
        else:
            _lower_node(ctx, node)
        ctx.mark(before)
    ctx.source = ""
    outputs = outputs_of(ctx, graph, _origin_of)
    _mutations(ctx, graph)
    add_biases_apart(ctx, outputs, calls)
    buffers = {n: replace(b, fixed=True) if n in ctx.fixed else b for n, b in ctx.buffers.items()}
    return Lowered(
        tuple(ctx.nodes),
        buffers,
        (*graph.inputs, *graph.held),
        outputs,
        {n: content_of(t) for n, t in ctx.constants.items()},
        graph.symbols(),
        *late_sizes(graph.sizes),
        frozenset(ctx.computing),
    )


def _origin_of(node: Node) -> str:
    return f"{node.func.name().removeprefix('aten::')} {node.origin}".strip()


def _lower_node(ctx: Context, node: Node) -> None:
    if ctx.complex and lower_pairs(ctx, node):
        return
    record = all_records().get(node.func.name())
    if record is not None and record.lower is not None and _supported(ctx, node, record):
        before = len(ctx.nodes)
        out = _tried(record.lower, ctx, node)
        if out is not NotImplemented and ctx.exact and not as_eager(node, ctx.nodes[before:], ctx.metas):
            out = NotImplemented
            del ctx.nodes[before:]
        if out is not NotImplemented:
            for name, view in zip(node.results, out if isinstance(out, list) else [out], strict=True):
                if name is not None and view is not None:
                    ctx.views[name] = view
            return
    if not _empty(ctx, node) and not write_in_place(ctx, node):
        _extern(ctx, node)


def _tried(row: Lowering, ctx: Context, node: Node) -> Any:
    """What the row makes of the node; NotImplemented also where it needs the value of a size that is no number."""
    before = len(ctx.nodes)
    try:
        operands = gathered(ctx, node, (_views(ctx, node.args), _views(ctx, node.kwargs)))
        return operands if operands is NotImplemented else row(ctx, node, *operands[0], **operands[1])
    except (SizeUnknown, DataDependent):
        del ctx.nodes[before:]
        return NotImplemented


def _empty(ctx: Context, node: Node) -> bool:
    """Whether the results have no elements, and nothing is refused of the arguments: memory alone is made then."""
    wanted = [r for r in node.results if r is not None and r in ctx.used]
    operator = describe(node.func)
    if not wanted or any(0 not in ctx.metas[r].sizes for r in wanted) or not operator.pure:
        return False
    if raises_for_content(operator.packet, ctx.metas[wanted[0]].dtype, divides_by_tensor=False):
        return False
    for name in wanted:
        ctx.views[name] = ctx.allocated(name, ctx.metas[name])
    return True


def _supported(ctx: Context, node: Node, record: OperatorRecord) -> bool:
    if node.results and (first := node.results[0]) is not None and overflows(node, ctx.metas[first]):
        return False
    types = MOVABLE if record.moves else SUPPORTED
    read = [r for k, r in enumerate(node.results) if r and (k == 0 or r in ctx.used)]
    return all(ctx.metas[n].dtype in types for n in (*read, *_names((node.args, node.kwargs))))


def _names(arg: Any) -> list[str]:
    if isinstance(arg, Value):
        return [arg.name]
    items = arg.values() if isinstance(arg, dict) else arg if isinstance(arg, (list, tuple)) else ()
    return [n for a in items for n in _names(a)]


def _views(ctx: Context, arg: Any) -> Any:
    if isinstance(arg, Value):
        return ctx.views[arg.name]
    if isinstance(arg, (list, tuple)):
        return type(arg)(_views(ctx, a) for a in arg)
    return {k: _views(ctx, v) for k, v in arg.items()} if isinstance(arg, dict) else arg


# ---- operators that are called as they are -------------------------------------------------------------------------


def _extern(ctx: Context, node: Node) -> None:
    if node.func.name() in _COPIES and (target := node.results[0]) is not None:
        if constant_there(ctx, node, target):
            return
        source = plan_argument(ctx, node.args[0])  # into memory of the promised layout: what the operator itself chooses may differ
        ctx.views[target] = ctx.allocated(target, ctx.metas[target])
        ctx.nodes.append(Extern("aten::copy_", (BufferArg(target), source), {}, (None,), None, (target,), ctx.origin))
        return
    results = tuple(r if r in ctx.used else None for r in node.results)
    args = tuple(plan_argument(ctx, a) for a in _without_vectors(ctx, node, results))
    kwargs = {k: plan_argument(ctx, v) for k, v in node.kwargs.items()}
    for name in results:
        if name is not None:
            ctx.views[name] = ctx.buffer(name, ctx.metas[name])
            ctx.fixed.add(name)
    name = node.func.name()
    binds = tuple((symbol, None if k is None else results[k], dim) for symbol, k, dim in node.binds)
    bodies = node.func.bodies if isinstance(node.func, ControlOperator) else ()
    ctx.nodes.append(
        Extern(name, args, kwargs, results, record_of(name).out, (), ctx.origin, binds, bodies, bool(bodies and node.func.tags))
    )


def _without_vectors(ctx: Context, node: Node, results: tuple[str | None, ...]) -> tuple[Any, ...]:
    """The arguments, which ask for no vectors where nobody reads them: twice the time."""
    flag, vectors = _VECTORS.get(node.func.name(), (0, ()))
    if not vectors or ctx.exact or any(results[k] for k in vectors):
        return node.args
    before = (*node.args, *(argument.default_value for argument in node.func._schema.arguments[len(node.args) :]))[:flag]
    return (*before, False, *node.args[flag + 1 :])


def _mutations(ctx: Context, graph: AtenGraph) -> None:
    """Writes to inputs come last. A value that reads another mutated input, or other positions, goes through a buffer of its own."""
    pending = []
    origins = graph.origins()
    for target, value in graph.mutations.items():
        view = ctx.views[value]
        if ctx.buffers[view.buffer].role != "temporary":
            view = ctx.materialise(view)
        pending.append((target, view, writing(target, origins.get(value))))
    for target, view, origin in pending:
        ctx.origin = origin
        if view.dtype in PARTS:
            axes = named_axes("i", (*view.sizes, 2))
            ctx.nodes.append(Pointwise(target, axes, ctx.part_at(ctx.parts_of(view), positions(axes), extents_of(axes)), origin=ctx.origin))
            continue
        axes = named_axes("i", view.sizes)
        body: Expr = cast(ctx.read(view, positions(axes), extents_of(axes)), graph.metas[target].dtype)
        ctx.nodes.append(Pointwise(target, axes, body, origin=ctx.origin))


__all__ = ["View", "lower"]
