"""Kernels of matrix products in half precision and float32, as fusion writes them: for the recognisers of kernel generators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from .case import Case, axes, cast, numel, op, row_major
from .index import index
from .ir import Axis, Buffer, Const, Expr, Load, LoopKernel, Nest, Phase, Reduction, Ref, Store
from .walk import inside

HALVES = ("bfloat16", "float16")
_FLOATS = (*HALVES, "float32")


_PRODUCTS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]] = {
    "whole": ((), 64, (64,), (32,)),
    "ragged": ((), 33, (70,), (41,)),
    "deep": ((), 17, (20,), (300,)),
    "batched": ((3,), 20, (36,), (24,)),
    "two columns": ((), 40, (6, 9), (32,)),
    "two inner": ((2,), 18, (32,), (5, 7)),
}
"""Batch, rows, columns, and what is summed over."""


def products() -> Iterator[Case]:
    """Matrix products, whichever way the operands lie, and what is done to their results point by point."""
    for (name, (batch, m, ns, ks)), dtype, turned in itertools.product(_PRODUCTS.items(), _FLOATS, (False, True)):
        z, i = axes(**{f"z{k}": n for k, n in enumerate(batch)}), axes(i=m)
        j, k = (axes(**{f"{c}{n}": e for n, e in enumerate(sizes)}) for c, sizes in (("j", ns), ("k", ks)))
        a, b = ((*z, *i, *k), (*z, *j, *k)) if turned else ((*z, *k, *i), (*z, *k, *j))
        yield _product_case(
            f"product_{name}_{dtype}_{'turned' if turned else 'plain'}",
            (*z, *i, *j),
            k,
            Load("a", row_major(a), dtype),
            Load("b", row_major(b), dtype),
        )
    i, j, k = axes(i=40), axes(j=24), axes(k=50)
    computed = cast(
        op("mul", cast(Load("a", row_major((*i, *k)), "bfloat16"), "float32"), cast(Load("c", index("k"), "bfloat16"), "float32")),
        "bfloat16",
    )
    yield _product_case("product_computed", (*i, *j), k, computed, Load("b", row_major((*j, *k)), "bfloat16"))
    for dtype in ("bfloat16", "float32"):
        yield from _symbolic(dtype)
    yield _between_rows_and_columns()
    yield _deep()


def _symbolic(dtype: str) -> Iterator[Case]:
    """Rows and whole products whose number is not known."""
    suffix = "" if dtype in HALVES else f"_{dtype}"
    columns, k = axes(j=48), axes(k=40)
    row, batch = Load("a", index("i") * 40 + "k", dtype), Load("a", index("z") * 800 + index("i") * 40 + "k", dtype)
    column = Load("b", index("j") * 40 + "k", dtype)
    yield _product_case(f"product_symbolic{suffix}", (*axes(i="s0"), *columns), k, row, column, ("s0",), (50,))
    further = Load("b", index("z") * 1920 + index("j") * 40 + "k", dtype)
    yield _product_case(f"product_symbolic_batch{suffix}", (*axes(z="s0"), *axes(i=20), *columns), k, batch, further, ("s0",), (3,))


def _between_rows_and_columns() -> Case:
    """Neighbours in memory belong to different products: heads that lie innermost. One operand is computed."""
    i, j, h, k = axes(i=20), axes(j=40), axes(h=6), axes(k=24)
    factor = Load("c", row_major((*h, *k)), "float32")
    return _product_case(
        "product_innermost_batch_float32",
        (*i, *j, *h),
        k,
        op("mul", Load("a", row_major((*i, *k, *h)), "float32"), factor),
        cast(Load("b", row_major((*j, *h, *k)), "bfloat16"), "float32"),
    )


def _deep() -> Case:
    """More terms than are added up at once, and a rest."""
    i, j, k = axes(i=16), axes(j=18), axes(k=1500)
    a, b = (Load(name, row_major((*x, *k)), "float32") for name, x in (("a", i), ("b", j)))
    return _product_case("product_parts_float32", (*i, *j), k, a, b)


def _product_case(
    name: str, outer: Sequence[Axis], inner: Sequence[Axis], a: Expr, b: Expr, symbols: tuple[str, ...] = (), sizes: tuple[int, ...] = ()
) -> Case:
    """With a bias for each column, something dear, and a second result, in float32 where the operands are not rounded on the way."""
    value = op("mul", *(x if x.dtype == "float32" else cast(x, "float32") for x in (a, b)))
    extents = {x.name: x.extent for x in (*outer, *inner)}
    last = outer[-1]
    second = "float32" if type(a) is Load else a.dtype
    total = op("add", Ref("r", "float32"), cast(Load("bias", index(last.name), a.dtype), "float32"))
    stores = (
        Store("out0", row_major(outer), cast(total, a.dtype)),
        Store("out1", row_major(outer), cast(op("tanh", op("mul", Ref("r", "float32"), Const(0.125, "float32"))), second)),
    )
    nest = Nest(tuple(outer), (Phase(tuple(inner), reductions=(Reduction(("r",), "sum", value, "float32"),)), Phase(stores=stores)))
    held = [
        Buffer(x.buffer, x.dtype, "in", math.prod((extents[n] for n in sorted(x.index.symbols & extents.keys())), start=index(1)))
        for x in inside(value)
        if type(x) is Load
    ]
    outs = [Buffer("out0", a.dtype, "out", numel(outer)), Buffer("out1", second, "out", numel(outer))]
    kernel = LoopKernel(name.replace(" ", "_"), (*held, Buffer("bias", a.dtype, "in", last.extent), *outs), (nest,), symbols)
    return Case(name, kernel, sizes, ranges=dict.fromkeys(("a", "b"), (-1, 1)), rtol=64.0)
