"""A contraction as C++: a description of its shape for ``core.h``, and what follows the sums as an ordinary nest over one block."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opmill_graph_ir.loops.index import ONE, ZERO, Index, floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Expr, Load, LoopKernel, Nest
from opmill_graph_ir.schedule.coalesce import map_phase
from opmill_graph_ir.schedule.rewrite import Rewriter

from .. import threads
from ..emit.functions import function, splat
from ..emit.index_text import UNKNOWN, index_text
from ..emit.memory import square
from ..emit.needs import Needs
from ..target import Target
from .match import Contraction
from .window import quotient

_IMAGE, _ROW, _ROWS, _POINT, _POINTS, _PLANE, _PITCH = symbols = tuple(
    f"contract_{n}" for n in ("image", "row", "rows", "point", "points", "plane", "pitch")
)
_AT = "contract_at"
_SUMS = "contract_sums"


@dataclass(frozen=True)
class Text:
    """``text`` defines what ``call``, a statement, runs."""

    text: str
    call: str


NestText = Callable[[LoopKernel, Nest, str], tuple[str, str, str]]
"""Writes an ordinary nest: (name, text, count)."""


def write_contraction(kernel: LoopKernel, nest: Nest, found: Contraction, name: str, needs: Needs, target: Target, write: NestText) -> Text:
    """The function of a nest that is a contraction; ``write`` writes the part after the sums."""
    kind = found.kind
    _core(needs, target.bits // 32, target, kind)
    needs.add("threads", threads.PRELUDE)
    finish, count = _shared(*write(*_finish(kernel, nest, found), "finish"), needs)
    names = (*symbols, *kernel.symbols)
    bind = "".join(f"  const long s_{s} = s[{k}];\n" for k, s in enumerate(names) if f"s_{s}" in count)
    sizes = {s: f"s[{k}]" for k, s in enumerate(kernel.symbols)}
    bounds = dict.fromkeys(kernel.symbols, UNKNOWN)
    fields = ", ".join(f".{key} = {index_text(index(value), sizes, bounds, needs)}" for key, value in _fields(found).items())
    positions = {b.name: k for k, b in enumerate(kernel.buffers)}
    text = (
        f"static void {name}_at(void* const* p, const long* s) {{\n{bind}  {finish}(p, s, 0, {count});\n}}\n"
        f"static contraction {name}_shape(const long* s) {{\n  contraction d = {{{fields}}};\n  {kind}_plan(d);\n  return d;\n}}\n"
        f"static long {name}(void* const* p, const long* s, long from, long to) {{\n"
        f"  const contraction d = {name}_shape(s);\n"
        f"  const float* const a = (const float*)p[{positions[found.a]}] + {index_text(found.a_offset, sizes, bounds, needs)};\n"
        f"  const float* const x = (const float*)p[{positions[found.b]}] + {index_text(found.window.offset, sizes, bounds, needs)};\n"
        f"  {kind}(d, a, x, p, {len(kernel.buffers)}, s, {len(kernel.symbols)}, {name}_at, from, to);\n  return 0;\n}}"
    )
    return Text(text, f"{{ const contraction d = {name}_shape(s); run_nest({name}, p, s, d.units, d.threads); }}")


def _fields(found: Contraction) -> dict[str, Index | int]:
    """What ``struct contraction`` is given."""
    w, lines, columns = found.window, found.window.lines, found.window.columns
    return {
        "rows": found.rows,
        "row_step": found.row_step,
        "channels": w.channels,
        "tap_lines": lines.taps,
        "tap_columns": columns.taps,
        "height": lines.size,
        "width": columns.size,
        "channel_step": w.channel_step if found.kind == "contract" else found.b_row_step,
        "line_step": w.line_step,
        "stride_h": lines.stride,
        "stride_w": columns.stride,
        "dilation_h": lines.dilation,
        "dilation_w": columns.dilation,
        "pad_h": lines.pad,
        "pad_w": columns.pad,
        "images": w.images,
        "image_step": w.image_step,
        "out_lines": lines.points,
        "out_width": columns.points,
        "a_image_step": found.a_image_step,
        "a_line_step": found.a_line_step,
    }


def _shared(name: str, text: str, count: str, needs: Needs) -> tuple[str, str]:
    """What follows the sums, once for all contractions of a build where it is the same."""
    own = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    needs.add(own, text.replace(f" {name}(", f" {own}("))
    return own, count


_HEADERS = {"stencil": ("stencil.h",), "weight_gradient": ("depthwise_weight_gradient.h", "weight_gradient.h")}
"""What kinds of contractions need besides the core, which is all that one of kind ``contract`` does."""


def _core(needs: Needs, lanes: int, target: Target, kind: str) -> None:
    vector = needs.vector("f32", lanes)
    fma, put = function(needs, "fma", "f32", lanes, target), splat(needs, "f32", lanes)
    names = (
        f"#define CONTRACT_LANES {lanes}\n#define contract_fma {fma}\n#define contract_splat {put}\n"
        f"typedef {vector} cvec;\ntypedef {vector}u cvecu;\n"
    )
    needs.add("contraction", names + _text("core.h"))
    if kind != "contract":
        needs.add("depthwise", f"#define contract_square {square(needs, 'f32', lanes)}\n" + _text("depthwise.h"))
        needs.add(kind, "".join(map(_text, _HEADERS[kind])))


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


class _InBlock(Rewriter):
    """Moves what follows the sums into a block. Lines that follow each other are one run of points, and steps of whole planes go by name,
    so that shapes share one text."""

    def __init__(self, found: Contraction, values: Mapping[str, Expr]) -> None:
        places = found.places
        point = index(_POINT) + _AT
        moved = {found.row.name: index(_ROW) + found.row.name}
        if places.image is not None:
            moved[places.image.name] = index(_IMAGE)
        if places.line is not None:
            moved[places.line.name] = floordiv(point, places.column.extent)
        moved[places.column.name] = point if places.line is None else mod(point, places.column.extent)
        super().__init__(moved, values)
        self.places, self.point, self.plane = places, point, found.plane
        self.whole = [name for name in moved if self.plane != ONE and name in (found.row.name, places.image.name if places.image else None)]

    def index(self, index: Index) -> Index:
        rest, out, line, column = index, ZERO, self.places.line, self.places.column
        for name in self.whole:
            step = rest.stride_of(name)
            if step is not None and (times := quotient(step, self.plane)) is not None:
                out, rest = out + self.symbols[name] * Index((((_PLANE,), times),)), rest.substitute({name: ZERO})
        if (
            line is not None
            and (across := rest.stride_of(column.name)) is not None
            and across.terms
            and rest.stride_of(line.name) == across * column.extent
        ):
            out, rest = out + self.point * across, rest.substitute({line.name: ZERO, column.name: ZERO})
        return super().index(rest) + out


def _finish(kernel: LoopKernel, nest: Nest, found: Contraction) -> tuple[LoopKernel, Nest]:
    """The phases after the sums, over one block: rows and points counted from the block's first, sums read from scratch."""
    row, at = Axis(found.row.name, index(_ROWS)), Axis(_AT, index(_POINTS))
    sums = Load(_SUMS, index(row.name) * _PITCH + _AT, "float32")
    rewrite = _InBlock(found, {found.result: sums})
    phases = tuple(map_phase(p, rewrite, ()) for p in found.rest)
    scratch = Buffer(_SUMS, "float32", "in", index(0))
    return replace(kernel, buffers=(*kernel.buffers, scratch), symbols=(*symbols, *kernel.symbols)), Nest((row, at), phases, nest.origin)
