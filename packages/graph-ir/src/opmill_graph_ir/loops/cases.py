"""Kernels that every generator should handle, with inputs: a shared table for the tests of generators.

Each :class:`Case` holds a kernel and fills its buffers from a seed; compare a generator's result with
:func:`opmill_graph_ir.loops.evaluate.evaluate` on copies of the same buffers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .case import Case, axes, cast, map_case, numel, op, row_major
from .float8 import FLOAT8
from .index import Index, IndexLike, floordiv, index, mod
from .ir import (
    SORTS,
    Axis,
    Buffer,
    Check,
    Const,
    Expr,
    IndexValue,
    Let,
    Load,
    LoopKernel,
    Nest,
    Op,
    Phase,
    Reduction,
    Ref,
    Scan,
    Store,
    StoreMode,
)
from .primitives import PRIMITIVES
from .product_cases import HALVES, products

FLOATS = ("float32", "float64")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def cases() -> list[Case]:
    """The whole table; names are unique."""
    makers = (_primitives, _random, _casts, _float8, _shapes, _reductions, _scans, _sorts, products, _symbolic, _fused, _indexing, _whole)
    return [case for make in makers for case in make()]


# ---- pointwise -------------------------------------------------------------------------------------------------------------

_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(["log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "digamma", "pow"], (0.1, 4.0)),
    **dict.fromkeys(["asin", "acos", "atanh", "erfinv"], (-0.95, 0.95)),
    **dict.fromkeys(["log1p"], (-0.9, 4.0)),
    **dict.fromkeys(["acosh"], (1.01, 6.0)),
    **dict.fromkeys(["shl", "shr"], (0, 5)),
}
_SPECIAL = ("lgamma", "digamma", "erfinv", "acosh", "atanh", "asinh", "tan", "erfc", "pow")
_NO_FLOAT = {"bitand", "bitor", "bitxor", "shl", "shr", "bitnot"}
_NO_BOOL_RESULT = {"cast", "bitcast", "rounded", "where", "fma", "philox", "coin"}


def _dtypes_of(name: str) -> tuple[str, ...]:
    row = PRIMITIVES[name]
    if name.startswith("logical_"):
        return ("bool",)
    if row.floats_only or name in {"isnan", "isinf", "signbit", "fmax", "fmin", "pow"}:
        return FLOATS
    if name in _NO_FLOAT:
        return (*INTEGERS, "bool") if name.startswith("bit") else ("int64", "int32")
    return (*FLOATS, *INTEGERS)


def _primitives() -> Iterator[Case]:
    domain = axes(i=37)
    for name, row in PRIMITIVES.items():
        if name in _NO_BOOL_RESULT:
            continue
        for dtype in _dtypes_of(name):
            if name == "neg" and dtype == "uint8":
                continue
            names = ("a", "b", "c")[: row.arity]
            args = [Load(n, index("i"), dtype) for n in names]
            ranges = dict.fromkeys(names, _RANGES[name]) if name in _RANGES else {}
            if name in {"floordiv", "truncdiv", "mod", "fmod"}:
                ranges = {"b": (1, 9)}
            rtol = 64.0 if name in _SPECIAL else 8.0
            yield map_case(f"{name}_{dtype}", domain, dict.fromkeys(names, dtype), op(name, *args), ranges=ranges, rtol=rtol)
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        a, b, m = Load("a", index("i"), dtype), Load("b", index("i"), dtype), Load("m", index("i"), "bool")
        yield map_case(f"where_{dtype}", domain, {"m": "bool", "a": dtype, "b": dtype}, op("where", m, a, b))
    for dtype in FLOATS:
        args = [Load(n, index("i"), dtype) for n in "abc"]
        yield map_case(f"fma_{dtype}", domain, dict.fromkeys("abc", dtype), op("fma", *args), rtol=64.0)
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        number = cast(Load("a", index("i"), dtype), "float32" if dtype != "float64" else dtype)
        yield map_case(f"rounded_{dtype}", domain, {"a": dtype}, op("rounded", cast(op("mul", number, number), dtype)))
    yield map_case("bitcast_float32", domain, {"a": "float32"}, Op("bitcast", (Load("a", index("i"), "float32"),), "int32"))


def _random() -> Iterator[Case]:
    """Random words in a row, from the middle of a sequence, every other one, turned, and along rows."""

    def case(name: str, domain: Sequence[Axis], place: Index) -> Case:
        word = Op(name.partition("_")[0], (Load("key", index(1), "int64"), IndexValue(place, "int64")), "int32")
        buffers = (Buffer("key", "int64", "in", index(2)), Buffer("out", "int32", "out", numel(domain)))
        kernel = LoopKernel(name, buffers, (Nest(tuple(domain), (Phase(stores=(Store("out", row_major(domain), word),)),), name),))
        return Case(name, kernel, ranges={"key": (-(2**40), 2**40)})

    d = axes(i=6, j=52)
    yield case("philox_flat", d, row_major(d))
    yield case("philox_middle", d, row_major(d) + 8)
    yield case("philox_odd_start", d, row_major(d) + 3)
    yield case("philox_every_other", d, row_major(d) * 2)
    yield case("philox_turned", d, index("j") * 6 + "i")
    odd = axes(i=6, j=51)
    yield case("philox_odd_rows", odd, row_major(odd))
    d = axes(i=6, j=104)
    yield case("coin_flat", d, row_major(d))
    yield case("coin_middle", d, row_major(d) + 8)
    yield case("coin_half_start", d, row_major(d) + 4)
    yield case("coin_every_other", d, row_major(d) * 2)
    yield case("coin_turned", d, index("j") * 6 + "i")
    i, j = axes(i=6), axes(j=52)
    key = Load("key", index(0), "int64")
    word = Op("philox", (key, IndexValue(index("i") * 52 + "j", "int64")), "int32")
    number = op("add", op("mul", cast(word, "float32"), Const(2.0**-32, "float32")), Const(0.5, "float32"))
    phases = (
        Phase(j, reductions=(Reduction(("total",), "sum", number, "float32"),)),
        Phase(j, stores=(Store("out", row_major((*i, *j)), op("div", number, Ref("total", "float32"))),)),
    )
    buffers = (Buffer("key", "int64", "in", index(1)), Buffer("out", "float32", "out", index(6 * 52)))
    yield Case("philox_rows", LoopKernel("philox_rows", buffers, (Nest(i, phases),)), ranges={"key": (-(2**40), 2**40)}, rtol=64.0)


def _casts() -> Iterator[Case]:
    every = (*FLOATS, *HALVES, *INTEGERS, "bool")
    for source in every:
        for target in every:
            if source != target:
                ranges = {"a": (0.0, 100.0)} if target == "uint8" else {}
                value = cast(Load("a", index("i"), source), target)
                yield map_case(f"cast_{source}_{target}", axes(i=35), {"a": source}, value, ranges=ranges)
    for dtype in HALVES:
        a, b = (cast(Load(n, index("i"), dtype), "float32") for n in "ab")
        value = cast(op("mul", op("add", a, b), op("tanh", a)), dtype)
        yield map_case(f"half_arithmetic_{dtype}", axes(i=101), {"a": dtype, "b": dtype}, value)


def _float8() -> Iterator[Case]:
    """Floats of one byte: converted, moved, turned, chosen, padded, gathered, and where rows are reduced."""
    for dtype in FLOAT8:
        for other in (*FLOATS, *HALVES, "int32", "bool", *(f for f in FLOAT8 if f != dtype)):
            yield map_case(f"cast_{dtype}_{other}", axes(i=35), {"a": dtype}, cast(Load("a", index("i"), dtype), other), rtol=0.0)
            if other not in FLOAT8:
                yield map_case(f"cast_{other}_{dtype}", axes(i=35), {"a": other}, cast(Load("a", index("i"), other), dtype), rtol=0.0)
        wide, least = (
            ({"a": (-400.0, 400.0)}, {"a": (-0.02, 0.02)}) if dtype == "float8_e4m3fn" else ({"a": (-5e4, 5e4)}, {"a": (-1e-4, 1e-4)})
        )
        for name, ranges in (("large", wide), ("least", least)):
            yield map_case(
                f"{name}_{dtype}", axes(i=101), {"a": "float32"}, cast(Load("a", index("i"), "float32"), dtype), ranges=ranges, rtol=0.0
            )
        d = axes(i=6, j=21)
        a, b, m = Load("a", row_major(d), dtype), Load("b", index("j") * 6 + "i", dtype), Load("m", row_major(d), "bool")
        yield map_case(f"where_{dtype}", d, {"m": "bool", "a": dtype, "b": dtype}, op("where", m, a, b), rtol=0.0)
        inside = op("lt", IndexValue(index("j"), "int64"), Const(17, "int64"))
        padded = Load("a", index("i") * 17 + "j", dtype, inside, Const(-1.5, dtype))
        buffers = (Buffer("a", dtype, "in", index(6 * 17)), Buffer("out", dtype, "out", index(126)))
        yield Case(
            f"padded_{dtype}",
            LoopKernel(f"padded_{dtype}", buffers, (Nest(d, (Phase(stores=(Store("out", row_major(d), padded),)),)),)),
            rtol=0.0,
        )
        i, j = d[:1], d[1:]
        x = cast(a, "float32")
        total = Reduction(("total",), "sum", op("mul", x, x), "float32")
        scaled = Store("out", row_major(d), cast(op("div", x, op("sqrt", Ref("total", "float32"))), dtype))
        rows = (Buffer("a", dtype, "in", index(126)), Buffer("out", dtype, "out", index(126)))
        yield Case(
            f"scaled_rows_{dtype}",
            LoopKernel(f"scaled_rows_{dtype}", rows, (Nest(i, (Phase(j, reductions=(total,)), Phase(j, stores=(scaled,)))),)),
            rtol=1.1,
        )


def _gelu(x: Expr) -> Expr:
    half, one, root = Const(0.5, x.dtype), Const(1.0, x.dtype), Const(0.7071067811865476, x.dtype)
    return op("mul", op("mul", half, x), op("add", one, op("erf", op("mul", x, root))))


def _shapes() -> Iterator[Case]:
    for n in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65):
        yield map_case(f"tail_{n}", axes(i=n), {"a": "float32"}, _gelu(Load("a", index("i"), "float32")))
    big = axes(i=70_001)
    yield map_case("large_gelu", big, {"a": "float32"}, _gelu(Load("a", index("i"), "float32")))
    d = axes(i=5, j=6, k=19)
    a, bias = Load("a", row_major(d), "float32"), Load("b", index("k"), "float32")
    scale = Load("c", index("i") * 6 + "j", "float32")
    yield map_case("broadcast", d, dict.fromkeys("abc", "float32"), op("add", op("mul", a, scale), bias))
    for rows, columns in ((3, 5), (8, 8), (33, 70), (130, 64)):
        d = axes(i=rows, j=columns)
        t = Load("a", index("j") * rows + "i", "float32")
        yield map_case(f"transposed_{rows}x{columns}", d, dict.fromkeys("ab", "float32"), op("add", t, Load("b", row_major(d), "float32")))
    for dtype, short, length in (("float32", 9, 40), ("float16", 3, 200), ("float32", 2, 33)):  # places of a window, channels last
        d = axes(i=5, j=short, k=length)
        turned = Load("a", index("i") * (short * length) + index("j") + index("k") * short, dtype)
        yield map_case(f"turned_{dtype}_{short}x{length}", d, {"a": dtype}, turned)
    d = axes(i=4, j=9)
    b = Buffer("a", "float32", "in", index(4 * 18))
    st = Store("out", row_major(d), Load("a", index("i") * 18 + index("j") * 2 + 1, "float32"))
    yield Case("strided", LoopKernel("strided", (b, Buffer("out", "float32", "out", index(36))), (Nest(d, (Phase(stores=(st,)),)),)))
    yield from _interleaved()
    value = op("mul", Load("a", row_major(d), "float32"), IndexValue(index("i") * 3 - "j", "float32"))
    yield map_case("iota", d, {"a": "float32"}, value)
    yield map_case("fill", d, {}, Const(2.5, "float32"))
    yield map_case(
        "scalar", (), {"a": "float32", "b": "float32"}, op("sub", Load("a", index(0), "float32"), Load("b", index(0), "float32"))
    )
    mixed = op("mul", cast(Load("a", row_major(d), "int64"), "float64"), cast(Load("b", row_major(d), "float32"), "float64"))
    yield map_case("mixed_widths", d, {"a": "int64", "b": "float32"}, cast(mixed, "int8"), ranges={"a": (-9, 9), "b": (-9, 9)})


def _interleaved() -> Iterator[Case]:
    """A point of several elements that lie side by side: rotated pairs, corners of boxes."""
    for dtype, parts in (("float32", 2), ("bfloat16", 2), ("float64", 3), ("float32", 4)):
        loads = [Load("a", index("i") * parts + k, dtype) for k in range(parts)]
        wide = [cast(x, "float32" if dtype in HALVES else dtype) for x in loads]
        lets = tuple(Let(f"p{k}", cast(op("mul", x, wide[(k + 1) % parts]), dtype)) for k, x in enumerate(wide))
        stores = tuple(Store("out", index("i") * parts + k, Ref(f"p{k}", dtype)) for k in range(parts))
        buffers = (Buffer("a", dtype, "in", index(67 * parts)), Buffer("out", dtype, "out", index(67 * parts)))
        name = f"interleaved_{dtype}_{parts}"
        yield Case(name, LoopKernel(name, buffers, (Nest(axes(i=67), (Phase((), lets, stores=stores),)),)))


# ---- symbolic sizes --------------------------------------------------------------------------------------------------------

_EXTENTS: dict[str, tuple[IndexLike, ...]] = {
    "plain": ("s0", "s1"),
    "multiple": (index("s0") * 2, "s1"),
    "half": ("s0", index("s1") * 3, floordiv("s1", 2)),
    "less": (index("s0") - 1, "s1", 3),
    "product": (4, index("s0") * "s1", "s1"),
}
_SIZES = ((2, 2), (3, 21), (40, 5), (1, 1), (2, 300))


def _symbolic() -> Iterator[Case]:
    """Extents that are expressions: pointwise, transposed, and reduced over the last or the first axis; also none and few points."""
    for name, extents in _EXTENTS.items():
        d = tuple(Axis(f"i{k}", index(e)) for k, e in enumerate(extents))
        x = Load("a", row_major(d), "float32")
        kernels = {
            "map": _over(
                d, Phase(stores=(Store("out", row_major(d), op("mul", op("exp", x), IndexValue(index("s1") - "i1", "float32"))),))
            ),
            "turn": _over(d, Phase(stores=(Store("out", row_major(d[::-1]), op("neg", x)),))),
            "rows": _over(d[:-1], *_softmax_over(d[-1:], x, row_major(d)), whole=d),
            "columns": _over(d[1:], *_softmax_over(d[:1], x, row_major(d)), whole=d),
        }
        for kind, kernel in kernels.items():
            for s0, s1 in _SIZES:
                if kind in ("map", "turn") or min(e.extent.evaluate({"s0": s0, "s1": s1}) for e in d) > 0:
                    yield Case(f"symbolic_{name}_{kind}_{s0}_{s1}", kernel, (s0, s1), rtol=64.0)


def _over(outer: Sequence[Axis], *phases: Phase, whole: Sequence[Axis] | None = None) -> LoopKernel:
    room = numel(whole or outer)
    buffers = (Buffer("a", "float32", "in", room), Buffer("out", "float32", "out", room))
    return LoopKernel("symbolic", buffers, (Nest(tuple(outer), phases),), ("s0", "s1"))


def _softmax_over(inner: Sequence[Axis], x: Expr, at: Index) -> tuple[Phase, ...]:
    top, total = Ref("top", "float32"), Ref("total", "float32")
    e = op("exp", op("sub", x, top))
    return (
        Phase(tuple(inner), reductions=(Reduction(("top",), "max", x, "float32"),)),
        Phase(tuple(inner), reductions=(Reduction(("total",), "sum", e, "float32"),)),
        Phase(tuple(inner), stores=(Store("out", at, op("div", e, total)),)),
    )


# ---- reductions ------------------------------------------------------------------------------------------------------------


def _reduce_case(name: str, outer: Sequence[Axis], inner: Sequence[Axis], where: Index, r: Reduction, size: Index, ins: str) -> Case:
    outs = [Buffer(f"out{k}", "int64" if k and r.op.startswith("arg") else r.dtype, "out", numel(outer)) for k in range(len(r.names))]
    stores = tuple(Store(b.name, row_major(outer), Ref(n, b.dtype)) for b, n in zip(outs, r.names, strict=True))
    phases = (Phase(axes=tuple(inner), reductions=(r,)), Phase(stores=stores))
    return Case(name, LoopKernel(name, (Buffer("a", ins, "in", size), *outs), (Nest(tuple(outer), phases, name),)), rtol=64.0)


_REDUCTIONS = {
    **dict.fromkeys(("sum", "prod", "max", "min"), (*FLOATS, "int64", "int32")),
    "any": ("bool",),
    "all": ("bool",),
    "xor": ("int64", "bool"),
    "argmax": (*FLOATS, "int64"),
    "argmin": (*FLOATS, "int64"),
    "welford": FLOATS,
}


def _reductions() -> Iterator[Case]:
    for name, dtypes in _REDUCTIONS.items():
        names = ("r", "q") if name.startswith("arg") or name == "welford" else ("r",)
        for dtype in dtypes:
            shapes = {"row": ((7,), (45,)), "column": ((45,), (7,)), "full": ((), (77,)), "middle": ((3, 10), (6,))}
            for shape, (outer_sizes, inner_sizes) in shapes.items():
                outer = axes(**{f"i{k}": n for k, n in enumerate(outer_sizes)})
                inner = axes(j=inner_sizes[0])
                where = row_major((*outer, *inner))
                if shape == "column":
                    where = row_major((*inner, *outer))
                elif shape == "middle":
                    where = row_major((outer[0], *inner, outer[1]))
                r = Reduction(names, name, Load("a", where, dtype), dtype)
                case = _reduce_case(f"{name}_{shape}_{dtype}", outer, inner, where, r, numel((*outer, *inner)), dtype)
                yield Case(case.name, case.kernel, ranges={"a": (-1, 1)} if name == "prod" else {}, rtol=64.0)
    for shape, outer, inner in (("row", axes(i=70), axes(j=1030)), ("column", axes(i=1030), axes(j=70)), ("full", (), axes(j=72_100))):
        where = row_major((*outer, *inner)) if shape != "column" else row_major((*inner, *outer))
        r = Reduction(("r",), "sum", Load("a", where, "float32"), "float32")
        yield _reduce_case(f"large_sum_{shape}", outer, inner, where, r, numel((*outer, *inner)), "float32")
    outer, inner = axes(i=4, k=10), axes(j=3, h=12)  # two inner axes, not neighbours in memory
    where = row_major((outer[0], inner[0], outer[1], inner[1]))
    half = Reduction(("r",), "sum", cast(Load("a", where, "bfloat16"), "float32"), "float32")
    yield _reduce_case("sum_two_axes_bfloat16", outer, inner, where, half, index(4 * 3 * 10 * 12), "bfloat16")
    for rows, short, dtype in itertools.product((4, 5, 8), (2, 3, 4), FLOATS):  # rows read backwards
        inner = axes(j=rows, h=short)
        back = index("j") * short - index("h") + short - 1
        r = Reduction(("r",), "sum", Load("a", back, dtype), dtype)
        yield _reduce_case(f"sum_backwards_{rows}_{short}_{dtype}", (), inner, back, r, index(rows * short), dtype)


_SCANS = {
    **dict.fromkeys(("sum", "prod"), (*FLOATS, "int64", "int32")),
    **dict.fromkeys(("logaddexp", "affine"), FLOATS),
    **dict.fromkeys(("argmax", "argmin"), (*FLOATS, "int64", "int32", "uint8")),
}


def _scans() -> Iterator[Case]:
    for name, dtypes in _SCANS.items():
        for dtype in dtypes:
            shapes = {
                "row": ((7,), (45,)),
                "column": ((45,), (7,)),
                "one": ((), (300,)),
                "middle": ((3, 10), (6,)),
                "rows": ((33,), (2100,)),
            }
            for shape, (outer_sizes, [n]) in shapes.items():
                if shape == "rows" and name == "prod":
                    continue
                outer, j = axes(**{f"i{k}": m for k, m in enumerate(outer_sizes)}), axes(j=n)
                order = {"column": (*j, *outer), "middle": (*outer[:1], *j, *outer[1:])}.get(shape, (*outer, *j))
                yield _scan_case(
                    f"scan_{name}_{shape}_{dtype}", name, outer, j, row_major(order), dtype, reverse=shape in ("row", "rows", "middle")
                )
    d, j = axes(i="s0"), axes(j="s1")
    for s0, s1 in _SIZES:
        case = _scan_case(f"scan_symbolic_{s0}_{s1}", "sum", d, j, row_major((*d, *j)), "float32", reverse=False)
        yield Case(case.name, replace(case.kernel, symbols=("s0", "s1")), (s0, s1), rtol=64.0)


def _scan_case(name: str, op_name: str, outer: Sequence[Axis], j: Sequence[Axis], at: Index, dtype: str, *, reverse: bool) -> Case:
    """What runs along ``j``, and something made of it at each point."""
    names = ("r", "q") if op_name.startswith("arg") else ("r",)
    loads = tuple(Load(n, at, dtype) for n in "ab")[: 2 if op_name == "affine" else 1]
    kept: Expr = Ref("r", dtype)
    stores = [Store("out", at, kept), Store("more", at, op("sub", kept, loads[0]))]
    stores += [Store("where", at, Ref("q", "int64"))] if len(names) > 1 else []
    buffers = [Buffer(x.buffer, dtype, "in", numel((*outer, *j))) for x in loads]
    buffers += [Buffer(s.buffer, s.value.dtype, "out", numel((*outer, *j))) for s in stores]
    phases = (Phase(axes=tuple(j), scans=(Scan(names, op_name, loads, dtype, reverse),), stores=tuple(stores)),)
    bound = (-3.0, 3.0) if op_name.startswith("arg") else (0.5, 1.25) if op_name == "prod" else (-1.0, 1.0)
    ranges = {} if dtype == "int64" else dict.fromkeys("ab", (0, 3) if dtype == "uint8" else bound)
    return Case(name, LoopKernel(name, tuple(buffers), (Nest(tuple(outer), phases, op_name),)), ranges=ranges, rtol=256.0)


_SORTED = ("float32", *HALVES, "int32", "int16", "int8", "uint8", "bool")
"""Types that a generator may be asked to put in order; it may refuse others."""


def _sorts() -> Iterator[Case]:
    """Rows in order, with equals among them, and zeros of both signs."""
    shapes = {
        "row": (7, 45, None),
        "short": (33, 2, None),
        "whole": (3, 64, None),
        "long": (2, 600, None),
        "first": (9, 100, 8),
        "one": (5, 17, 1),
        "most": (3, 20, 19),
    }
    for number, ((shape, (rows, n, first)), dtype) in enumerate(itertools.product(shapes.items(), _SORTED)):
        yield _sort_case(f"sort_{shape}_{dtype}", SORTS[number % 2], rows, n, dtype, first)
    for op_name in SORTS:
        yield _sort_case(f"sort_column_{op_name}", op_name, 40, 9, "float32", None, along_rows=False)


def _sort_case(name: str, op_name: str, rows: int, n: int, dtype: str, first: int | None, *, along_rows: bool = True) -> Case:
    """What is in order along ``j``, or the ``first`` of it, and something made of both at each point."""
    i, j, read = axes(i=rows), axes(j=n), "float32" if dtype in (*HALVES, "float32") else dtype
    at, to = (index("i") * n + "j", index("i") * (first or n) + "j") if along_rows else (index("j") * rows + "i",) * 2
    loaded = Load("a", at, read)
    value = cast(op("round", loaded), dtype) if read == "float32" else loaded
    kept: Expr = Ref("r", dtype)
    made = op("add", cast(kept, "float32"), cast(Ref("q", "int64"), "float32"))
    stores = tuple(Store(b, to, v, first=first) for b, v in (("out", kept), ("where", Ref("q", "int64")), ("more", made)))
    buffers = [Buffer("a", read, "in", index(rows * n))] + [
        Buffer(s.buffer, s.value.dtype, "out", index(rows * (first or n))) for s in stores
    ]
    phase = Phase(axes=tuple(j), scans=(Scan(("r", "q"), op_name, (value,), dtype),), stores=stores)
    return Case(name, LoopKernel(name, tuple(buffers), (Nest(tuple(i), (phase,), op_name),)))


def _fused() -> Iterator[Case]:
    for rows, columns in ((5, 33), (64, 700)):
        yield _softmax(rows, columns)
        yield _layernorm(rows, columns)
    i, j = axes(i=6), axes(j=40)
    where = row_major((*i, *j))
    a = Load("a", where, "float32")
    both = (Reduction(("s",), "sum", a, "float32"), Reduction(("m",), "max", op("abs", a), "float32"))
    last = Store("out", where, op("sub", op("mul", a, Ref("m", "float32")), Ref("s", "float32")))
    phases = (Phase(axes=j, reductions=both, stores=(Store("copy", where, op("neg", a)),)), Phase(axes=j, stores=(last,)))
    buffers = tuple(Buffer(n, "float32", "in" if n == "a" else "out", index(240)) for n in ("a", "copy", "out"))
    yield Case("two_reductions_and_stores", LoopKernel("two", buffers, (Nest(i, phases),)), rtol=64.0)


def _softmax(rows: int, columns: int) -> Case:
    i, j = axes(i=rows), axes(j=columns)
    where = row_major((*i, *j))
    exps = op("exp", op("sub", Load("x", where, "float32"), Ref("m", "float32")))
    phases = (
        Phase(axes=j, reductions=(Reduction(("m",), "max", Load("x", where, "float32"), "float32"),)),
        Phase(
            axes=j,
            lets=(Let("e", exps),),
            reductions=(Reduction(("s",), "sum", Ref("e", "float32"), "float32"),),
            stores=(Store("out", where, Ref("e", "float32")),),
        ),
        Phase(axes=j, stores=(Store("out", where, op("div", Load("out", where, "float32"), Ref("s", "float32"))),)),
    )
    n = index(rows * columns)
    kernel = LoopKernel("softmax", (Buffer("x", "float32", "in", n), Buffer("out", "float32", "out", n)), (Nest(i, phases, "softmax"),))
    return Case(f"softmax_{rows}x{columns}", kernel, rtol=64.0)


def _layernorm(rows: int, columns: int) -> Case:
    i, j = axes(i=rows), axes(j=columns)
    where = row_major((*i, *j))
    x = op("add", Load("x", where, "float32"), Load("y", where, "float32"))
    variance = op("div", Ref("m2", "float32"), Const(float(columns), "float32"))
    centred = op("sub", x, Ref("mean", "float32"))
    value = op(
        "add", op("mul", op("mul", centred, Ref("rstd", "float32")), Load("w", index("j"), "float32")), Load("b", index("j"), "float32")
    )
    phases = (
        Phase(axes=j, reductions=(Reduction(("mean", "m2"), "welford", x, "float32"),)),
        Phase(lets=(Let("rstd", op("rsqrt", op("add", variance, Const(1e-5, "float32")))),)),
        Phase(axes=j, stores=(Store("out", where, value),)),
    )
    n, w = index(rows * columns), index(columns)
    buffers = [Buffer(k, "float32", "in", m) for k, m in (("x", n), ("y", n), ("w", w), ("b", w))]
    kernel = LoopKernel("layernorm", (*buffers, Buffer("out", "float32", "out", n)), (Nest(i, phases, "layer_norm"),))
    return Case(f"layernorm_{rows}x{columns}", kernel, rtol=64.0)


# ---- indexing, masks, checks, in place, many nests -------------------------------------------------------------------------


def _indexing() -> Iterator[Case]:
    i, j = axes(i=9), axes(j=24)
    where = row_major((*i, *j))
    raw, n = Load("ids", index("i"), "int64"), Const(50, "int64")
    wrapped = op("where", op("lt", raw, Const(0, "int64")), op("add", raw, n), raw)
    good = op("logical_and", op("ge", Ref("row", "int64"), Const(0, "int64")), op("lt", Ref("row", "int64"), n))
    first = Phase(lets=(Let("row", wrapped),), checks=(Check(good, "IndexError", "index out of range in self"),))
    table = Load("table", index("row") * 24 + "j", "float32")
    second = Phase(axes=j, stores=(Store("out", where, op("mul", table, Const(2.0, "float32"))),))
    buffers = (
        Buffer("ids", "int64", "in", index(9)),
        Buffer("table", "float32", "in", index(1200)),
        Buffer("out", "float32", "out", index(216)),
    )
    kernel = LoopKernel("gather", buffers, (Nest(i, (first, second), "embedding"),))
    yield Case("gather", kernel, ranges={"ids": (-50, 49)})
    yield Case("gather_out_of_range", kernel, ranges={"ids": (50, 60)}, expect=1)
    value = Load("table", index("row") * 24 + "j", "float32")
    flat = Phase(lets=(Let("row", wrapped),), checks=first.checks, stores=(Store("out", where, value),))
    yield Case("gather_flat", LoopKernel("gather_flat", buffers, (Nest((*i, *j), (flat,)),)), ranges={"ids": (-50, 49)})
    add = Phase(lets=(Let("row", raw),), stores=(Store("acc", index("row") * 24 + "j", Load("a", where, "float32"), "add"),))
    scatter = (
        Buffer("ids", "int64", "in", index(9)),
        Buffer("a", "float32", "in", index(216)),
        Buffer("acc", "float32", "inout", index(240)),
    )
    yield Case("scatter_add", LoopKernel("scatter_add", scatter, (Nest((*i, *j), (add,)),)), ranges={"ids": (0, 9)}, rtol=64.0)
    yield from _combining_stores()


def _combining_stores() -> Iterator[Case]:
    """Many points of one place, under each mode and kind of element."""
    d = axes(i=53)
    others = (*FLOATS, *HALVES, "int32", "bool")
    modes: dict[StoreMode, tuple[str, ...]] = {"add": (*FLOATS, *HALVES, "int64", "bool"), "mul": others, "max": others, "min": others}
    for mode, dtypes in modes.items():
        for dtype in dtypes:
            lets = (Let("row", Load("ids", index("i"), "int64")),)
            store = Store("acc", index("row"), Load("a", index("i"), dtype), mode)
            buffers = (
                Buffer("ids", "int64", "in", index(53)),
                Buffer("a", dtype, "in", index(53)),
                Buffer("acc", dtype, "inout", index(9)),
            )
            kernel = LoopKernel("combine", buffers, (Nest(d, (Phase(lets=lets, stores=(store,)),)),))
            bound = {"ids": (0, 8), **({"a": (-1.5, 1.5)} if mode == "mul" and dtype.startswith(("float", "bfloat")) else {})}
            yield Case(f"combine_{mode}_{dtype}", kernel, ranges=bound, rtol=64.0)
            for phases, name in _rows_of_stores(mode, dtype):
                wide = (buffers[0], Buffer("a", dtype, "in", index(53 * 21)), Buffer("acc", dtype, "inout", index(9 * 21)))
                nest = Nest(d if len(phases) > 1 else axes(i=53, j=21), phases)
                yield Case(f"combine_{name}_{mode}_{dtype}", LoopKernel("combine", wide, (nest,)), ranges=bound, rtol=64.0)


def _rows_of_stores(mode: StoreMode, dtype: str) -> Iterator[tuple[tuple[Phase, ...], str]]:
    """The same, of rows of neighbouring places: in one phase, and in one that runs along the row."""
    lets = (Let("row", Load("ids", index("i"), "int64")),)
    stores = (Store("acc", index("row") * 21 + "j", Load("a", index("i") * 21 + "j", dtype), mode),)
    yield (Phase(lets=lets, stores=stores),), "rows"
    yield (Phase(lets=lets), Phase(axes(j=21), stores=stores)), "along"


def _whole() -> Iterator[Case]:
    d = axes(i=6, j=21)
    inside = op(
        "logical_and",
        op("ge", IndexValue(index("j"), "int64"), Const(2, "int64")),
        op("lt", IndexValue(index("j"), "int64"), Const(19, "int64")),
    )
    padded = Load("a", index("i") * 17 + "j" - 2, "float32", inside, Const(-1.5, "float32"))
    buffers = (Buffer("a", "float32", "in", index(6 * 17)), Buffer("out", "float32", "out", index(126)))
    yield Case("padded", LoopKernel("padded", buffers, (Nest(d, (Phase(stores=(Store("out", row_major(d), padded),)),)),)))
    st = Store("a", row_major(d), op("add", Load("a", row_major(d), "float32"), Load("b", index("j"), "float32")))
    place = (Buffer("a", "float32", "inout", index(126)), Buffer("b", "float32", "in", index(21)))
    yield Case("in_place", LoopKernel("in_place", place, (Nest(d, (Phase(stores=(st,)),)),)))
    split = Load("a", floordiv(row_major(d), 7) + mod(row_major(d), 7) * 18, "float32")
    yield map_case("division_in_index", d, {"a": "float32"}, split)
    x = Load("a", row_major(d), "float32")
    shared = (Let("t", op("tanh", x)),)
    stores = (
        Store("out0", row_major(d), op("mul", Ref("t", "float32"), x)),
        Store("out1", row_major(d), op("gt", Ref("t", "float32"), Const(0.0, "float32"))),
    )
    outs = (
        Buffer("a", "float32", "in", index(126)),
        Buffer("out0", "float32", "out", index(126)),
        Buffer("out1", "bool", "out", index(126)),
    )
    yield Case("two_outputs", LoopKernel("two_outputs", outs, (Nest(d, (Phase(lets=shared, stores=stores),)),)))
    e = axes(k=13)
    other = Nest(e, (Phase(stores=(Store("out2", index("k"), op("exp", Load("c", index("k"), "float64"))),)),), "second")
    first = Nest(d, (Phase(stores=(Store("out", row_major(d), op("neg", x)),)),), "first")
    nests = (
        Buffer("a", "float32", "in", index(126)),
        Buffer("c", "float64", "in", index(13)),
        Buffer("out", "float32", "out", index(126)),
        Buffer("out2", "float64", "out", index(13)),
    )
    yield Case("two_nests", LoopKernel("two_nests", nests, (first, other)))


__all__ = ["Case", "axes", "cases", "cast", "numel", "op", "row_major"]
