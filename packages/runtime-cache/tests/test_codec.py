"""Plans as bytes."""

import msgspec
import pytest

from opmill_runtime_cache.errors import PlanError, PlanFormatError
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Alloc, Call, Free, Plan, TensorSpec

SPEC = TensorSpec("float32", (2,), (1,), "cpu")
PLAN = Plan("p", 3, (), (), (Alloc(0, SPEC), Free((0,))))


def test_equal_plans_give_equal_bytes():
    again = Plan("p", 3, (), (), (Alloc(0, TensorSpec("float32", (2,), (1,), "cpu")), Free((0,))))
    assert encode(PLAN) == encode(again) and decode(encode(PLAN)) == PLAN
    assert encode(msgspec.structs.replace(PLAN, name="q")) != encode(PLAN)


@pytest.mark.parametrize("data", [b"", b"{}", b"opmill", b"\x80"])
def test_foreign_bytes(data):
    with pytest.raises(PlanFormatError, match="RC001"):
        decode(data)


def test_another_version_is_told_and_half_a_plan_is_malformed():
    blob = encode(PLAN)
    with pytest.raises(PlanFormatError, match="RC002.*version 99"):
        decode(blob.replace(b"\x92\x01", b"\x92\x63", 1))
    for k in range(len(b"opmill-plan"), len(blob)):
        with pytest.raises(PlanFormatError, match="RC003"):
            decode(blob[:k])


def test_what_is_read_is_verified():
    with pytest.raises(PlanError, match="RC014"):
        decode(encode(msgspec.structs.replace(PLAN, steps=(Free((0,)),))))


def test_operators_of_others_have_to_be_named():
    plan = encode(msgspec.structs.replace(PLAN, steps=(Call("mine::op", (), {}, (0,)),)))
    with pytest.raises(PlanError):
        decode(plan)
    assert decode(plan, operators={"mine::op"}).steps[0].op == "mine::op"
