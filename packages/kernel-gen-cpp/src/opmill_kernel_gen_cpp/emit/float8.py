"""Floats of one byte, from float32 and to it, in integer arithmetic: no processor in reach has instructions for them. One text for scalars
and vectors."""

from __future__ import annotations

from opmill_graph_ir.loops.float8 import FLOAT8

from ..target import Target
from .needs import Needs
from .types import Vectors

_WIDENED = """static inline {f} load_{name}({u} x) {{
  const {w} b = {wide}, m = b & 0x7f;
  const {f} low = {real} * {unit}f;  // subnormal
  const {w} high = (m << {shift}) + {rebias}u;
  const {w} beyond = (m << {shift}) | 0x7f800000u;  // infinity, or NaN
  const {w} r = m > {largest} ? beyond : m < {first} ? {low_bits} : high;
  return {result};
}}"""
_NARROWED = """static inline {u} round_{name}({f} x) {{
  const {w} b = {bits}, m = b & 0x7fffffffu;
  const {f} low = {magnitude} + {magic}f;  // the sum's last bits are the code of a subnormal number
  const {w} high = ((m + {half}u + ((m >> {shift}) & 1)) >> {shift}) - {offset}u;
  const {w} code = m < {normal}u ? {low_bits} - {magic_bits}u : high;
  const {w} kept = m > 0x7f800000u ? {nan} : code > {top} ? {top} : code;
  const {w} r = kept | ((b >> 24) & 0x80);
  return {result};
}}"""


def widened(needs: Needs, text: str, source: str, vectors: Vectors | None, target: Target) -> str:
    """``text`` of a one-byte type as float32."""
    t, form = _Types(needs, vectors), FLOAT8[source]
    name = t.named(source)
    shift = 23 - form.mantissa
    needs.add(
        name,
        _WIDENED.format(
            f=t.f,
            u=t.u,
            w=t.w,
            name=name,
            wide=t.convert("x", t.w),
            real=t.convert(t.bits("m", t.i), t.f),
            shift=shift,
            unit=(2.0 ** (1 - form.bias - form.mantissa)).hex(),
            rebias=127 - form.bias << 23,
            largest=form.largest,
            first=1 << form.mantissa,
            low_bits=t.bits("low", t.w),
            result=t.bits("(r | ((b & 0x80) << 24))", t.f),
        ),
    )
    return f"load_{name}({text})"


def narrowed(needs: Needs, text: str, to: str, vectors: Vectors | None, target: Target) -> str:
    """``text``, float32, as a one-byte type: to the nearest, to even between two."""
    t, form = _Types(needs, vectors), FLOAT8[to]
    name, shift = t.named(to), 23 - form.mantissa
    magic = 24 - form.bias - form.mantissa  # the power of two whose last place is the type's least number
    needs.add(
        f"to {name}",
        _NARROWED.format(
            f=t.f,
            u=t.u,
            w=t.w,
            name=name,
            bits=t.bits("x", t.w),
            magnitude=t.bits("m", t.f),
            magic=(2.0**magic).hex(),
            magic_bits=127 + magic << 23,
            half=(1 << shift - 1) - 1,
            shift=shift,
            offset=127 - form.bias << form.mantissa,
            normal=128 - form.bias << 23,
            low_bits=t.bits("low", t.w),
            top=t.all_of(form.top),
            nan=t.all_of(0x7F),
            result=t.convert("r", t.u),
        ),
    )
    return f"round_{name}({text})"


class _Types:
    """Scalars, or vectors of as many lanes: what the types are called, and how one becomes another."""

    def __init__(self, needs: Needs, vectors: Vectors | None) -> None:
        self.lanes = None if vectors is None else vectors.lanes
        scalars = {"f32": "float", "u8": "unsigned char", "u32": "unsigned", "i32": "int"}
        names = scalars if vectors is None else {short: needs.vector(short, vectors.lanes) for short in scalars}
        self.f, self.u, self.w, self.i = names.values()

    def named(self, dtype: str) -> str:
        return dtype if self.lanes is None else f"{dtype}x{self.lanes}"

    def convert(self, text: str, to: str) -> str:
        return f"({to})({text})" if self.lanes is None else f"__builtin_convertvector({text}, {to})"

    def bits(self, text: str, to: str) -> str:
        return f"__builtin_bit_cast({to}, {text})" if self.lanes is None else f"(({to}){text})"

    def all_of(self, number: int) -> str:
        return f"{number}u" if self.lanes is None else f"(({self.w}){{}} + {number}u)"
