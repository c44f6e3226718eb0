"""Random numbers on GPUs, drawn where they are used: a word of a counted sequence by the position of the element.

The sequences begin at seeds that torch's own generator draws on the device, one call for many: they follow ``torch.manual_seed``, move the
generator on, and are drawn anew when a CUDA graph is replayed. The numbers themselves are not eager's. On processors torch draws.
"""

from __future__ import annotations

from typing import Any

from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.plan.model import Literal, Named

from ..capture.graph import Meta, Node
from ..loops.index import Index, index
from ..loops.ir import Const, Expr, Op
from ..lowered import Extern
from .context import Context, Extents, Indices, View
from .exprs import FLOATS, cast, const, index_value, op
from .records import Rows

ROWS = Rows(kind="random")
_SEEDS = 64
"""Seeds that one call draws."""
OPERATORS = "native_dropout bernoulli.p rand rand_like"


def _seed(ctx: Context, device: str) -> Expr:
    """A seed that nothing else begins at."""
    left = ctx.seeds.get(device)
    if left is None or left[1] == _SEEDS:
        meta = Meta("int64", (_SEEDS,), (1,), device)
        view = ctx.buffer(ctx.fresh(), meta)
        ctx.fixed.add(view.buffer)
        how: dict[str, object] = {"dtype": Named("dtype", "int64"), "device": Named("device", device)}
        args = (Literal(-(1 << 63)), Literal((1 << 63) - 1), (Literal(_SEEDS),))
        ctx.nodes.append(Extern("aten::randint.low", args, how, (view.buffer,), origin=ctx.origin))
        left = view, 0
    ctx.seeds[device] = left[0], left[1] + 1
    return ctx.read(left[0], (index(left[1]),), {})


def _place(at: Indices, sizes: tuple[Any, ...]) -> Index:
    total = index(0)
    for i, n in zip(at, sizes, strict=True):
        total = total * n + i
    return total


def _words(ctx: Context, meta: Meta, kind: str = "philox") -> Any:
    """The word of each element, as a function of its position; ``kind`` of word: ``coin`` for those that are only compared."""
    seed = _seed(ctx, meta.device)
    return lambda at: Op(kind, (seed, index_value(_place(at, meta.sizes))), "int32")


def _kept(word: Expr, p: float) -> Expr:
    """Whether the element is drawn, as happens with probability ``p``, between 0 and 1."""
    return op("lt", word, Const(min(round(p * (1 << 32)) - (1 << 31), (1 << 31) - 1), "int32"))


def _drawn_here(meta: Meta) -> bool:
    return traits_of(meta.device).grid and 0 not in meta.sizes


@ROWS.lowers("native_dropout", any_layout=True, gradient="native_dropout_backward")
def _dropout(ctx: Context, node: Node, x: View, p: float, train: bool | None = True) -> Any:
    if node.results[0] is None or not train or not 0 < p < 1 or x.dtype not in FLOATS:
        return NotImplemented
    meta, mask = (ctx.metas[r or node.results[0]] for r in node.results)
    if not _drawn_here(meta):
        return NotImplemented
    word = _words(ctx, meta, "coin")
    kept = ctx.pointwise(node.results[1], Meta("bool", meta.sizes, mask.strides, meta.device), lambda at, ext: _kept(word(at), 1 - p))

    def value(at: Indices, ext: Extents) -> Expr:
        y = ctx.load(x, at, ext)
        return op("mul", y, op("where", ctx.read(kept, at, ext), const(1 / (1 - p), y.dtype), const(0, y.dtype)))

    return [ctx.pointwise(node.results[0], meta, value), kept]


@ROWS.lowers("bernoulli.p")
def _bernoulli(ctx: Context, node: Node, x: View, p: float = 0.5, generator: Any = None) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if generator is not None or not 0 < p < 1 or not _drawn_here(meta):
        return NotImplemented
    word = _words(ctx, meta, "coin")
    return ctx.pointwise(node.results[0], meta, lambda at, ext: cast(_kept(word(at), p), meta.dtype))


@ROWS.lowers("rand rand_like")
def _uniform(ctx: Context, node: Node, *_: Any, **__: Any) -> Any:
    """Evenly in [0, 1), in steps that the type holds exactly: of 2**-24, in half precision of the unit of its last place below one."""
    meta = ctx.metas[node.results[0] or ""]
    bits = {"float32": 24, "float16": 11, "bfloat16": 8}.get(meta.dtype)
    if bits is None or not _drawn_here(meta):
        return NotImplemented
    word = _words(ctx, meta)

    def value(at: Indices, ext: Extents) -> Expr:
        high = op("shr", word(at), Const(32 - bits, "int32"))
        return op("mul", cast(op("add", high, Const(1 << (bits - 1), "int32")), "float32"), Const(2.0**-bits, "float32"))

    return ctx.pointwise(node.results[0], meta, value)


__all__ = ["OPERATORS"]
