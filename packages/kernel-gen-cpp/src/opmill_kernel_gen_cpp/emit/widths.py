"""Lanes made wider or narrower by the one instruction that there is for it. Of its own conversions GCC 12 knows a few as one: a vector of
bytes becomes one of integers in 47, as halves of halves."""

from __future__ import annotations

from .needs import Needs
from .types import C_OF_SHORT, vector

_LETTER = {1: "b", 2: "w", 4: "d", 8: "q"}
_ELEMENT = {1: "char", 2: "short", 4: "int", 8: "long long"}
_TO_FLOAT = {  # (from, to, lanes): the instruction, and what it takes besides
    ("f32", "f64", 8): ("cvtps2pd512_mask", ", -1, 4"),
    ("i32", "f64", 8): ("cvtdq2pd512_mask", ", -1"),
    ("f32", "i64", 8): ("cvttps2qq512_mask", ", -1, 4"),
}
_AVX512 = "defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)"


def resized(needs: Needs, text: str, short: str, to: str, lanes: int) -> str:
    """``text``, a vector of elements ``short``, as one of ``to``, by value."""
    if short == to:
        return text
    if to.startswith("f") and not short.startswith("f") and C_OF_SHORT[short][1] < 4:
        return resized(needs, resized(needs, text, short, "i32", lanes), "i32", to, lanes)
    found = _instruction(short, to, lanes) if needs.family == "x86" else None
    v, w = needs.vector(short, lanes), needs.vector(to, lanes)
    if found is None:
        return f"__builtin_convertvector({text}, {w})"
    condition, statement = found
    name = f"{vector(short, lanes)}_to_{to}"
    needs.add(
        name,
        f"static inline {w} {name}({v} x) {{\n#if {condition} && !defined(__clang__)\n  {statement}\n"
        f"#else\n  return __builtin_convertvector(x, {w});\n#endif\n}}",
    )
    return f"{name}({text})"


def _instruction(short: str, to: str, lanes: int) -> tuple[str, str] | None:
    """Where there is one, as a condition of the preprocessor, and the statements that return ``x`` by it."""
    size, wanted, w = C_OF_SHORT[short][1], C_OF_SHORT[to][1], vector(to, lanes)
    if (known := _TO_FLOAT.get((short, to, lanes))) is not None:
        element = _ELEMENT[wanted] if not to.startswith("f") else "double"
        source = "float" if short.startswith("f") else _ELEMENT[size]
        types = f"typedef {source} a __attribute__((vector_size({size * lanes}))); {_typedef('b', element, wanted * lanes)}"
        return _AVX512, f"{types} return ({w})__builtin_ia32_{known[0]}((a)x, b{{}}{known[1]});"
    if short[0] not in "iu" or to[0] not in "iu" or size == wanted:
        return None
    bits, pair = 8 * lanes * max(size, wanted), _LETTER[size] + _LETTER[wanted]
    if bits not in (256, 512) or lanes * min(size, wanted) < 4:
        return None
    return _wider(short, size, wanted, lanes, bits, w) if wanted > size else _narrower(size, wanted, lanes, bits, w, pair)


def _typedef(name: str, element: str, size: int) -> str:
    return f"typedef {element} {name} __attribute__((vector_size({size})));"


def _wider(short: str, size: int, wanted: int, lanes: int, bits: int, w: str) -> tuple[str, str]:
    name = f"__builtin_ia32_pmov{'zx' if short.startswith('u') else 'sx'}{_LETTER[size]}{_LETTER[wanted]}{bits}"
    types, source = _typedef("a", _ELEMENT[size], max(size * lanes, 16)), "(a)x"
    if (short_of := size * lanes) < 16:  # it reads the first lanes of a whole register
        whole = _ELEMENT[short_of]
        types += f" {_typedef('q', whole, 16)}"
        source = f"(a)q{{__builtin_bit_cast({whole}, x)}}"
    if bits == 256:
        return "defined(__AVX2__)", f"{types} return ({w}){name}({source});"
    return _AVX512, f"{types} {_typedef('b', _ELEMENT[wanted], 64)} return ({w}){name}_mask({source}, b{{}}, -1);"


def _narrower(size: int, wanted: int, lanes: int, bits: int, w: str, pair: str) -> tuple[str, str]:
    types = f"{_typedef('a', _ELEMENT[size], bits // 8)} {_typedef('b', _ELEMENT[wanted], max(wanted * lanes, 16))}"
    made = f"__builtin_ia32_pmov{pair}{bits}_mask((a)x, b{{}}, -1)"
    if (used := wanted * lanes) >= 16:
        return _AVX512, f"{types} return ({w}){made};"
    return _AVX512, f"{types} {_typedef('q', _ELEMENT[used], 16)} return __builtin_bit_cast({w}, ((q){made})[0]);"
