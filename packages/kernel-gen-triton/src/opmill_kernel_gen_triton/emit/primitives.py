"""Primitive -> text, one row a primitive.

``{0}``.. are operands, ``{T}`` their type, ``{one}`` a one of that type; ``%name`` is a helper of :mod:`.helpers`. A row may have one text
for floats, one for integers, one for bools; a primitive without a row for its operands' kind is refused. Functions are libdevice's:
Triton's own ``exp`` and division trade accuracy for speed, and eager does not. Where a nest moves nothing wider than half precision, they
are right to a few thousandths of what its values are rounded to, and a row may have a ``quick`` text for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.primitives import PRIMITIVES


@dataclass(frozen=True)
class Row:
    """Texts for floats, integers and bools. ``quick``: for float32 where a few units in its last place do not matter. ``bare``: constant
    operands may be plain Python literals. ``long``: instructions that an element takes in float32, roughly; None for what the
    primitive's own cost says."""

    f: str | None = None
    i: str | None = None
    b: str | None = None
    bare: bool = False
    quick: str | None = None
    long: int | None = None

    def text(self, kind: str, quick: bool = False) -> str | None:
        """The template for operands of ``kind`` (an ElementType's), or None."""
        return {"float": (self.quick if quick else None) or self.f, "int": self.i, "uint": self.i, "bool": self.b}.get(kind)


def _infix(sign: str, b: str | None = None) -> Row:
    text = f"({{0}} {sign} {{1}})"
    return Row(text, text, b, bare=True)


ROWS: dict[str, Row] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": Row(f="libdevice.div_rn({0}, {1})", quick="({0} / {1})", long=10),
    "max": Row(f="%maximum({0}, {1})", i="tl.where({0} > {1}, {0}, {1})"),
    "min": Row(f="%minimum({0}, {1})", i="tl.where({0} < {1}, {0}, {1})"),
    "fmax": Row(f="tl.where(({0} > {1}) | ({1} != {1}), {0}, {1})", i="tl.where({0} > {1}, {0}, {1})"),
    "fmin": Row(f="tl.where(({0} < {1}) | ({1} != {1}), {0}, {1})", i="tl.where({0} < {1}, {0}, {1})"),
    "floordiv": Row(f="%floordiv({0}, {1})", i="%int_floordiv({0}, {1})", long=40),
    "truncdiv": Row(f="libdevice.trunc(libdevice.div_rn({0}, {1}))", i="({0} // {1})", long=1),
    "mod": Row(f="%remainder({0}, {1})", i="%int_remainder({0}, {1})", long=40),
    "fmod": Row(f="libdevice.fmod({0}, {1})", i="({0} % {1})", long=40),
    "pow": Row(f="libdevice.pow({0}, {1})", i="%int_pow({0}, {1}, {bits})", long=100),
    "bitand": Row(i="({0} & {1})", b="({0} & {1})"),
    "bitor": Row(i="({0} | {1})", b="({0} | {1})"),
    "bitxor": Row(i="({0} ^ {1})", b="({0} ^ {1})"),
    "shl": Row(i="%shift_left({0}, {1}, {bits})"),
    "shr": Row(i="%shift_right({0}, {1}, {bits})"),
    "eq": _infix("==", "%negate({0} ^ {1})"),
    "ne": _infix("!=", "({0} ^ {1})"),
    "lt": _infix("<", "(%negate({0}) & {1})"),
    "le": _infix("<=", "(%negate({0}) | {1})"),
    "gt": _infix(">", "({0} & %negate({1}))"),
    "ge": _infix(">=", "({0} | %negate({1}))"),
    # Triton's unary minus is 0 - x, which loses the sign of zero
    "neg": Row(f="({0} * -1.0)", i="(-{0})"),
    "abs": Row(f="tl.abs({0})", i="tl.abs({0})"),
    "sign": Row(f="(({0} > 0).to({T}) - ({0} < 0).to({T}))", i="(({0} > 0).to({T}) - ({0} < 0).to({T}))"),
    "bitnot": Row(i="%bitnot({0})", b="%negate({0})"),
    **{name: Row(f=f"libdevice.{name}({{0}})", long=1) for name in "rsqrt floor ceil trunc".split()},
    **{
        name: Row(f=f"libdevice.{name}({{0}})", long=30)
        for name in "expm1 log log2 log10 log1p asin acos atan sinh cosh asinh acosh atanh erf erfc erfinv".split()
    },
    **{name: Row(f=f"libdevice.{name}({{0}})", long=100) for name in "sin cos tan lgamma".split()},
    "tanh": Row(f="libdevice.tanh({0})", quick="%quick_tanh({0})", long=30),
    "exp": Row(f="libdevice.exp({0})", quick="libdevice.fast_expf({0})", long=10),
    "exp2": Row(f="libdevice.exp2({0})", quick="tl.exp2({0})", long=1),
    **{name: Row(f=f"libdevice.{name}({{0}}, {{1}})", long=30) for name in "atan2 copysign nextafter hypot".split()},
    "sqrt": Row(f="libdevice.sqrt_rn({0})", long=1),
    "round": Row(f="libdevice.rint({0})"),
    "reciprocal": Row(f="libdevice.div_rn({one}, {0})", quick="({one} / {0})", long=1),
    "sigmoid": Row(
        f="libdevice.div_rn({one}, {one} + libdevice.exp(-{0}))",
        quick="libdevice.fast_dividef({one}, {one} + libdevice.fast_expf(-{0}))",
        long=20,
    ),
    "digamma": Row(f="%digamma({0})", long=200),
    "isnan": Row(f="({0} != {0})", i="({0} != {0})"),
    "isinf": Row(f='(tl.abs({0}) == float("inf"))', i="({0} != {0})"),
    "signbit": Row(f="({0}.to({I}, bitcast=True) < 0)", i="({0} < 0)"),
    "logical_not": Row(b="%negate({0})"),
    "logical_and": Row(b="({0} & {1})"),
    "logical_or": Row(b="({0} | {1})"),
    "logical_xor": Row(b="({0} ^ {1})"),
    "philox": Row(i="%philox_word({0}, {1})", long=30),
    "coin": Row(i="%coin_word({0}, {1})", long=20),
    "fma": Row(f="({0} * {1} + {2})"),
}
CONVERSIONS = frozenset(("cast", "bitcast", "rounded", "where"))
"""Written by ``body.py``, whatever the types."""
REFUSED: dict[str, str] = {}
"""Primitives without a row, and why: kernels with them are left to others."""


def long(name: str) -> int:
    """Instructions that the primitive takes for an element in float32, roughly."""
    row = ROWS[name]
    return PRIMITIVES[name].cost if row.long is None else row.long
