"""Attention with functions of the user's in it, as kernels: what the functions do to one score becomes an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.devices.registry import traits_of

from ..capture.attending import AttentionOperator, with_dense_attention
from ..capture.graph import AtenGraph, Node, OutputTensor
from ..loops.index import ZERO, Index, index
from ..loops.ir import POSITIONS, Attention, AttentionPart, Const, Expr, IndexValue, LoopKernel, Op, Placed, Read, Ref
from ..lowered import BufferArg, Extern, Pointwise
from ..schedule.rewrite import Rewriter
from ..schedule.rewrite import walk as expressions_in
from .context import Context, View
from .exprs import const, index_value, op
from .lower import lower
from .placed import Memory
from .records import Rows

ROWS = Rows(space="opmill")
_LONGEST = 400
"""Nodes in an expression, beyond which it is no part of a kernel."""


def with_attention_by_kernels(graph: AtenGraph, calls: Set[str] = frozenset(), *, exact: bool = False) -> AtenGraph:
    """``graph`` with torch's operators in place of attention that has no kernel: functions that are no expressions, devices without tensor
    cores, nodes among ``calls`` (names of first results)."""

    def is_apart(node: Node) -> bool:
        first = next(filter(None, node.results))
        units = traits_of(graph.metas[first].device).matrix_units
        return exact or not units or not calls.isdisjoint(r for r in node.results if r) or functions_of(node.func) is None

    return with_dense_attention(graph, is_apart)


# ---- functions as expressions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Functions:
    """As of a kernel of attention; they read ``x0``, ``x1``, ...: the others."""

    score: Expr
    kept: Expr
    slope: Expr | None


@lru_cache(256)
def functions_of(operator: AttentionOperator) -> Functions | None:
    """The functions as expressions; None where one is none."""
    scores = {"x0": Ref("score", "float32")}
    score = _expression(operator.score, scores)
    kept = _expression(operator.kept, {})
    slope = None
    if operator.slope is not None:
        slope = _expression(operator.slope, {**scores, "x1": Ref("gradient", "float32")})
    missing = score is None or kept is None or (operator.slope is not None and slope is None)
    return None if missing or score is None or kept is None else Functions(score, kept, slope)


def _expression(graph: AtenGraph, own: Mapping[str, Expr]) -> Expr | None:
    """What a graph computes of each element by itself. ``own``: inputs that are not among the others."""
    program = lower(replace(graph, metas={name: replace(meta, device=HOST) for name, meta in graph.metas.items()}))
    nodes = {node.buffer: node for node in program.nodes if type(node) is Pointwise}
    [out] = graph.outputs
    assert isinstance(out, OutputTensor)
    sizes = graph.metas[out.value].sizes
    others = iter(name for name in graph.inputs if name not in own)
    inputs = {name: f"x{k}" for k, name in enumerate(others)}
    numbers = {name: t.item() for name, t in graph.constants.items() if t.dim() == 0}
    reader = _Reader(nodes, own, inputs, numbers, dict(zip(POSITIONS, sizes, strict=True)), program.buffers)
    try:
        found = reader.value(out.value, tuple(map(index, POSITIONS)))
    except _NoExpression:
        return None
    return found if sum(1 for _ in expressions_in(found)) <= _LONGEST else None


class _NoExpression(Exception):
    """What is asked for is not computed point by point, or at places that only data tell."""


@dataclass
class _Reader:
    """Expressions of what buffers hold, in place of reads of them."""

    nodes: Mapping[str, Pointwise]
    own: Mapping[str, Expr]
    inputs: Mapping[str, str]
    numbers: Mapping[str, Any]
    extents: Mapping[str, int]
    buffers: Mapping[str, Any]

    def value(self, buffer: str, at: tuple[Index, ...]) -> Expr:
        """The element of ``buffer`` at a place."""
        if buffer in self.own:
            return self.own[buffer]
        if buffer in self.inputs:
            return Read(self.inputs[buffer], at, self.buffers[buffer].dtype)
        if buffer in self.numbers:
            return const(self.numbers[buffer], self.buffers[buffer].dtype)
        node = self.nodes.get(buffer)
        if node is None:
            raise _NoExpression
        symbols: dict[str, Index] = {a.name: i for a, i in zip(node.axes, at, strict=True)}
        names: dict[str, Expr] = {}
        for let in node.lets:
            value = self.at(let.value, symbols, names)
            names[let.name] = value
            if type(value) is IndexValue:
                symbols[let.name] = value.index
            elif type(value) is Const and type(value.value) is int:
                symbols[let.name] = index(value.value)
        for check in node.checks:
            if self.at(check.condition, symbols, names) != Const(True, "bool"):
                raise _NoExpression
        return self.at(node.value, symbols, names)

    def at(self, expr: Expr, symbols: Mapping[str, Index], names: Mapping[str, Expr]) -> Expr:
        """``expr`` of a node at a point."""
        return self.simple(Rewriter(symbols, names, self.read, self.extents)(expr), {})

    def read(self, read: Read) -> Expr:
        if read.mask is not None or any(i.symbols - set(POSITIONS) for i in read.indices):
            raise _NoExpression
        return self.value(read.buffer, read.indices)

    def simple(self, expr: Expr, known: dict[Expr, Expr]) -> Expr:
        """``expr`` with what is known of places."""
        if type(expr) is not Op:
            return expr
        if expr not in known:
            args = tuple(self.simple(a, known) for a in expr.args)
            new = expr if args == expr.args else Op(expr.name, args, expr.dtype)
            known[expr] = _PLACES[expr.name](new, args, self.extents) if expr.name in _PLACES else new
        return known[expr]


def place_of(value: Expr) -> Index | None:
    """The index that a whole number is."""
    if value.dtype != "int64":
        return None
    return value.index if type(value) is IndexValue else index(int(value.value)) if type(value) is Const else None


def _sum(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    a, b = map(place_of, args)
    return e if a is None or b is None else index_value(a + b if e.name == "add" else a - b)


def _product(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    a, b = map(place_of, args)
    return index_value(a * b) if a is not None and b is not None and None not in (a.constant, b.constant) else e


def _comparison(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    """Of two places: of their difference and zero, decided where that can be."""
    a, b = map(place_of, args)
    if a is None or b is None:
        return e
    difference = a - b
    bounds = difference.bounds(extents)
    if bounds is not None:
        found = {_ORDER[e.name](n) for n in bounds} if e.name in _ORDER else set()
        if len(found) == 1:
            return Const(found.pop(), "bool")
    return op(e.name, index_value(difference), Const(0, "int64")) if b != ZERO else e


_ORDER = {"lt": lambda n: n < 0, "le": lambda n: n <= 0, "gt": lambda n: n > 0, "ge": lambda n: n >= 0}


def _both(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    true, false = Const(True, "bool"), Const(False, "bool")
    if e.dtype != "bool":
        return e
    if false in args:
        return false
    return args[1] if args[0] == true else args[0] if args[1] == true else e


def _choice(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    condition = args[0]
    return args[1 if condition.value else 2] if type(condition) is Const else e


def _cast(e: Op, args: tuple[Expr, ...], extents: Mapping[str, int]) -> Expr:
    [value] = args
    if type(value) is Const and e.dtype in ("float32", "int64", "bool") and value.dtype in ("float32", "float64", "int64", "bool"):
        return const(value.value, e.dtype)
    if type(value) is IndexValue and e.dtype == "int64":
        return index_value(value.index)
    return value if value.dtype == e.dtype else e


_PLACES = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _comparison),
    **dict.fromkeys(("logical_and", "bitand"), _both),
    "where": _choice,
    "cast": _cast,
}


# ---- kernels ---------------------------------------------------------------------------------------------------------------


def _kernel(
    ctx: Context,
    node: Node,
    part: AttentionPart,
    tensors: Mapping[str, View],
    others: Sequence[View],
    blocks: Sequence[View],
    results: Mapping[str, str | None],
) -> None:
    """A kernel that computes ``results``: values by the operand's name."""
    operator: AttentionOperator = node.func
    functions = functions_of(operator)
    assert functions is not None
    wanted = {what: name for what, name in results.items() if name is not None and name in ctx.used}
    if not wanted:
        return
    memory = Memory(ctx)
    operands = {what: memory.placed(view) for what, view in tensors.items()}
    read = [memory.placed(view) for view in others]
    if functions.kept == Const(True, "bool"):
        blocks = ()
    operands |= {what: _of_all(memory.placed(view), view) for what, view in zip(Attention.BLOCKS, blocks, strict=False)}
    operands |= {what: memory.result(name, ctx.metas[name].dtype) for what, name in wanted.items()}
    loaded = [memory.load(f, read, [v.dtype for v in others]) for f in (functions.score, functions.kept)]
    slope = None if functions.slope is None else memory.load(functions.slope, read, [v.dtype for v in others])
    query, value = tensors["query"], tensors["value"]
    batch, heads, queries, width = query.sizes
    _, own, keys, depth = value.sizes
    attention = Attention(
        part,
        query.dtype,
        batch,
        heads,
        heads // own,
        queries,
        keys,
        width,
        depth,
        operator.scale,
        tuple(operands.items()),
        loaded[0],
        loaded[1],
        slope if part != "forward" else None,
        *(operator.blocks if blocks and operator.blocks else ()),
    )
    kernel = LoopKernel(f"attention_{part}", memory.buffers(), (), (), attention)
    args = tuple(BufferArg(name) for name in memory.read)
    ctx.nodes.append(Extern(node.func.name(), args, {}, tuple(wanted.values()), origin=ctx.origin, kernel=kernel))


def _of_all(placed: Placed, view: View) -> Placed:
    """What is of one sequence or one head is of all."""
    return replace(placed, strides=tuple(0 if n == 1 else s for n, s in zip(view.sizes, placed.strides, strict=True)))


def _by_queries_and_keys(node: Node, blocks: Sequence[View]) -> tuple[Sequence[View], Sequence[View]]:
    own = 4 if node.func.full else 2
    return blocks[:own], blocks[own:]


@ROWS.lowers("attention")
def _attention(ctx: Context, node: Node, query: View, key: View, value: View, others: list[View], blocks: list[View]) -> list[None]:
    tensors = {"query": query, "key": key, "value": value}
    by_queries, _ = _by_queries_and_keys(node, blocks)
    _kernel(ctx, node, "forward", tensors, others, by_queries, dict(zip(("output", "sums", "largest"), node.results, strict=True)))
    return [None] * 3


@ROWS.lowers("attention_backward")
def _backward(
    ctx: Context,
    node: Node,
    query: View,
    key: View,
    value: View,
    gradient: View,
    sums: View,
    rows: View,
    others: list[View],
    blocks: list[View],
) -> list[None]:
    tensors = {"query": query, "key": key, "value": value, "gradient": gradient, "sums": sums, "rows": rows}
    by_queries, by_keys = _by_queries_and_keys(node, blocks)
    _kernel(ctx, node, "keys", tensors, others, by_keys, dict(zip(("key_gradient", "value_gradient"), node.results[1:], strict=True)))
    _kernel(ctx, node, "queries", tensors, others, by_queries, {"query_gradient": node.results[0]})
    return [None] * 3


__all__ = ["Functions", "functions_of", "place_of", "with_attention_by_kernels"]
