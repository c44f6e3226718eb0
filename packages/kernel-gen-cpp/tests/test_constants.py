"""Constants as C++ text, read back as C++ reads them."""

import math
import random
import struct

import pytest
import torch

from opmill_graph_ir.loops.ir import Const
from opmill_kernel_gen_cpp.emit.constants import const_text, float_text, half_bits


def read(text: str) -> float:
    text = text.removesuffix("f")
    if "inf" in text:
        return -math.inf if text.startswith("-") else math.inf
    return float.fromhex(text) if "0x" in text else float(text)


@pytest.mark.parametrize("seed", range(50))
def test_floats_are_exact(seed):
    rng = random.Random(seed)
    value = struct.unpack("d", rng.randbytes(8))[0] if seed % 2 else rng.choice([0.0, -0.0, 0.5, 1e300, -2.25, rng.uniform(-9, 9)])
    if math.isnan(value):
        return
    assert struct.pack("d", read(const_text(Const(value, "float64")))) == struct.pack("d", value)
    assert struct.pack("d", read(float_text(value))) == struct.pack("d", value)


@pytest.mark.parametrize("value", [3.4028234663852886e38, 3.4028235677973362e38, 3.4028235677973366e38, 1e39, -1e39, math.inf])
def test_where_float32_ends(value):
    """What rounds to an infinity is one: a literal beyond the largest float is no C++."""
    want = torch.tensor(value, dtype=torch.float64).float().item()
    text = const_text(Const(value, "float32"))
    assert text.endswith("f") or text.endswith("f()")
    assert (
        torch.tensor(read(text.removesuffix("()").removesuffix("f") if "inf" not in text else text), dtype=torch.float64).float().item()
        == want
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1 / 3, 65504.0, 65520.0, -1e9, 6e-8, math.inf])
def test_halves_are_bits(dtype, value):
    want = torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype))
    got = torch.tensor(int(half_bits(value, dtype), 16), dtype=torch.int32).to(torch.uint16).view(want.dtype)
    assert torch.equal(got, want) and torch.signbit(got) == torch.signbit(want)
    assert const_text(Const(value, dtype)) == half_bits(value, dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [(True, "bool", "true"), (3, "int32", "3"), (-3, "int64", "-3L"), (2**64 - 1, "uint64", f"{2**64 - 1}UL"),
     (-(2**63), "int64", "(-0x7fffffffffffffffL - 1)"), (math.nan, "float32", '__builtin_nanf("")'), (math.nan, "float64", '__builtin_nan("")')],
)  # fmt: skip
def test_others(value, dtype, text):
    assert const_text(Const(value, dtype)) == text
