"""The primitives of loop IR, each with its arity and result type. A generator that lacks one refuses the kernel.

Meaning is torch's: ``floordiv`` and ``mod`` round as Python does, ``truncdiv`` and ``fmod`` toward zero (integers: division by
zero raises in eager, so graph-ir adds a Check), ``round`` halves to even, ``max``/``min`` propagate NaN, ``fmax``/``fmin`` ignore it.
Arithmetic on bool, float16, bfloat16 and floats of one byte does not exist: lowering casts first. Shifts and bit operations are for integers and bool.
``philox`` of a key and a place (int64) is a random word (int32), ``coin`` a cheaper one for comparisons: see ``random.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Primitive:
    """``result`` is ``"same"`` (as the operands), ``"bool"``, or ``"any"`` (named by the Op)."""

    name: str
    arity: int
    result: str = "same"
    floats_only: bool = False


def _rows(names: str, arity: int, result: str = "same", floats_only: bool = False) -> dict[str, Primitive]:
    return {n: Primitive(n, arity, result, floats_only) for n in names.split()}


PRIMITIVES: dict[str, Primitive] = {
    **_rows("add sub mul max min fmax fmin floordiv truncdiv mod fmod pow", 2),
    **_rows("div atan2 copysign nextafter hypot", 2, floats_only=True),
    **_rows("bitand bitor bitxor shl shr", 2),
    **_rows("eq ne lt le gt ge", 2, "bool"),
    **_rows("neg abs sign bitnot", 1),
    **_rows(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
        "erf erfc erfinv lgamma digamma sigmoid floor ceil round trunc",
        1,
        floats_only=True,
    ),
    **_rows("isnan isinf signbit", 1, "bool"),
    **_rows("logical_not", 1, "bool"),
    **_rows("logical_and logical_or logical_xor", 2, "bool"),
    **_rows("cast bitcast", 1, "any"),
    **_rows("philox coin", 2, "any"),  # (int64, int64) -> int32
    **_rows("where", 3),  # (bool, T, T) -> T
    **_rows("fma", 3, floats_only=True),
}
