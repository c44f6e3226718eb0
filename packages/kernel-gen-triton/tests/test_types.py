"""Element types in Triton's terms."""

import math

import pytest

from opmill_kernel_gen_triton.emit.types import TYPES, cast, constant, is_wide, literal, typed


@pytest.mark.parametrize(
    ("source", "to", "text"),
    [
        ("float32", "float32", "x"),
        ("float32", "bfloat16", "x.to(tl.bfloat16)"),
        ("int32", "float16", "x.to(tl.float32).to(tl.float16)"),
        ("float16", "int64", "x.to(tl.float32).to(tl.int64)"),
        ("float32", "bool", "(x != 0)"),
        ("float16", "bool", "(x.to(tl.float32) != 0)"),
        ("float32", "int8", "x.to(tl.int32).to(tl.int8)"),
        ("float32", "uint8", "x.to(tl.int64).to(tl.uint8)"),
        ("bool", "int64", "x.to(tl.int64)"),
    ],
)
def test_conversions_go_as_torch_s(source, to, text):
    assert cast("x", source, to) == text


def test_bytes_go_by_functions():
    assert cast("x", "float8_e5m2", "float32").startswith("%from_float8(x, ") and cast("x", "float16", "float8_e4m3fn").startswith(
        "%to_float8("
    )


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.5, "float32", "1.5"),
        (-0.0, "float32", None),
        (1e-40, "float32", None),
        (math.inf, "float32", 'float("inf")'),
        (math.nan, "float32", 'float("nan")'),
        (1.5, "float64", None),
        (7, "int32", "7"),
        (-7, "int32", None),
        (7, "int64", None),
    ],
)
def test_literals_where_they_are_exact(value, dtype, text):
    assert literal(value, dtype) == text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, "bool", "(tl.full([8], 1, tl.int32) != 0)"),
        (0.5, "float16", "tl.full([8], 0.5, tl.float32).to(tl.float16)"),
        (-math.inf, "float32", 'tl.full([8], float("-inf"), tl.float32)'),
        (1.0, "float8_e5m2", "tl.full([8], 60, tl.uint8)"),
    ],
)
def test_constants(value, dtype, text):
    assert constant(value, dtype, "[8]") == text


def test_what_half_precision_rounds():
    assert {name for name in TYPES if is_wide(name)} == {"float64", "float32", "int64", "int32", "int16"}
    assert (typed(1, "bool"), typed(1, "float16"), typed(1, "int8")) == (True, 1.0, 1) and type(typed(1, "float8_e5m2")) is float
