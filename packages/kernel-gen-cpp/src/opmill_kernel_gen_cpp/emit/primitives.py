"""Primitive -> text, one row a primitive; scalar and vector side by side where they differ.

``{0}``.. are operands, ``%name`` is a helper of ``functions.py`` for the operands' type and lanes. A row may have one text for floats, one
for integers, one for bools; a primitive without a row for its operands' kind is refused. A comparison's text gives a C++ bool for
scalars, a vector of signed integers as wide as the operands (-1 or 0) for vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.primitives import PRIMITIVES


@dataclass(frozen=True)
class Row:
    """Texts for floats, integers and bools: one, or (scalar, vector). ``work``: cycles that a vector takes, about; None for what the
    primitive's own cost says."""

    f: str | tuple[str, str] | None = None
    i: str | tuple[str, str] | None = None
    b: str | tuple[str, str] | None = None
    work: int | None = None

    def text(self, kind: str, lanes: int) -> str | None:
        """The template for operands of ``kind`` (an ElementType's), or None."""
        text = {"float": self.f, "int": self.i, "uint": self.i, "bool": self.b}.get(kind)
        return text if text is None or isinstance(text, str) else text[lanes > 1]


def _numbers(text: str) -> Row:
    return Row(f=text, i=text)


_MASK_SIGN = ("__builtin_signbit({0}) != 0", "%bits({0}) < 0")

ROWS: dict[str, Row] = {
    "add": _numbers("({0} + {1})"),
    "sub": _numbers("({0} - {1})"),
    "mul": _numbers("({0} * {1})"),
    "div": Row(f="({0} / {1})"),
    # a comparison with NaN is false: %larger is one instruction and gives its second operand where either is NaN
    "max": Row(f="({0} != {0} ? {0} : %larger({0}, {1}))", i="({0} > {1} ? {0} : {1})"),
    "min": Row(f="({0} != {0} ? {0} : %smaller({0}, {1}))", i="({0} < {1} ? {0} : {1})"),
    "fmax": Row(f="(({0} > {1}) | ({1} != {1}) ? {0} : {1})", i="({0} > {1} ? {0} : {1})"),
    "fmin": Row(f="(({0} < {1}) | ({1} != {1}) ? {0} : {1})", i="({0} < {1} ? {0} : {1})"),
    "floordiv": Row(f="%floordiv({0}, {1})", i="%ifloordiv({0}, {1})", work=12),
    "truncdiv": Row(f="%trunc({0} / {1})", i="%itruncdiv({0}, {1})"),
    "mod": Row(f="%mod({0}, {1})", i="%imod({0}, {1})", work=12),
    "fmod": Row(f="%fmod({0}, {1})", i="%ifmod({0}, {1})", work=12),
    "pow": Row(f="%pow({0}, {1})", i="%ipow({0}, {1})"),
    "atan2": Row(f="%atan2({0}, {1})"),
    "copysign": Row(f="%copysign({0}, {1})"),
    "nextafter": Row(f="%nextafter({0}, {1})"),
    "hypot": Row(f="%hypot({0}, {1})"),
    "bitand": Row(i="({0} & {1})", b="({0} & {1})"),
    "bitor": Row(i="({0} | {1})", b="({0} | {1})"),
    "bitxor": Row(i="({0} ^ {1})", b="({0} ^ {1})"),
    "shl": Row(i="%ishl({0}, {1})"),
    "shr": Row(i="%ishr({0}, {1})"),
    "eq": Row("({0} == {1})", "({0} == {1})", ("({0} == {1})", "~({0} ^ {1})")),
    "ne": Row("({0} != {1})", "({0} != {1})", "({0} ^ {1})"),
    "lt": Row("({0} < {1})", "({0} < {1})", ("(!{0} & {1})", "(~{0} & {1})")),
    "le": Row("({0} <= {1})", "({0} <= {1})", ("(!{0} | {1})", "(~{0} | {1})")),
    "gt": Row("({0} > {1})", "({0} > {1})", ("({0} & !{1})", "({0} & ~{1})")),
    "ge": Row("({0} >= {1})", "({0} >= {1})", ("({0} | !{1})", "({0} | ~{1})")),
    "neg": _numbers("(- {0})"),
    "abs": Row(f="%abs({0})", i="({0} < 0 ? - {0} : {0})"),
    "sign": Row(f="%sign({0})", i=("(({0} > 0) - ({0} < 0))", "(({0} < 0) - ({0} > 0))")),
    "bitnot": Row(i="(~{0})", b=("(!{0})", "(~{0})")),
    **{
        name: Row(f=f"%{name}({{0}})")
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma "
            "sigmoid floor ceil round trunc"
        ).split()
    },
    "rsqrt": Row(f="(1 / %sqrt({0}))"),
    "reciprocal": Row(f="(1 / {0})"),
    "isnan": Row(f="({0} != {0})", i="({0} != {0})"),
    "isinf": Row(f="(%abs({0}) == __builtin_inff())", i="({0} != {0})"),
    "signbit": Row(f=_MASK_SIGN, i="({0} < 0)", b=("false", "({0} ^ {0})")),
    "logical_not": Row(b=("(!{0})", "(~{0})")),
    "logical_and": Row(b="({0} & {1})"),
    "logical_or": Row(b="({0} | {1})"),
    "logical_xor": Row(b="({0} ^ {1})"),
    "fma": Row(f="%fma({0}, {1}, {2})"),
}
LOGICAL = frozenset(name for name, known in PRIMITIVES.items() if known.operands == "bools")
COMPARISONS = frozenset(name for name, known in PRIMITIVES.items() if known.result == "bool") - LOGICAL
CONVERSIONS = frozenset(("cast", "bitcast", "rounded", "where"))
"""Written by ``body.py``, whatever the types."""
REFUSED = {
    "erfinv": "no function of a library",
    "digamma": "no function of a library",
    "philox": "random words are made by torch's generator",
    "coin": "random words are made by torch's generator",
}
"""Primitives without a row, and why: kernels with them are left to others."""


def work(name: str) -> int:
    """Cycles of a vector unit that the primitive takes, about."""
    row, cost = ROWS.get(name), PRIMITIVES[name].cost
    if row is not None and row.work is not None:
        return row.work
    return 12 if cost >= 20 else 4 if cost >= 4 else 1
