"""Scans: what runs along an axis in one copy of the loop, and its step from point to point."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opmill_graph_ir.loops.ir import Reduction, Scan

from . import convert
from .body import Body, Value, primitive_text
from .constants import const_text
from .functions import splat
from .reductions import identity, position_type
from .types import Vectors

OPS = frozenset(("sum", "prod", "logaddexp", "affine", "argmax", "argmin"))
FLOATS_ONLY = frozenset(("logaddexp", "affine"))
_STEP = {"sum": "add", "prod": "mul"}
_START = {"logaddexp": "argmax", "affine": "sum"}
"""Reductions that start as these scans do."""


@dataclass(frozen=True)
class Running:
    """The variables of a scan: the running value, and its position where the scan gives one."""

    scan: Scan
    variables: tuple[str, ...]
    vectors: Vectors | None


def declare(body: Body, scan: Scan) -> Running:
    """Declares running values in the open block, before the loop."""
    vectors = body.lanes.vectors if body.lanes else None
    base = body.fresh("run")
    start = const_text(identity(Reduction(scan.names, _START.get(scan.op, scan.op), scan.values[0], scan.dtype)))
    variables = [(base, scan.dtype, start)]
    if len(scan.names) > 1:
        variables.append((f"{base}_at", position_type(vectors), "0"))
    for name, dtype, text in variables:
        if vectors is not None:
            text = f"{splat(body.needs, convert.value_short(dtype, vectors), vectors.lanes)}({text})"
        body.block.add(f"{convert.value_type(body.needs, dtype, vectors)} {name} = {text};")
    return Running(scan, tuple(n for n, _, _ in variables), vectors)


def step(body: Body, running: Running, at: str, first: str) -> None:
    """Takes the value at point ``at`` (C++ text; ``first`` of the first one) in the open block, and makes the results visible there."""
    scan, vectors = running.scan, running.vectors
    _step(body, running, [body.wide(v) if vectors else body.value(v).text for v in scan.values], at, first)
    body.results[scan.names[0], body.copy] = Value(running.variables[0], vectors is not None), body.block
    if len(scan.names) > 1:
        text = convert.cast(body.needs, running.variables[1], position_type(vectors), "int64", vectors, body.target)
        body.results[scan.names[1], body.copy] = body.bind(body.block, text, "int64", vectors is not None), body.block


def _step(body: Body, running: Running, texts: list[str], at: str, first: str) -> None:
    scan, vectors, state = running.scan, running.vectors, running.variables[0]
    if len(scan.names) > 1:
        _take(body, running, texts[0], at)
    elif scan.op == "affine":
        moved = primitive_text(body.needs, "add", scan.dtype, [f"({texts[0]} * {state})", texts[1]], vectors, body.target)
        body.block.add(f"{state} = {at} == {first} ? {texts[1]} : {moved};")
    elif scan.op == "logaddexp":
        body.block.add(f"{state} = {_logaddexp(body, scan.dtype, vectors)}({state}, {texts[0]});")
    else:
        body.block.add(f"{state} = {primitive_text(body.needs, _STEP[scan.op], scan.dtype, [state, texts[0]], vectors, body.target)};")


def step_lanes(body: Body, running: Running, at: str, first: str) -> None:
    """Takes the values of all lanes, the first at point ``at``; lane by lane, or sums and products in steps of twice the width."""
    assert body.lanes is not None
    scan, vectors, needs, part = running.scan, body.lanes.vectors, body.needs, body.lanes.part
    texts = [body.wide(v) for v in scan.values]
    if scan.op in _STEP:
        if part and scan.reverse:
            start = const_text(identity(Reduction(scan.names, scan.op, scan.values[0], scan.dtype)))
            texts[0] = body.masked(
                part[1], texts[0], f"{splat(needs, convert.value_short(scan.dtype, vectors), vectors.lanes)}({start})", scan.dtype
            )
        call = f"{_prefix(body, scan, vectors)}({running.variables[0]}, {texts[0]})"
        body.results[scan.names[0], body.copy] = body.bind(body.block, call, scan.dtype, True), body.block
        return
    named = [body.bind(body.block, t, scan.dtype, True).text for t in texts]
    types = (scan.dtype, position_type(vectors))[: len(scan.names)]
    outs = [body.fresh() for _ in scan.names]
    for out, dtype in zip(outs, types, strict=True):
        body.block.add(f"{convert.value_type(needs, dtype, vectors)} {out};")
    count = part[0] if part else str(vectors.lanes)
    inner = body.block.nested(f"for (int l = {count} - 1; l >= 0; --l)" if scan.reverse else f"for (int l = 0; l < {count}; ++l)")
    outer, lanes, body.block, body.lanes = body.block, body.lanes, inner, None
    _step(body, replace(running, vectors=None), [f"{t}[l]" for t in named], f"({at} + l)", first)
    body.block, body.lanes = outer, lanes
    for out, variable in zip(outs, running.variables, strict=True):
        inner.add(f"{out}[l] = {variable};")
    inner.close()
    for k, (name, out, dtype) in enumerate(zip(scan.names, outs, types, strict=True)):
        text = convert.cast(needs, out, dtype, "int64" if k else dtype, vectors, body.target)
        body.results[name, body.copy] = body.bind(body.block, text, "int64" if k else dtype, True), body.block


def _prefix(body: Body, scan: Scan, vectors: Vectors) -> str:
    """A function that takes the value carried so far and a vector, gives running results and carries the last on."""
    short, lanes = convert.value_short(scan.dtype, vectors), vectors.lanes
    v = body.needs.vector(short, lanes)
    c, start = (
        convert.value_type(body.needs, scan.dtype, None),
        const_text(identity(Reduction(scan.names, scan.op, scan.values[0], scan.dtype))),
    )
    lines, width = [f"  const {v} none = {splat(body.needs, short, lanes)}({start});"], 1
    while width < lanes:
        from_end = [k + width if k + width < lanes else lanes for k in range(lanes)]
        order = from_end if scan.reverse else [k - width if k >= width else lanes for k in range(lanes)]
        combined = primitive_text(
            body.needs,
            _STEP[scan.op],
            scan.dtype,
            [f"__builtin_shufflevector(x, none, {', '.join(map(str, order))})", "x"],
            vectors,
            body.target,
        )
        lines.append(f"  x = {combined};")
        width *= 2
    whole = primitive_text(
        body.needs, _STEP[scan.op], scan.dtype, [f"{splat(body.needs, short, lanes)}(carried)", "x"], vectors, body.target
    )
    lines += [f"  x = {whole};", f"  carried = x[{0 if scan.reverse else lanes - 1}];", "  return x; }"]
    name = f"prefix_{scan.op}_{v}{'_back' if scan.reverse else ''}"
    return body.needs.add(name, "\n".join([f"static inline {v} {name}({c}& carried, {v} x) {{", *lines]))


def _take(body: Body, running: Running, x: str, at: str) -> None:
    """The value and its position, where it is no worse than the running one or NaN."""
    scan, vectors = running.scan, running.vectors
    best, place = running.variables
    take = body.fresh("take")
    compare = ">=" if scan.op == "argmax" else "<="
    mask = "bool" if vectors is None else body.needs.vector(vectors.mask_short(), vectors.lanes)
    position = at if vectors is None else f"{splat(body.needs, convert.value_short(position_type(vectors), vectors), vectors.lanes)}({at})"
    body.block.add(f"const {mask} {take} = ({x} {compare} {best}) | ({x} != {x});")
    body.block.add(f"{best} = {take} ? {x} : {best}; {place} = {take} ? {position} : {place};")


def _logaddexp(body: Body, dtype: str, vectors: Vectors | None) -> str:
    """log(exp(a) + exp(b)) about the larger one; equal infinities are their own."""
    v = convert.value_type(body.needs, dtype, vectors)

    def text(name: str, *args: str) -> str:
        return primitive_text(body.needs, name, dtype, list(args), vectors, body.target)

    lines = [
        f"  const {v} top = {text('max', 'a', 'b')}, low = {text('min', 'a', 'b')}, d = low - top;",
        f"  const {v} sum = top + {text('log1p', text('exp', 'd'))};",
        "  return (d != d) & (top == top) ? top : sum; }",
    ]
    name = f"logaddexp_{v}"
    return body.needs.add(name, "\n".join([f"static inline {v} {name}({v} a, {v} b) {{", *lines]))


__all__ = ["FLOATS_ONLY", "OPS", "Running", "declare", "step", "step_lanes"]
