"""A rule as one kernel over tensors of any number of elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..loops.canonical import BufferUse, Canonical, canonical
from ..loops.index import ZERO, index
from ..loops.ir import Axis, Expr, Let, Load, Nest, Phase, Store
from ..ops.exprs import Ref, cast, const, op, wide
from .rules import Rule
from .values import Number

SIZE = "n"


def update_kernel(rule: Rule, flags: frozenset[str], dtypes: Mapping[str, str]) -> Canonical:
    """The kernel over the buffers ``dtypes`` (``param``, ``grad``, the state, ``count`` where the kernel counts steps), all of ``n``
    elements but the count, and over ``numbers``, the hyperparameters in float64 in the order of ``rule.numbers``, and after them the count
    where that is the caller's."""
    at = index("i")
    elements = {n: Number(cast(Load(n, at, d), wide(d))) for n, d in dtypes.items() if n != "count"}
    numbers = {n: Number(Load("numbers", index(k), "float64"), uniform=True) for k, n in enumerate(rule.numbers)}
    nests: list[Nest] = []
    if rule.steps and "count" not in dtypes:
        numbers["step"] = Number(Load("numbers", index(len(rule.numbers)), "float64"), uniform=True)
    elif rule.steps:
        kind = dtypes["count"]
        more: Expr = op("add", Load("count", ZERO, kind), const(1, kind))
        nests.append(Nest((), (Phase(stores=(Store("count", ZERO, more),)),), "count"))
        numbers["step"] = Number(cast(Load("count", ZERO, kind), "float64"), uniform=True)
    results = rule.update(elements, numbers, flags)
    lets = tuple(Let(f"new_{name}", cast(value.expr, dtypes[name])) for name, value in results.items())
    stores = tuple(Store(name, at, Ref(f"new_{name}", dtypes[name])) for name in results)
    nests.append(Nest((Axis("i", index(SIZE)),), (Phase(lets=lets, stores=stores),), "update"))

    def use(name: str) -> BufferUse:
        if name == "numbers":
            return BufferUse("float64", index(len(rule.numbers) + (rule.steps and "count" not in dtypes)))
        return BufferUse(dtypes[name], index(1 if name == "count" else SIZE))

    return canonical(nests, use)


__all__: Sequence[str] = ["SIZE", "update_kernel"]
