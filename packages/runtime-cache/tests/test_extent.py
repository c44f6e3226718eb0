"""Where tensors of a plan lie, against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_runtime_cache.plan.extent import Extent, extent, itemsize, meets, place, place_tensor
from opmill_runtime_cache.plan.model import DTYPES, Alloc, Call, TensorSpec, View


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_an_element(dtype):
    assert itemsize(dtype) == getattr(torch, dtype).itemsize


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.sampled_from([0, 1, 2, 3, 6])), max_size=3), st.integers(0, 4))
def test_bytes_are_those_that_elements_lie_in(dims, start):
    sizes, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    places = torch.arange(100).as_strided(sizes, strides, start).flatten().tolist()
    found = extent(3, start * 2, "float16", sizes, strides)
    if not places:
        assert found.start == found.end
        return
    assert (found.root, found.start, found.end) == (3, 2 * min(places), 2 * max(places) + 2)
    if found.dense:
        assert sorted(set(places)) == list(range(min(places), max(places) + 1)) or len(set(places)) < len(places)


def test_what_follows_from_symbols_is_not_known():
    assert extent(0, 0, "int8", ("s0",), (1,)) is None and extent(0, 0, "int8", (2,), ("s0",)) is None


SPEC = TensorSpec("float32", (4, 4), (4, 1))


def test_steps_place_what_they_define():
    memory = {}
    place_tensor(0, SPEC, memory)
    place(Alloc(1, SPEC, 64), memory)
    place(View(2, 0, (4,), (4,), 1), memory)
    place(View(3, 1, (8,), (1,), 2, "float16"), memory)
    assert memory[0] == Extent(0, 0, 64, True, 4) and memory[1] == Extent(-1, 64, 128, True, 4)
    assert memory[2] == Extent(0, 4, 56, False, 4) and memory[3] == Extent(-1, 68, 84, True, 2)
    place(View(2, 0, (4,), (4,), "s0"), memory)
    place(Call("aten::f", (), {}, (3,)), memory)
    assert 2 not in memory and 3 not in memory
    place(Alloc(1, SPEC, "s0"), memory)
    assert 1 not in memory


def test_what_certainly_meets():
    memory = {}
    for slot, offset in ((0, 0), (1, 32), (2, 64)):
        place(Alloc(slot, SPEC, offset), memory)
    place(View(3, 0, (4,), (4,), 0), memory)  # the first column
    place(View(4, 0, (4,), (4,), 1), memory)  # the second
    place(View(5, 0, (0,), (1,), 0), memory)
    place_tensor(6, SPEC, memory)
    assert meets(0, 1, memory) and not meets(0, 2, memory) and meets(0, 3, memory)
    assert not meets(3, 4, memory)  # they lie between one another
    assert not meets(5, 0, memory) and not meets(0, 6, memory) and not meets(0, 9, memory)
    assert meets(0, 0, memory) and meets(9, 9, memory) and not meets(5, 5, memory)
