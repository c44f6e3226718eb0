"""What a piece of text needs before it."""

import pytest

from opmill_kernel_gen_cpp.emit.needs import Needs
from opmill_kernel_gen_cpp.emit.types import C_OF_SHORT, SIGNED_OF_SIZE, TYPES, Vectors, vector


def test_each_item_comes_once_in_order_of_first_need():
    needs = Needs()
    assert needs.vector("f32", 8) == "f32x8" == needs.vector("f32", 8) and needs.add("g", "one") == "g" == needs.add("g", "two")
    needs.update([("g", "three"), ("h", "four")])
    assert list(needs.items) == ["f32x8", "g", "h"] and needs.items["g"] == "one"
    assert "vector_size(32)" in needs.items["f32x8"] and "aligned(4)" in needs.items["f32x8"]


@pytest.mark.parametrize("name", TYPES)
def test_types_and_their_vectors(name):
    kind = TYPES[name]
    assert kind.name == name and C_OF_SHORT[kind.short][1] == kind.size and vector(kind.short, 4) == f"{kind.short}x4"
    assert Vectors(8, kind.size).mask_short() == SIGNED_OF_SIZE[kind.size]
