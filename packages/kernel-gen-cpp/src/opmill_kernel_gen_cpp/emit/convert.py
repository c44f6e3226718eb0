"""Conversions between element types, as torch's ``to`` does them, for scalars and vectors."""

from __future__ import annotations

from opmill_graph_ir.loops.float8 import FLOAT8

from ..target import Target
from . import float8
from .needs import Needs
from .types import SIGNED_OF_SIZE, TYPES, Vectors
from .widths import resized

_BF16_SCALAR = """static inline float load_bf16(unsigned short x) { return __builtin_bit_cast(float, (unsigned)x << 16); }
static inline unsigned short round_bf16(float x) {
  const unsigned b = __builtin_bit_cast(unsigned, x);
  return x != x ? 0x7fc0 : (unsigned short)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}"""
_F16_SCALAR = """#ifdef __aarch64__
typedef __fp16 half;  // GCC knows the other name there from version 13 on
#else
typedef _Float16 half;
#endif
static inline float load_f16(unsigned short x) { return (float)__builtin_bit_cast(half, x); }
static inline unsigned short round_f16(float x) { return __builtin_bit_cast(unsigned short, (half)x); }"""


def value_short(dtype: str, vectors: Vectors) -> str:
    """Element of the vector that holds values of ``dtype``."""
    return vectors.mask_short() if dtype == "bool" else TYPES[dtype].short


def value_type(needs: Needs, dtype: str, vectors: Vectors | None) -> str:
    """C++ type of a value: a scalar without ``vectors``."""
    if vectors is None:
        return "bool" if dtype == "bool" else TYPES[dtype].c
    return needs.vector(value_short(dtype, vectors), vectors.lanes)


def resize(needs: Needs, text: str, short: str, to: str, vectors: Vectors) -> str:
    """Converts lanes from element ``short`` to ``to`` by value."""
    return resized(needs, text, short, to, vectors.lanes)


def mask_for(needs: Needs, mask: str, size: int, vectors: Vectors) -> str:
    """A mask whose lanes have ``size`` bytes."""
    return resize(needs, mask, vectors.mask_short(), SIGNED_OF_SIZE[size], vectors)


def cast(needs: Needs, text: str, source: str, to: str, vectors: Vectors | None, target: Target) -> str:
    """``text`` (a value of ``source``) as ``to``; vectors given: for vectors, else for scalars."""
    if source == to:
        return text
    if TYPES[source].kind == "raw":
        text = _from_byte(needs, text, source, vectors, target) if source in FLOAT8 else _from_half(needs, text, source, vectors, target)
        return cast(needs, text, "float32", to, vectors, target)
    if TYPES[to].kind == "raw":
        text = cast(needs, text, source, "float32", vectors, target)
        return (float8.narrowed if to in FLOAT8 else _to_half)(needs, text, to, vectors, target)
    return _scalar_cast(text, source, to) if vectors is None else _vector_cast(needs, text, source, to, vectors)


def _scalar_cast(text: str, source: str, to: str) -> str:
    if to == "bool":
        return f"({text} != 0)"
    if TYPES[source].kind == "float" and TYPES[to].kind in ("int", "uint") and TYPES[to].size < 4:
        return f"({TYPES[to].c})(int)({text})"  # by way of int: negative to unsigned is defined
    if TYPES[source].kind == "float" and TYPES[to].kind == "uint":
        return f"({TYPES[to].c})(long)({text})"
    return f"({TYPES[to].c})({text})"


def _vector_cast(needs: Needs, text: str, source: str, to: str, vectors: Vectors) -> str:
    s, t = TYPES[source], TYPES[to]
    if to == "bool":
        return resize(needs, f"({text} != 0)", SIGNED_OF_SIZE[s.size], vectors.mask_short(), vectors)
    if source == "bool":
        return resize(needs, f"({text} & 1)", vectors.mask_short(), t.short, vectors)
    if s.kind == "float" and t.kind in ("int", "uint") and t.size < 4:
        return resize(needs, resize(needs, text, s.short, "i32", vectors), "i32", t.short, vectors)
    if s.kind == "float" and t.kind == "uint":
        return resize(needs, resize(needs, text, s.short, "i64", vectors), "i64", t.short, vectors)
    return resize(needs, text, s.short, t.short, vectors)


_EACH_WIDENED = "{f} r; for (int l = 0; l < {n}; ++l) r[l] = load_f16(x[l]); return r;"
_HALF_WIDENED = {
    ("x86", 8): "return __builtin_ia32_vcvtph2ps256(({i8})x);",
    ("x86", 16): "return __builtin_ia32_vcvtph2ps512_mask(({i16})x, ({f}){{}}, -1, 4);",
    ("arm", 4): '{f} r; __asm__("fcvtl %0.4s, %1.4h" : "=w"(r) : "w"(x)); return r;',
    ("arm", 8): (
        '{f4} low, high; __asm__("fcvtl %0.4s, %1.4h" : "=w"(low) : "w"(x)); __asm__("fcvtl2 %0.4s, %1.8h" : "=w"(high) : "w"(x));'
        " return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);"
    ),
}
"""float16 to float32 by (family, lanes) where there are instructions for it, as the body of a function of ``x``."""
_EACH_NARROWED = "{u} r; for (int l = 0; l < {n}; ++l) r[l] = round_f16(x[l]); return r;"
_HALF_NARROWED = {
    ("x86", 8): "return ({u})__builtin_ia32_vcvtps2ph256(x, 0);",
    ("x86", 16): "return ({u})__builtin_ia32_vcvtps2ph512_mask(x, 0, ({i16}){{}}, -1);",
    ("arm", 4): '{u} r; __asm__("fcvtn %0.4h, %1.4s" : "=w"(r) : "w"(x)); return r;',
    ("arm", 8): (
        "const {f4} low = __builtin_shufflevector(x, x, 0, 1, 2, 3), high = __builtin_shufflevector(x, x, 4, 5, 6, 7); {u} r;"
        ' __asm__("fcvtn %0.4h, %1.4s\\n\\tfcvtn2 %0.8h, %2.4s" : "=&w"(r) : "w"(low), "w"(high)); return r;'
    ),
}
"""The way back, rounded to nearest."""


def _filled(needs: Needs, body: str, **known: object) -> str:
    """A body with its vector types, which are defined if it needs them."""
    types = {"i8": ("i16", 8), "i16": ("i16", 16), "f4": ("f32", 4)}
    return body.format(**known, **{name: needs.vector(*of) for name, of in types.items() if f"{{{name}}}" in body})


def _from_half(needs: Needs, text: str, source: str, vectors: Vectors | None, target: Target) -> str:
    half = "bf16" if source == "bfloat16" else "f16"
    needs.add(f"scalar {half}", _BF16_SCALAR if half == "bf16" else _F16_SCALAR)
    if vectors is None:
        return f"load_{half}({text})"
    n = vectors.lanes
    f, u = needs.vector("f32", n), needs.vector("u16", n)
    name = f"load_{half}x{n}"
    if half == "bf16":
        body = f"return ({f})({resized(needs, 'x', 'u16', 'u32', n)} << 16);"
    else:
        body = _HALF_WIDENED.get((target.family if target.f16c else "", n), _EACH_WIDENED)
        body = _filled(needs, body, f=f, n=n)
    needs.add(name, f"static inline {f} {name}({u} x) {{ {body} }}")
    return f"{name}({text})"


_BYTE_AS_HALF = {
    "float8_e5m2": ("y << 8", ""),
    "float8_e4m3fn": ("(y << 7 & -0x4001) | (((y << 7 & 0x3f80) == 0x3f80) & 0x4000)", " * 256"),
}
"""The float16 that has the bits of a float of one byte, sign-extended to ``y``, and what makes its value that of the byte: exponents have
as many bits as float16's, or one less and another bias. Subnormal ones are float16's, too, which the instruction takes as others."""


def _from_byte(needs: Needs, text: str, source: str, vectors: Vectors | None, target: Target) -> str:
    """By way of float16 where there are instructions for that."""
    if vectors is None or not target.f16c or (target.family, vectors.lanes) not in _HALF_WIDENED:
        return float8.widened(needs, text, source, vectors, target)
    n, (bits, scale) = vectors.lanes, _BYTE_AS_HALF[source]
    f, u, i8, i16, u16 = (needs.vector(short, n) for short in ("f32", "u8", "i8", "i16", "u16"))
    value = _from_half(needs, f"({u16})h", "float16", vectors, target)
    body = f"const {i16} y = {resized(needs, f'({i8})x', 'i8', 'i16', n)}, h = {bits};\n  return {value}{scale};"
    needs.add(f"load_{source}x{n}", f"static inline {f} load_{source}x{n}({u} x) {{\n  {body}\n}}")
    return f"load_{source}x{n}({text})"


def _to_half(needs: Needs, text: str, to: str, vectors: Vectors | None, target: Target) -> str:
    half = "bf16" if to == "bfloat16" else "f16"
    needs.add(f"scalar {half}", _BF16_SCALAR if half == "bf16" else _F16_SCALAR)
    if vectors is None:
        return f"round_{half}({text})"
    n = vectors.lanes
    f, u, w = needs.vector("f32", n), needs.vector("u16", n), needs.vector("u32", n)
    name = f"round_{half}x{n}"
    if half == "bf16":
        narrow = f"return {resized(needs, 'y', 'u32', 'u16', n)};"
        if n == 8 and target.name == "avx2":
            low, high = (f"({needs.vector('i32', 4)})__builtin_shufflevector(y, y, {k})" for k in ("0, 1, 2, 3", "4, 5, 6, 7"))
            narrow = f"return ({u})__builtin_ia32_packusdw128({low}, {high});"
        body = (
            f"const {w} b = ({w})x, r = b + 0x7fff + ((b >> 16) & 1);\n"
            f"  const {w} y = (x == x ? r : (({w}){{}} + 0x7fc00000u)) >> 16;\n  {narrow}"
        )
    else:
        body = _HALF_NARROWED.get((target.family if target.f16c else "", n), _EACH_NARROWED)
        body = _filled(needs, body, u=u, n=n)
    needs.add(name, f"static inline {u} {name}({f} x) {{ {body} }}")
    return f"{name}({text})"


def bitcast(needs: Needs, text: str, to: str, vectors: Vectors | None) -> str:
    """The same bits as another type of the same size."""
    if vectors is None:
        return f"__builtin_bit_cast({TYPES[to].c}, {text})"
    return f"({needs.vector(TYPES[to].short, vectors.lanes)})({text})"


def memory_short(dtype: str) -> str:
    """Element as it lies in memory."""
    return TYPES[dtype].short


def from_memory(needs: Needs, text: str, dtype: str, vectors: Vectors | None) -> str:
    """A value from what memory holds (a bool from its byte)."""
    if dtype != "bool":
        return text
    if vectors is None:
        return f"({text} != 0)"
    return resize(needs, f"({text} != 0)", "i8", vectors.mask_short(), vectors)


def to_memory(needs: Needs, text: str, dtype: str, vectors: Vectors | None) -> str:
    """What memory holds of a value."""
    if dtype != "bool" or vectors is None:
        return text
    return resize(needs, f"({text} & 1)", vectors.mask_short(), "u8", vectors)
