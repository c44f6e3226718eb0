"""A contraction as C++: a description of its shape for ``core.h``, and what follows the sums as an ordinary nest over one block."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opmill_graph_ir.loops.index import ZERO, Index, floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Expr, Load, LoopKernel, Nest
from opmill_graph_ir.schedule.rewrite import Rewriter
from opmill_graph_ir.schedule.shape import map_phase

from ..emit.functions import function, splat
from ..emit.needs import Needs
from ..target import Target
from .blocks import blocks_of, stencil_blocks_of
from .match import Contraction
from .window import places

GROUP = 12
"""Rows that are handed to threads together, as in ``core.h``."""
_IMAGE, _ROW, _ROWS, _POINT, _POINTS, _PLANE, _PITCH = symbols = tuple(
    f"contract_{n}" for n in ("image", "row", "rows", "point", "points", "plane", "pitch")
)
_AT = "contract_at"
_SUMS = "contract_sums"


@dataclass(frozen=True)
class Text:
    """``text`` defines function ``name`` over ``count`` units, each of work ``cost`` (about in cycles of a vector lane)."""

    name: str
    text: str
    count: int | str
    cost: float


NestText = Callable[[LoopKernel, Nest, str], tuple[str, str, str]]
"""Writes an ordinary nest: (name, text, count)."""


def write_contraction(kernel: LoopKernel, nest: Nest, found: Contraction, name: str, needs: Needs, target: Target, write: NestText) -> Text:
    """The function of a nest that is a contraction; ``write`` writes the part after the sums."""
    lanes = target.bits // 32
    apart = found.b_row_step > 0
    blocks = stencil_blocks_of(found, lanes) if apart else blocks_of(found, lanes)
    _core(needs, lanes, target, apart)
    inner_kernel, inner = _finish(kernel, nest, found)
    finish, count = _shared(*write(inner_kernel, inner, "finish"), needs)
    positions = {b.name: k for k, b in enumerate(kernel.buffers)}
    image = places(found.points)[0]
    symbol = str(image.extent) if image is not None and image.extent.constant is None else None
    values = blocks.fields if symbol is None else blocks.fields | {"images": f"s[{kernel.symbols.index(symbol)}]"}
    fields = ", ".join(f".{key} = {value}" for key, value in values.items())
    bind = "".join(f"  const long s_{s} = s[{k}];\n" for k, s in enumerate(symbols) if f"s_{s}" in count)
    text = (
        f"static void {name}_at(void* const* p, const long* s) {{\n{bind}  {finish}(p, s, 0, {count});\n}}\n"
        f"static long {name}(void* const* p, const long* s, long from, long to) {{\n"
        f"  {'static ' * (symbol is None)}const contraction d = {{{fields}}};\n"
        f"  const float* const a = (const float*)p[{positions[found.a]}] + {found.a_offset};\n"
        f"  const float* const x = (const float*)p[{positions[found.b]}] + {found.window.offset};\n"
        f"  {'stencil' if apart else 'contract'}(d, a, x, p, {len(kernel.buffers)}, {name}_at, from, to);\n  return 0;\n}}"
    )
    units = (found.rows if apart else -(-found.rows // GROUP)) * blocks.count
    work = found.rows * found.window.images * found.window.lines.points * found.window.columns.points * blocks.depth / 4
    return Text(name, text, units if symbol is None else f"{units} * s_{symbol}", work / units)


def _shared(name: str, text: str, count: str, needs: Needs) -> tuple[str, str]:
    """What follows the sums, once for all contractions of a build where it is the same."""
    own = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    needs.add(own, text.replace(f" {name}(", f" {own}("))
    return own, count


def _core(needs: Needs, lanes: int, target: Target, apart: bool) -> None:
    vector = needs.vector("f32", lanes)
    fma, put = function(needs, "fma", "f32", lanes, target), splat(needs, "f32", lanes)
    names = f"#define CONTRACT_LANES {lanes}\n#define contract_fma {fma}\n#define contract_splat {put}\ntypedef {vector} cvec;\ntypedef {vector}u cvecu;\n"
    needs.add("contraction", names + _text("core.h"))
    if apart:
        needs.add("stencil", _text("stencil.h"))


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


class _InBlock(Rewriter):
    """Moves what follows the sums into a block. Steps of whole planes go by name, so that shapes share one text."""

    def __init__(self, symbols: Mapping[str, Index], values: Mapping[str, Expr], plane: int) -> None:
        super().__init__(symbols, values)
        self.plane = plane

    def index(self, index: Index) -> Index:
        moved = super().index(index)
        named = {(tuple(sorted((*m, _PLANE), key=str)) if c == self.plane and m else m): (1 if c == self.plane and m else c) for m, c in moved.terms}
        return sum((Index(((m, c),)) for m, c in named.items()), ZERO)


def _finish(kernel: LoopKernel, nest: Nest, found: Contraction) -> tuple[LoopKernel, Nest]:
    """The phases after the sums, over one block: rows and points counted from the block's first, sums read from scratch."""
    row, at = Axis(found.row.name, index(_ROWS)), Axis(_AT, index(_POINTS))
    point = index(_POINT) + _AT
    moved: dict[str, Index] = {found.row.name: index(_ROW) + found.row.name}
    image, line, column = places(found.points)
    if image is not None:
        moved[image.name] = index(_IMAGE)
    if line is not None:
        moved[line.name] = floordiv(point, column.extent)
        point = mod(point, column.extent)
    moved[column.name] = point
    sums = Load(_SUMS, index(row.name) * _PITCH + _AT, "float32")
    rewrite = _InBlock(moved, {found.result: sums}, found.window.lines.points * found.window.columns.points)
    phases = tuple(map_phase(p, rewrite, ()) for p in found.rest)
    scratch = Buffer(_SUMS, "float32", "in", index(0))
    return replace(kernel, buffers=(*kernel.buffers, scratch), symbols=symbols), Nest((row, at), phases, nest.origin)
