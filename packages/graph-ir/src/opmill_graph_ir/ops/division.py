"""Division and remainder: of floats as ``pointwise`` has them, of integers with a check, for by zero they are errors."""

from __future__ import annotations

from typing import Any

from ..capture.graph import Node
from ..loops.ir import Check, Const, Let, Ref
from .context import Context, View
from .exprs import INTEGERS, cast, const, op
from .indexing import gathered
from .pointwise import div_mode_of_floats, fmod_of_floats, remainder_of_floats
from .records import Rows

ROWS = Rows()


def _divided(ctx: Context, node: Node, x: Any, y: Any, primitive: str) -> Any:
    """Division or remainder of integers, which by zero is an error."""
    meta = ctx.metas[node.results[0] or ""]
    if meta.dtype not in INTEGERS or 0 in meta.sizes or isinstance(y, (float, bool)) or isinstance(x, (float, bool)):
        return NotImplemented
    operands = [a if isinstance(a, View) else const(a, meta.dtype) for a in (x, y)]
    if isinstance(operands[1], Const) and operands[1].value in (0, -1):
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        a, b = (cast(ctx.load_broadcast(o, at, ext), meta.dtype) if isinstance(o, View) else o for o in operands)
        if isinstance(b, Const):
            return op(primitive, a, b), [], []
        lets = [Let("d", b)]
        d = Ref("d", meta.dtype)
        by_one = op("neg", a) if "div" in primitive else const(0, meta.dtype)  # the least integer by -1 overflows, which traps
        safe = op("where", op("eq", d, const(-1, meta.dtype)), const(1, meta.dtype), d) if meta.dtype != "uint8" else d
        value = op(primitive, a, safe)
        if meta.dtype != "uint8":
            value = op("where", op("eq", d, const(-1, meta.dtype)), by_one, value)
        return value, lets, [Check(op("ne", d, const(0, meta.dtype)), "RuntimeError", "ZeroDivisionError")]

    return gathered(ctx, node, make)


def _by_kind(ctx: Context, node: Node, x: Any, y: Any, primitive: str) -> Any:
    """Integers by :func:`_divided`, other types by the row of ``pointwise``."""
    if ctx.metas[node.results[0] or ""].dtype in INTEGERS:
        return _divided(ctx, node, x, y, primitive)
    return _FLOAT[primitive](ctx, node, x, y)


_FLOAT = {"mod": remainder_of_floats, "fmod": fmod_of_floats}


@ROWS.pointwise("remainder.Tensor remainder.Scalar")
def _remainder(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _by_kind(ctx, node, x, y, "mod")


@ROWS.pointwise("fmod.Tensor fmod.Scalar")
def _fmod(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _by_kind(ctx, node, x, y, "fmod")


@ROWS.pointwise("div.Tensor_mode div.Scalar_mode", rounds_numbers=True, any_layout=False)
def _div_mode(ctx: Context, node: Node, x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None and ctx.metas[node.results[0] or ""].dtype in INTEGERS:
        return _divided(ctx, node, x, y, "truncdiv" if rounding_mode == "trunc" else "floordiv")
    return div_mode_of_floats(ctx, node, x, y, rounding_mode=rounding_mode)


@ROWS.pointwise("floor_divide floor_divide.Scalar", any_layout=False)
def _floor_divide(ctx: Context, node: Node, x: Any, y: Any) -> Any:
    return _div_mode(ctx, node, x, y, rounding_mode="floor")


__all__ = ["ROWS"]
