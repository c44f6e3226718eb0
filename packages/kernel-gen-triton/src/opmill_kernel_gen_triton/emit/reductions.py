"""Reductions over the ``r`` dimension: start values, a step of a loop, and the end across the tile."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Const, Reduction

from .body import Body, apply
from .helpers import resolve
from .space import Dims, Text
from .types import TYPES, cast, constant, literal

ROW: Dims = frozenset({"x", "r"})
RESULT: Dims = frozenset({"x"})
_STEP = {"sum": "({0} + {1})", "prod": "({0} * {1})", "any": "({0} | {1})", "all": "({0} & {1})", "xor": "({0} ^ {1})"}
_END = {
    "sum": "tl.sum({0}, 1)",
    "prod": "tl.reduce({0}, 1, %product)",
    "any": "tl.max({0}, 1)",
    "all": "tl.min({0}, 1)",
    "xor": "tl.xor_sum({0}, 1)",
}
_BOOL = {"sum": "any", "max": "any", "prod": "all", "min": "all"}
OPS = frozenset("sum prod max min any all xor argmax argmin welford".split())


@dataclass(frozen=True)
class Accumulator:
    """Running values of one reduction; in a loop, tiles of the shape of ``ROW``. ``dtype`` is what they are kept in."""

    reduction: Reduction
    op: str
    dtype: str
    variables: tuple[str, ...]


def _kept(r: Reduction) -> tuple[str, str]:
    """Operation and type that a reduction is done with: bools and small integers as int32."""
    t = TYPES[r.dtype]
    op = _BOOL.get(r.op, r.op) if r.dtype == "bool" else r.op
    small = t.kind == "bool" or (t.kind in ("int", "uint") and t.size < 4)
    return op, "int32" if small else r.dtype


def identity(op: str, dtype: str) -> Const:
    """What the reduction starts from; combining it with x gives x."""
    t = TYPES[dtype]
    if op in ("sum", "any", "xor", "welford"):
        value: int | float = 0
    elif op in ("prod", "all"):
        value = 1
    elif t.kind == "float":
        value = float("-inf") if op in ("max", "argmax") else float("inf")
    else:
        bits = 8 * t.size - 1
        value = -(1 << bits) if op in ("max", "argmax") else (1 << bits) - 1
    return Const(float(value) if t.kind == "float" else value, dtype)


def operand(body: Body, r: Reduction) -> tuple[str, str, Text]:
    """Operation, type and value of one element, masked off where the row has ended."""
    op, dtype = _kept(r)
    v = body.value(r.value)
    text = cast(v.tight, r.value.dtype, dtype)
    text = text if dtype == r.value.dtype or r.value.dtype != "bool" else f"{v.tight}.to(tl.int32)"
    return op, dtype, Text(text, v.dims, True)


def whole(body: Body, r: Reduction, position: str, wide: bool, extent: str) -> None:
    """The reduction where the tile holds the whole row."""
    op, dtype, v = operand(body, r)
    masks = body.masks(frozenset({"r"}))
    start = identity(op, dtype)
    bare = literal(start.value, dtype) or constant(start.value, dtype, body.block(frozenset()))
    text = body.spread(v, frozenset({"r"}))
    if op == "welford":
        _two_pass(body, r, v, masks, extent)
        return
    if masks:
        text = f"tl.where({masks[0]}, {text}, {bare})"
    tile = body.put(text, v.dims | {"r"}, False)
    at = f"tl.broadcast_to({position}, {body.block(tile.dims)})" if tile.dims != {"r"} else position
    _publish(body, Accumulator(r, op, dtype, (tile.text, at)), tile.dims - {"r"}, wide)


def declare(body: Body, r: Reduction, wide: bool) -> Accumulator:
    """Running values before a loop."""
    op, dtype = _kept(r)
    start = identity(op, dtype)
    shape = body.block(ROW)
    names = [body.fresh("acc")]
    body.outer.add(f"{names[0]} = {constant(start.value, dtype, shape)}")
    if op.startswith("arg"):
        names.append(f"{names[0]}_at")
        body.outer.add(f"{names[1]} = {constant((1 << (63 if wide else 31)) - 1, 'int64' if wide else 'int32', shape)}")
    elif op == "welford":
        names.append(f"{names[0]}_m2")
        body.outer.add(f"{names[1]} = {constant(0, dtype, shape)}")
    return Accumulator(r, op, dtype, tuple(names))


def update(body: Body, acc: Accumulator, position: str) -> None:
    """One step of the loop."""
    op, dtype, v = operand(body, acc.reduction)
    masks = body.masks(frozenset({"r"}))
    lines, a = body.inner, acc.variables
    if op == "welford":
        lines.add(f"{a[0]}_v = {body.spread(v, ROW)}")
        steps = f"{constant(1, dtype, body.block(frozenset()))} + rstart // RBLOCK"  # each step adds one element a lane
        lines.add(f"{a[0]}_share = 1.0 / ({steps})")
        lines.add(f"{a[0]}_d = {a[0]}_v - {a[0]}")
        step = f"{a[0]} + {a[0]}_d * {a[0]}_share"
        lines.add(f"{a[0]} = {f'tl.where({masks[0]}, {step}, {a[0]})' if masks else step}")
        square = f"{a[1]} + {a[0]}_d * ({a[0]}_v - {a[0]})"
        lines.add(f"{a[1]} = {f'tl.where({masks[0]}, {square}, {a[1]})' if masks else square}")
        return
    text = body.spread(v, ROW)
    if masks:
        start = identity(op, dtype)
        text = f"tl.where({masks[0]}, {text}, {literal(start.value, dtype) or constant(start.value, dtype, body.block(frozenset()))})"
    if op.startswith("arg"):
        at = f"tl.broadcast_to({position}, {body.block(ROW)})"
        lines.add(f"{a[0]}, {a[1]} = {resolve(f'%{op}({a[0]}, {a[1]}, {text}, {at})', body.needs)}")
    else:
        lines.add(f"{a[0]} = {_combined(body, op, dtype, a[0], text)}")


def finish(body: Body, acc: Accumulator, wide: bool, extent: str) -> None:
    """The end across the tile, after the loop over ``extent`` elements."""
    if acc.op == "welford":
        name = f"{acc.variables[0]}_n"
        count = f"(({extent} - tl.arange(0, RBLOCK)[None, :] + (RBLOCK - 1)) // RBLOCK).to({TYPES[acc.dtype].tl})"
        body.outer.add(f"{name} = tl.broadcast_to({count}, {body.block(ROW)})")
        acc = Accumulator(acc.reduction, acc.op, acc.dtype, (*acc.variables, name))
    _publish(body, acc, RESULT, wide)


def _combined(body: Body, op: str, dtype: str, a: str, b: str) -> str:
    if op in ("max", "min"):
        if TYPES[dtype].kind == "float":
            return resolve(f"%{op}imum({a}, {b})", body.needs)
        return f"{'tl.maximum' if op == 'max' else 'tl.minimum'}({a}, {b})"
    return apply(_STEP[op], dtype, [a, b], "", body.needs)


def _publish(body: Body, acc: Accumulator, dims: Dims, wide: bool) -> None:
    r, op, a = acc.reduction, acc.op, acc.variables
    if op.startswith("arg"):
        body.needs.setdefault(op)
        value, at = body.fresh("red"), body.fresh("red")
        body.outer.add(f"{value}, {at} = tl.reduce(({a[0]}, {a[1]}), 1, {op})")
        _result(body, r.names[0], value, acc.dtype, r.dtype, dims)
        _result(body, r.names[1], at, "int64" if wide else "int32", "int64", dims)
        return
    if op == "welford":
        share, mean, m2 = (body.fresh("red") for _ in range(3))
        body.outer.add(f"{share} = {a[2]} / tl.sum({a[2]}, 1)[:, None]")
        body.outer.add(f"{mean} = tl.sum({a[0]} * {share}, 1)")
        body.outer.add(f"{m2} = tl.sum({a[1]} + {a[2]} * ({a[0]} - {mean}[:, None]) * ({a[0]} - {mean}[:, None]), 1)")
        for n, text in zip(r.names, (mean, m2), strict=True):
            _result(body, n, text, acc.dtype, r.dtype, dims)
        return
    if op in ("max", "min"):
        floats = TYPES[acc.dtype].kind == "float"
        template = f"tl.reduce({{0}}, 1, %{op}imum)" if floats else f"tl.{op}({{0}}, 1)"
    else:
        template = _END[op]
    text = template.format(a[0])
    if op == "sum" and TYPES[acc.dtype].kind == "float":
        text = f"{text} + 0.0"  # eager's sums start at zero: of negative zeros alone they are that
    for name in ("product", "maximum", "minimum"):
        if f"%{name}" in text:
            body.needs.setdefault(name)
            text = text.replace(f"%{name}", name)
    name = body.fresh("red")
    body.outer.add(f"{name} = {text}")
    _result(body, r.names[0], name, acc.dtype, r.dtype, dims)


def _result(body: Body, name: str, text: str, kept: str, dtype: str, dims: Dims) -> None:
    body.names[name] = body.put(cast(f"{text}[:, None]", kept, dtype), dims)


def _two_pass(body: Body, r: Reduction, v: Text, masks: list[str], extent: str) -> None:
    """Mean, then squares of distances: both from registers."""

    def summed(text: str, dims: Dims) -> str:
        zero = literal(0, r.dtype) or constant(0, r.dtype, body.block(frozenset()))
        return f"tl.sum({f'tl.where({masks[0]}, {text}, {zero})' if masks else text}, 1)[:, None]"

    dims = v.dims | {"r"}
    full = body.put(body.spread(v, frozenset({"r"})), dims, False)
    mean = body.put(f"{summed(full.text, dims)} / {extent}", dims - {"r"})
    distance = body.put(f"{full.text} - {mean.text}", dims, False)
    m2 = body.put(summed(f"{distance.text} * {distance.text}", dims), dims - {"r"})
    body.names[r.names[0]], body.names[r.names[1]] = mean, m2


__all__ = ["OPS", "Accumulator", "declare", "finish", "identity", "update", "whole"]
