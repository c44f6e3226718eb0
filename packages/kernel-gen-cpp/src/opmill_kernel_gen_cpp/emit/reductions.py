"""Reductions: start values, one step, and how partial results of lanes and copies come together."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Const, Op, Reduction

from ..target import Target
from . import convert
from .body import Body, Value, primitive_text
from .constants import const_text
from .functions import function, splat
from .needs import Needs
from .types import C_OF_SHORT, SIGNED_OF_SIZE, TYPES, Vectors, vector

_STEP = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "bitor", "all": "bitand", "xor": "bitxor"}
_BOOL_STEP = {"sum": "bitor", "prod": "bitand", "max": "bitor", "min": "bitand"}


@dataclass(frozen=True)
class Accumulator:
    """Running values of one reduction in one copy of the loop: one variable, (value, position), or (mean, m2, count)."""

    reduction: Reduction
    variables: tuple[str, ...]
    vectors: Vectors | None


def identity(r: Reduction) -> Const:
    """What the reduction starts from; combining it with x gives x."""
    kind, size = TYPES[r.dtype].kind, TYPES[r.dtype].size
    if r.op in ("sum", "any", "xor", "welford"):
        value: float | int | bool = 0
    elif r.op in ("prod", "all"):
        value = 1
    else:
        lowest = r.op in ("max", "argmax")
        if kind == "float":
            value = float("-inf") if lowest else float("inf")
        elif kind == "bool":
            value = not lowest
        elif kind == "uint":
            value = 0 if lowest else (1 << (8 * size)) - 1
        else:
            value = -(1 << (8 * size - 1)) if lowest else (1 << (8 * size - 1)) - 1
    return Const({"float": float, "bool": bool}.get(kind, int)(value), r.dtype)


def step(needs: Needs, r: Reduction, a: str, b: str, vectors: Vectors | None, target: Target) -> str:
    """Text of ``a`` combined with ``b``."""
    names = _BOOL_STEP | _STEP if r.dtype != "bool" else _STEP | _BOOL_STEP
    return primitive_text(needs, names[r.op], r.dtype, [a, b], vectors, target)


def position_type(vectors: Vectors | None) -> str:
    """Element type of argmax's running position."""
    return "int64" if vectors is None or vectors.mask == 8 else "int32"


def declare(body: Body, r: Reduction) -> Accumulator:
    """Declares the running values in the open block. They run along the lanes wherever the loop has lanes."""
    vectors = body.lanes.vectors if body.lanes else None
    base = body.fresh("acc")
    start = const_text(identity(r))
    variables = [(base, r.dtype, start)]
    if r.op.startswith("arg"):
        variables.append((f"{base}_at", position_type(vectors), "0x7fffffff"))
    elif r.op == "welford":
        variables += [(f"{base}_m2", r.dtype, "0"), (f"{base}_n", r.dtype, "0")]
    for name, dtype, text in variables:
        c = convert.value_type(body.needs, dtype, vectors)
        if vectors is not None:
            scalar = f"({text} ? -1 : 0)" if dtype == "bool" else text
            text = f"{splat(body.needs, convert.value_short(dtype, vectors), vectors.lanes)}({scalar})"
        body.block.add(f"{c} {name} = {text};")
    return Accumulator(r, tuple(n for n, _, _ in variables), vectors)


def update(body: Body, acc: Accumulator, position: str) -> None:
    """One step in the open block. ``position`` is text of the position in the inner space (argmax)."""
    r, needs = acc.reduction, body.needs
    vectors = acc.vectors
    part = body.lanes.part[1] if vectors and body.lanes and body.lanes.part else ""
    if (added := _with_product(body, acc)) is not None:
        body.block.add(f"{acc.variables[0]} = {body.masked(part, added, acc.variables[0], r.dtype) if part else added};")
        return
    value = body.value(r.value)
    text = body.wide(r.value) if vectors else value.text
    text = convert.cast(needs, text, r.value.dtype, r.dtype, vectors, body.target)
    if r.op.startswith("arg"):
        helper = _arg_step(needs, r, vectors)
        guard = f", {part}" if vectors and part else f", {_true(vectors)}"
        body.block.add(f"{helper}({acc.variables[0]}, {acc.variables[1]}, {text}, {position}{guard});")
    elif r.op == "welford":
        helper = _welford_step(needs, r, vectors)
        guard = part or _true(vectors)
        body.block.add(f"{helper}({', '.join(acc.variables)}, {text}, {guard});")
    else:
        if part:
            assert vectors is not None
            start = const_text(identity(r))
            if r.dtype == "bool":
                start = f"({start} ? -1 : 0)"
            text = body.masked(part, text, f"{splat(needs, convert.value_short(r.dtype, vectors), vectors.lanes)}({start})", r.dtype)
        body.block.add(f"{acc.variables[0]} = {step(needs, r, *_ordered(r, acc.variables[0], text), vectors, body.target)};")


def _with_product(body: Body, acc: Accumulator) -> str | None:
    """A sum of products with one more of them added, rounded once; None where it is something else, or there is no instruction for it."""
    r, vectors = acc.reduction, acc.vectors
    e = r.value
    if r.op != "sum" or not isinstance(e, Op) or e.name != "mul" or e.dtype != r.dtype or TYPES[r.dtype].kind != "float" or vectors is None:
        return None
    if not body.target.fma or not any(body.value(x).vector for x in e.args):
        return None
    a, b = (body.wide(x) for x in e.args)
    return f"{function(body.needs, 'fma', TYPES[r.dtype].short, vectors.lanes, body.target)}({a}, {b}, {acc.variables[0]})"


def _ordered(r: Reduction, running: str, new: str) -> tuple[str, str]:
    """max and min test their first operand for NaN: the new value's test is no part of the chain from step to step."""
    return (new, running) if r.op in ("max", "min") else (running, new)


def _true(vectors: Vectors | None) -> str:
    return "true" if vectors is None else f"({vector(vectors.mask_short(), vectors.lanes)}{{}} == 0)"


def merge(body: Body, into: Accumulator, other: Accumulator) -> None:
    """Combines running values of two copies (both vectors, or both scalars)."""
    r, needs = into.reduction, body.needs
    if r.op.startswith("arg"):
        helper = _arg_step(needs, r, into.vectors)
        body.block.add(f"{helper}({', '.join(into.variables)}, {', '.join(other.variables)}, {_true(into.vectors)});")
    elif r.op == "welford":
        body.block.add(f"{_welford_merge(needs, r, into.vectors)}({', '.join(into.variables)}, {', '.join(other.variables)});")
    else:
        a, b = into.variables[0], other.variables[0]
        body.block.add(f"{a} = {step(needs, r, a, b, into.vectors, body.target)};")


def across_lanes(body: Body, acc: Accumulator) -> Accumulator:
    """One scalar from all lanes."""
    vectors, r, needs = acc.vectors, acc.reduction, body.needs
    assert vectors is not None
    if r.op.startswith("arg") or r.op == "welford":
        scalars = tuple(f"{v}_s" for v in acc.variables)
        types = (r.dtype, position_type(vectors)) if r.op != "welford" else (r.dtype,) * 3
        if r.op != "welford":
            body.block.add(f"{_arg_lanes(needs, r, vectors)}({', '.join(acc.variables)});")
        for scalar, v, dtype in zip(scalars, acc.variables, types, strict=True):
            body.block.add(f"{C_OF_SHORT[TYPES[dtype].short][0]} {scalar} = {v}[0];")
        if r.op == "welford":
            lane = ", ".join(f"{v}[l]" for v in acc.variables)
            call = f"{_welford_merge(needs, r, None)}({', '.join(scalars)}, {lane})"
            body.block.add(f"for (int l = 1; l < {vectors.lanes}; ++l) {call};")
        return Accumulator(r, scalars, None)
    short = convert.value_short(r.dtype, vectors)
    name = f"{r.op}_lanes_{vector(short, vectors.lanes)}{'_bool' if r.dtype == 'bool' else ''}"
    lines, width = [], vectors.lanes // 2
    while width:
        order = ", ".join(str((k + width) % vectors.lanes) for k in range(vectors.lanes))
        shuffled = f"__builtin_shufflevector(x, x, {order})"
        lines.append(f"  {{ const auto y = {shuffled}; x = {step(needs, r, 'x', 'y', vectors, body.target)}; }}")
        width //= 2
    c = "bool" if r.dtype == "bool" else C_OF_SHORT[short][0]
    body_text = "\n".join(lines)
    needs.add(name, f"static inline {c} {name}({vector(short, vectors.lanes)} x) {{\n{body_text}\n  return x[0]; }}")
    scalar = body.fresh("acc")
    body.block.add(f"const {c} {scalar} = {name}({acc.variables[0]});")
    return Accumulator(r, (scalar,), None)


def _arg_lanes(needs: Needs, r: Reduction, vectors: Vectors) -> str:
    """Brings what wins among all lanes into the first: each half against the other."""
    step_of = _arg_step(needs, r, vectors, position_type(vectors))
    values, places = _types(needs, r.dtype, vectors), _types(needs, position_type(vectors), vectors)
    mask, lines, width = needs.vector(SIGNED_OF_SIZE[vectors.mask], vectors.lanes), [], vectors.lanes // 2
    while width:
        order = ", ".join(str((k + width) % vectors.lanes) for k in range(vectors.lanes))
        y, z = (f"__builtin_shufflevector({v}, {v}, {order})" for v in ("x", "at"))
        lines.append(f"  {{ const {values} y = {y}; const {places} z = {z}; {step_of}(x, at, y, z, ({mask}{{}} == 0)); }}")
        width //= 2
    text = "\n".join([f"static inline void {step_of}_lanes({values}& x, {places}& at) {{", *lines, "}"])
    return needs.add(f"{step_of}_lanes", text)


def publish(body: Body, acc: Accumulator) -> None:
    """Makes the results visible under the reduction's names."""
    is_vector = acc.vectors is not None
    for k, name in enumerate(acc.reduction.names):
        text = acc.variables[k]
        if k == 1 and acc.reduction.op.startswith("arg"):
            text = convert.cast(body.needs, text, position_type(acc.vectors), "int64", acc.vectors, body.target)
            text = body.bind(body.block, text, "int64", is_vector).text
        body.results[name, body.copy] = Value(text, is_vector), body.block


def _types(needs: Needs, dtype: str, vectors: Vectors | None) -> str:
    return convert.value_type(needs, dtype, vectors)


def _arg_step(needs: Needs, r: Reduction, vectors: Vectors | None, position: str = "") -> str:
    """Takes (x, at) where it beats the running one; NaN beats all, and among equals the lower position."""
    v, i = _types(needs, r.dtype, vectors), _types(needs, position or position_type(vectors), vectors)
    m = "bool" if vectors is None else needs.vector(SIGNED_OF_SIZE[vectors.mask], vectors.lanes)
    name = f"{r.op}_step_{v.replace(' ', '_')}_{i}"
    sign = ">" if r.op == "argmax" else "<"
    return needs.add(
        name,
        f"static inline void {name}({v}& best, {i}& at, {v} x, {i} x_at, {m} on) {{\n"
        f"  const {m} nan = x != x, had = best != best;\n"
        f"  const {m} take = ((x {sign} best) | (nan & ~had) | (((x == best) | (nan & had)) & (x_at < at))) & on"
        f"{' & ~((had) & ~nan)' if vectors is not None else ' & !(had & !nan)'};\n"
        f"  best = take ? x : best; at = take ? x_at : at; }}",
    )


def _welford_step(needs: Needs, r: Reduction, vectors: Vectors | None) -> str:
    v = _types(needs, r.dtype, vectors)
    m = "bool" if vectors is None else needs.vector(SIGNED_OF_SIZE[vectors.mask], vectors.lanes)
    size = TYPES[r.dtype].size
    on = "on" if vectors is None else convert.mask_for(needs, "on", size, vectors)
    name = f"welford_step_{v}"
    return needs.add(
        name,
        f"static inline void {name}({v}& mean, {v}& m2, {v}& n, {v} x, {m} on) {{\n"
        f"  const {v} count = n + 1, d = x - mean, next = mean + d / count, sum = m2 + d * (x - next);\n"
        f"  n = {on} ? count : n; mean = {on} ? next : mean; m2 = {on} ? sum : m2; }}",
    )


def _welford_merge(needs: Needs, r: Reduction, vectors: Vectors | None) -> str:
    v = _types(needs, r.dtype, vectors)
    name = f"welford_merge_{v}"
    return needs.add(
        name,
        f"static inline void {name}({v}& mean, {v}& m2, {v}& n, {v} mean_b, {v} m2_b, {v} n_b) {{\n"
        f"  const {v} total = n + n_b, share = total == 0 ? n : n_b / total, d = mean_b - mean;\n"
        f"  const {v} lifted = m2 + m2_b + d * d * n * share;\n"
        f"  mean = n_b == 0 ? mean : mean + d * share; m2 = n_b == 0 ? m2 : lifted; n = total; }}",
    )
