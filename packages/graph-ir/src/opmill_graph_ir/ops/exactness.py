"""Which loops give bit for bit what torch's own kernels give: what ``numerics="eager"`` keeps as loops. All else is called as torch's
operator.

Exact is what rounds once, as IEEE arithmetic defines it, on the way from operands to result. Where an operator rounds twice, torch's kernel
may contract or reorder, and does so differently from one vector to the next; sums, products and statistics depend on their order; functions
of a mathematics library on the library, of which torch has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from ..capture.graph import Meta, values_in
from ..capture.graph import Node as AtenNode
from ..loops.ir import Expr, Op
from ..loops.primitives import PRIMITIVES
from ..lowered import Cumulate, Extern, Node, Pointwise, Read, Reduce, Scatter
from .exprs import FLOATS, LOW
from .records import record_of

_ORDERED = frozenset(("sum", "prod", "welford", "logaddexp", "affine"))
"""Reductions and scans of floats whose result depends on the order."""


def as_eager(node: AtenNode, made: Sequence[Node], metas: Mapping[str, Meta]) -> bool:
    """Whether the loops ``made`` of one operator round as eager does: each once, and none what another one rounded."""
    if not all(_is_told(n, node, metas) for n in (*node.args, *node.kwargs.values()) if isinstance(n, float)):
        return False
    rounding = [n for n in made if not isinstance(n, Extern) and any(_roundings(v, {}) for v in _values(n))]
    return len(rounding) <= 1 and all(isinstance(n, Extern) or _is_exact(n) for n in made)


def _is_told(number: float, node: AtenNode, metas: Mapping[str, Meta]) -> bool:
    """Whether a number is the same in the types of all operands: torch rounds it to that of half precision, or does not, from one operator
    to the next."""
    narrow = {metas[v.name].dtype for v in values_in((node.args, node.kwargs))} & set(LOW)
    return record_of(node.func.name()).rounds_numbers or all(torch.tensor(number, dtype=getattr(torch, d)).item() == number for d in narrow)


def _is_exact(made: Pointwise | Reduce | Cumulate | Scatter) -> bool:
    if isinstance(made, Reduce) and any(r.op in _ORDERED and r.dtype in FLOATS for r in made.reductions):
        return False
    if isinstance(made, Cumulate) and any(s.op in _ORDERED and s.dtype in FLOATS for s in made.scans):
        return False
    if isinstance(made, Scatter) and made.mode in ("add", "mul") and made.value.dtype in FLOATS:
        return False
    return all(_roundings(v, {}) <= 1 for v in _values(made))


def _roundings(e: Expr, known: dict[Expr, int]) -> int:
    """How often a value is rounded on the longest way from what is read; more than once where that is not known."""
    if e not in known:
        below = max((_roundings(a, known) for a in _operands(e)), default=0)
        known[e] = below + _own(e)
    return known[e]


def _own(e: Expr) -> int:
    if type(e) is Op and e.name in ("philox", "coin"):  # numbers of our own
        return 2
    if type(e) is not Op or not any(a.dtype in FLOATS for a in (e, *e.args)):
        return 0
    return {"none": 0, "once": 1, "library": 2}[PRIMITIVES[e.name].rounding]


def _operands(e: Expr) -> tuple[Expr, ...]:
    if type(e) is Op:
        return e.args
    return (e.mask,) if type(e) is Read and e.mask is not None else ()


def _values(made: Pointwise | Reduce | Cumulate | Scatter) -> Iterator[Expr]:
    yield from (let.value for let in made.lets)
    if isinstance(made, Reduce):
        yield from (r.value for r in made.reductions)
    if isinstance(made, Cumulate):
        yield from (v for s in made.scans for v in s.values)
    yield from (made.value,) if isinstance(made, (Pointwise, Scatter)) else made.values


__all__ = ["as_eager"]
