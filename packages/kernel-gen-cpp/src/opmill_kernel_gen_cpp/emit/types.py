"""Element types as C++ sees them, and the vector types made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ElementType:
    """``c`` is the C++ type of a scalar in memory; ``short`` names vectors (``f32x8``). Kind ``raw`` is float storage
    of 16 or 8 bits that only conversions understand; a ``bool`` is a byte in memory, ``bool`` as a scalar and a mask as a vector."""

    name: str
    c: str
    short: str
    size: int
    kind: Literal["float", "int", "uint", "bool", "raw"]


TYPES: dict[str, ElementType] = {
    t.name: t
    for t in (
        ElementType("float32", "float", "f32", 4, "float"),
        ElementType("float64", "double", "f64", 8, "float"),
        ElementType("float16", "unsigned short", "u16", 2, "raw"),
        ElementType("bfloat16", "unsigned short", "u16", 2, "raw"),
        ElementType("float8_e4m3fn", "unsigned char", "u8", 1, "raw"),
        ElementType("float8_e5m2", "unsigned char", "u8", 1, "raw"),
        ElementType("int8", "signed char", "i8", 1, "int"),
        ElementType("int16", "short", "i16", 2, "int"),
        ElementType("int32", "int", "i32", 4, "int"),
        ElementType("int64", "long", "i64", 8, "int"),
        ElementType("uint8", "unsigned char", "u8", 1, "uint"),
        ElementType("uint16", "unsigned short", "u16", 2, "uint"),
        ElementType("uint32", "unsigned int", "u32", 4, "uint"),
        ElementType("uint64", "unsigned long", "u64", 8, "uint"),
        ElementType("bool", "unsigned char", "u8", 1, "bool"),
    )
}
C_OF_SHORT: dict[str, tuple[str, int]] = {t.short: (t.c, t.size) for t in TYPES.values()}
SIGNED_OF_SIZE = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


@dataclass(frozen=True)
class Vectors:
    """How values of a loop are held: ``lanes`` of every type, and masks of ``mask`` byte integers."""

    lanes: int
    mask: int

    def mask_short(self) -> str:
        return SIGNED_OF_SIZE[self.mask]


def vector(short: str, lanes: int) -> str:
    """The name of a vector type."""
    return f"{short}x{lanes}"
