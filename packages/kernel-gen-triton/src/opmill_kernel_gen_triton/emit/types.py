"""Element types in Triton's terms."""

from __future__ import annotations

from dataclasses import dataclass

from opmill_graph_ir.loops.float8 import FLOAT8

ARCH = "ARCH"
"""The compile-time parameter of a function that is what it is compiled for: compute capability times ten, or 0 where it is interpreted."""
PROGRAMMATIC = 90
"""The lowest of these whose kernels can wait by themselves for what is before them in the stream, which may still be ending when they
start."""
CONVERTS = 90
"""The lowest that converts float32 to floats of one byte without a detour by float16, which would round twice."""


@dataclass(frozen=True)
class ElementType:
    """``tl``: type of values; ``pointer``: of a kernel parameter (bools live in memory as bytes); ``kind``: float, half, float8 (whose bits
    values are, too), int, uint or bool."""

    name: str
    tl: str
    pointer: str
    size: int
    kind: str


TYPES: dict[str, ElementType] = {
    t.name: t
    for t in (
        ElementType("float64", "tl.float64", "*fp64", 8, "float"),
        ElementType("float32", "tl.float32", "*fp32", 4, "float"),
        ElementType("float16", "tl.float16", "*fp16", 2, "half"),
        ElementType("bfloat16", "tl.bfloat16", "*bf16", 2, "half"),
        ElementType("float8_e4m3fn", "tl.uint8", "*u8", 1, "float8"),
        ElementType("float8_e5m2", "tl.uint8", "*u8", 1, "float8"),
        ElementType("int64", "tl.int64", "*i64", 8, "int"),
        ElementType("int32", "tl.int32", "*i32", 4, "int"),
        ElementType("int16", "tl.int16", "*i16", 2, "int"),
        ElementType("int8", "tl.int8", "*i8", 1, "int"),
        ElementType("uint8", "tl.uint8", "*u8", 1, "uint"),
        ElementType("bool", "tl.int1", "*u8", 1, "bool"),
    )
}


def is_wide(dtype: str) -> bool:
    """Whether half precision rounds some values of the type."""
    return TYPES[dtype].size > 2 or dtype == "int16"


def cast(text: str, source: str, to: str) -> str:
    """``text`` of type ``source`` converted as torch's ``to`` does: half precision and less by way of float32, small integers by way of
    wide ones. What floats of one byte need of :mod:`.helpers` is to be resolved."""
    a, b = TYPES[source], TYPES[to]
    if a == b:
        return text
    if a.kind == "float8":
        return cast(f"%from_float8({text}, {FLOAT8[source].bias}, {ARCH} >= {CONVERTS})", "float32", to)
    if b.kind == "float8":
        form = FLOAT8[to]
        return f"%to_float8({cast(text, source, 'float32')}, {form.mantissa}, {form.bias}, {form.top}, {ARCH} >= {CONVERTS})"
    if a.kind == "half":
        return cast(f"{text}.to(tl.float32)", "float32", to)
    if b.kind == "bool":
        return f"({text} != 0)"
    if b.kind == "half":
        return f"{text}.to({b.tl})" if source == "float32" else f"{text}.to(tl.float32).to({b.tl})"
    if a.kind == "float" and b.kind in ("int", "uint") and b.size < 4:
        return f"{text}.to({'tl.int64' if b.kind == 'uint' else 'tl.int32'}).to({b.tl})"
    return f"{text}.to({b.tl})"


def typed(value: int, dtype: str) -> bool | int | float:
    """A number as constants of ``dtype`` hold it."""
    return bool(value) if dtype == "bool" else float(value) if TYPES[dtype].kind in ("float", "half", "float8") else value


def literal(value: bool | int | float, dtype: str) -> str | None:
    """``value`` as a bare Python literal, where Triton takes it for ``dtype`` exactly; None elsewhere."""
    if dtype == "float32":
        v = float(value)
        if v != v:
            return 'float("nan")'
        if abs(v) == float("inf"):
            return f'float("{v}")'
        return repr(v) if (v == 0 and str(v)[0] != "-") or 2.0**-120 <= abs(v) <= 2.0**127 else None
    if dtype == "int32" and 0 <= int(value) < 2**31:
        return repr(int(value))
    return None


def constant(value: bool | int | float, dtype: str, shape: str) -> str:
    """``value`` as a tensor of ``dtype``."""
    t = TYPES[dtype]
    if t.kind == "float8":
        text = str(FLOAT8[dtype].encode(float(value)))
    elif t.kind in ("float", "half"):
        v = float(value)
        text = repr(v) if abs(v) < float("inf") else f'float("{v}")'
    else:
        text = str(int(value))
    if t.kind == "bool":
        return f"(tl.full({shape}, {text}, tl.int32) != 0)"
    if t.kind == "half":
        return f"tl.full({shape}, {text}, tl.float32).to({t.tl})"
    return f"tl.full({shape}, {text}, {t.tl})"
