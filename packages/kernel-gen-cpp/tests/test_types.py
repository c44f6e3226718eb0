"""Element types are as large in C++ as torch's are, and what is said of a vector holds for each of its elements."""

import pytest
import torch

from opmill_kernel_gen_cpp.emit.types import C_OF_SHORT, SIGNED_OF_SIZE, TYPES, Vectors, vector


@pytest.mark.parametrize("name", TYPES)
def test_sizes_are_torchs(name):
    dtype, known = getattr(torch, name), TYPES[name]
    assert known.name == name and known.size == dtype.itemsize
    assert C_OF_SHORT[known.short][1] == known.size
    assert (known.kind in ("float", "raw")) == dtype.is_floating_point
    assert known.short.endswith(str(8 * known.size))


def test_masks_are_integers_of_their_size():
    for size, short in SIGNED_OF_SIZE.items():
        assert Vectors(8, size).mask_short() == short and C_OF_SHORT[short][1] == size
    assert vector("f32", 8) == "f32x8"
