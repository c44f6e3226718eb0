"""Rows in order along the ``r`` dimension, by one sort of words that say all of an element: its place in the order, its position, its sign.

Words are all different, so the sort need not be stable, and nothing but them is moved. From the top they hold the key, an integer that is
in order as the values are (complemented to go down, so that equals stay in their order), then the position, and of floats the sign, which
keys of zeros lack.
"""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Expr, Phase, Ref, Scan

from .. import walk
from .body import Body
from .helpers import resolve
from .reductions import ROW
from .space import Text
from .types import TYPES, cast

_FLOATS = {"float32": (0x7FFFFFFF, 0x7F800000), "bfloat16": (0x7FFF, 0x7F80), "float16": (0x7FFF, 0x7C00)}
"""All bits of a magnitude, and those of infinity: what is above is NaN."""


@dataclass(frozen=True)
class _Word:
    """An integer of ``type``: a key above ``low`` bits, which are the position and, where ``signs`` is 1, a sign. ``top``: the largest
    key."""

    type: str
    top: int
    low: int
    signs: int


def fits(dtype: str) -> bool:
    """Whether values of a type have room in a word beside a position."""
    t = TYPES.get(dtype)
    return t is not None and t.size <= 4 and t.kind != "float8"


def step(body: Body, scan: Scan, phase: Phase, wide: bool) -> None:
    """The whole row; values and positions in order become those of the scan's names."""
    block = next(g.block for g in body.groups if g.name == "r")
    small, signs = TYPES[scan.dtype].size < 4, int(scan.dtype in _FLOATS)
    word = _Word("tl.int32" if small else "tl.int64", 0x7FFF if small else 0x7FFFFFFF, block.bit_length() - 1 + signs, signs)
    words = body.put(_in_order(_packed(body, scan, word), _needed(scan, phase), block), ROW, False)
    position = f"(({words.text}{' >> 1' if signs else ''}) & {block - 1}).to({'tl.int64' if wide else 'tl.int32'})"
    values = (_value(body, scan, word, words), cast(position, "int64" if wide else "int32", "int64"))
    for name, text in zip(scan.names, values, strict=True):
        body.names[name] = body.put(text, ROW, False)


def _packed(body: Body, scan: Scan, word: _Word) -> str:
    """The words of a row; beyond its end the largest ones."""
    value, t = scan.values[0], TYPES[scan.dtype]
    spread = body.spread(Text(body.value(value).text, body.value(value).dims, True), ROW)
    if not word.signs:
        key, rest = f"{spread}.to(tl.int32)", ""
    else:
        bits = body.put(f"{spread}.to(tl.int{8 * t.size}, bitcast=True).to(tl.int32)", ROW, False)
        key, rest = resolve(f"%float_key({bits.text}, {', '.join(map(str, _FLOATS[scan.dtype]))})", body.needs), f" * 2 + ({bits.text} < 0)"
    key = f"~{key}" if scan.op == "descending" else key
    masks = body.masks(frozenset({"r"}))
    key = f"tl.where({masks[0]}, {key}, {word.top})" if masks else f"({key})"
    return body.put(f"({key}.to({word.type}) << {word.low}) | (rindex{rest}).to({word.type})", ROW, False).text


def _in_order(words: str, needed: int | None, block: int) -> str:
    """The words in order; where few are needed, these again and again to the end of the row."""
    if needed is None or 2 * needed > block:
        return f"tl.sort({words}, 1)"
    few = max(1 << (needed - 1).bit_length(), 2)
    return f"tl.reshape(tl.broadcast_to(tl.expand_dims(~tl.topk(~{words}, {few}), 1), [XBLOCK, {block // few}, {few}]), [XBLOCK, RBLOCK])"


def _needed(scan: Scan, phase: Phase) -> int | None:
    """How many points from the beginning of the row somebody reads; None for all."""

    def used(e: Expr) -> bool:
        return any(type(x) is Ref and x.name in scan.names for x in walk.inside(e))

    stores = [s for s in phase.stores if used(s.value) or s.index.symbols & set(scan.names)]
    if any(used(v) for s in phase.scans for v in s.values) or not stores:
        return None
    firsts = [s.first for s in stores]
    return None if None in firsts else max(n for n in firsts if n is not None)


def _value(body: Body, scan: Scan, word: _Word, words: Text) -> str:
    """The values that keys stand for."""
    key = f"({words.text} >> {word.low}).to(tl.int32)"
    key = f"(~{key})" if scan.op == "descending" else key
    t = TYPES[scan.dtype]
    if not word.signs:
        return cast(key, "int32", scan.dtype)
    bits = resolve(f"%float_of_key({key}, ({words.text} & 1) != 0, {_FLOATS[scan.dtype][0]})", body.needs)
    return f"{bits}.to(tl.int{8 * t.size}).to({t.tl}, bitcast=True)"


__all__ = ["fits", "step"]
