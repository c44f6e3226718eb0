"""What the machine code of a Triton kernel takes, by the signature that Triton compiled it for."""

import struct

import pytest

from opmill_bytecode_frontend.kernels.machine import parameters_of


@pytest.mark.parametrize(
    "kind, value, bits",
    [
        ("i32", 7, 7),
        ("i32", -1, -1),
        ("i64", 1 << 40, 1 << 40),
        ("u64", (1 << 64) - 2, -2),
        ("u1", True, 1),
        ("fp32", 0.5, struct.unpack("<I", struct.pack("<f", 0.5))[0]),
        ("fp32", 3, struct.unpack("<I", struct.pack("<f", 3.0))[0]),
        ("fp64", -0.0, -(1 << 63)),
    ],
)
def test_numbers_are_passed_by_their_bits(kind, value, bits):
    assert parameters_of({"n": kind}, {}, {"n": value}) == (("word", bits),)


def test_constants_are_left_out_and_pointers_keep_their_order():
    signature = {"y": "*fp32", "n": "constexpr", "x": "*bf16", "m": "i32", "B": "constexpr"}
    assert parameters_of(signature, {"x": 0, "y": 1}, {"n": 1, "m": 5, "B": 32, "num_warps": 8}) == (
        ("tensor", 1),
        ("tensor", 0),
        ("word", 5),
    )


@pytest.mark.parametrize("kind", ["fp16", "tensordesc<fp32[16]>", ("i32", "i32"), "*fp32"])
def test_what_is_not_known_here_is_left_to_triton(kind):
    assert parameters_of({"n": kind}, {}, {"n": 1.0}) is None
