"""Scans along the ``r`` dimension: across a tile by Triton's associative scan, and from tile to tile by what is carried on."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Scan

from .body import Body
from .reductions import ROW, identity
from .space import Dims, Text
from .types import TYPES, cast, constant, literal

COMBINE = {"sum": "plus", "prod": "product", "logaddexp": "logaddexp", "affine": "affine", "argmax": "last_max", "argmin": "last_min"}
"""The helper that puts a result and the next value together."""
FLOATS_ONLY = frozenset(("logaddexp", "affine"))
_START = {"logaddexp": "argmax", "affine": "sum"}
_EDGE: Dims = frozenset({"x"})


@dataclass(frozen=True)
class Carried:
    """What a scan hands on from one tile to the next: one column, and another of positions (or none, where the tile is the whole row)."""

    scan: Scan
    variables: tuple[str, ...]


def declare(body: Body, scan: Scan, wide: bool) -> Carried:
    """The column before the first tile."""
    kept = _kept(scan)
    start = identity(_START.get(scan.op, scan.op), kept)
    names = [body.fresh("run")]
    body.outer.add(f"{names[0]} = {constant(start.value, kept, body.block(_EDGE))}")
    if len(scan.names) > 1:
        names.append(f"{names[0]}_at")
        body.outer.add(f"{names[1]} = {constant(0, 'int64' if wide else 'int32', body.block(_EDGE))}")
    return Carried(scan, tuple(names))


def step(body: Body, carried: Carried, wide: bool, last: str) -> None:
    """One tile; ``last`` is text of the last point of the row. The results become the values of the scan's names."""
    scan, kept, shape = carried.scan, _kept(carried.scan), body.block(ROW)
    at = f"tl.broadcast_to(rindex, {shape})"
    tiles = [_tile(body, scan, k, last if scan.reverse else "0") for k in range(len(scan.values))]
    if len(scan.names) > 1:
        tiles.append(at)
    helper = COMBINE[scan.op]
    for name in (helper, *(("maximum", "minimum") if scan.op == "logaddexp" else ())):
        body.needs.setdefault(name)
    names = [body.fresh("scan") for _ in tiles]
    operands = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
    body.inner.add(f"{', '.join(names)} = tl.associative_scan({operands}, 1, {helper}{', reverse=True' if scan.reverse else ''})")
    if carried.variables:
        _continue(body, carried, names, wide)
    elif scan.op == "affine":
        names = names[1:]
    elif scan.op == "sum" and TYPES[kept].kind == "float":
        names = [f"({names[0]} + 0.0)"]  # a sum starts at zero: of negative zeros alone it is that
    types = [(kept, scan.dtype), ("int64" if wide else "int32", "int64")][: len(scan.names)]
    for name, text, (source, target) in zip(scan.names, names, types, strict=True):
        body.names[name] = body.put(cast(text, source, target), ROW, False)


def _continue(body: Body, carried: Carried, names: list[str], wide: bool) -> None:
    """Puts what is carried before the tile, and takes the tile's last column for the next one."""
    scan, lines, held = carried.scan, body.inner, carried.variables
    before = [f"tl.broadcast_to({v}, {body.block(ROW)})" for v in held]
    if scan.op == "affine":
        factor, term = names
        lines.add(f"{term} = tl.where(rfirst, {term}, {factor} * {before[0]} + {term})")
        names[:] = [term]
    else:
        lines.add(f"{', '.join(names)} = {COMBINE[scan.op]}({', '.join([*before, *names])})")
    edge = "rindex == rstart" if scan.reverse else "rindex == rstart + (RBLOCK - 1)"
    kinds = (_kept(scan), "int64" if wide else "int32")
    for variable, name, kind in zip(held, names, kinds, strict=False):
        lines.add(
            f"{variable} = tl.sum(tl.where({edge}, {name}, {literal(0, kind) or constant(0, kind, body.block(frozenset()))}), 1)[:, "
            f"None].to({TYPES[kind].tl})"
        )


def _tile(body: Body, scan: Scan, k: int, first: str) -> str:
    """Value number ``k`` over the whole tile: nothing beyond the row, and no factor at the first point."""
    kept = _kept(scan)
    value = scan.values[k]
    found = body.value(value)
    text = body.spread(Text(cast(found.tight, value.dtype, kept), found.dims, True), ROW)
    none = identity(_START.get(scan.op, scan.op), kept).value
    where = [f"{m}" for m in body.masks(frozenset({"r"}))]
    if scan.op == "affine" and k == 0:
        where, none = [" & ".join([f"(rindex != {first})", *where])], 0.0  # what is beyond the row may be no number
    if where:
        text = f"tl.where({where[0]}, {text}, {literal(none, kept) or constant(none, kept, body.block(frozenset()))})"
    return body.put(text, ROW, False).text


def _kept(scan: Scan) -> str:
    """Small integers are kept as int32."""
    t = TYPES[scan.dtype]
    return "int32" if t.kind in ("int", "uint") and t.size < 4 else scan.dtype


__all__ = ["COMBINE", "FLOATS_ONLY", "Carried", "declare", "step"]
