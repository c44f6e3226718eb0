"""Laws of memory, as far as constants tell."""

import pytest

from opmill_runtime_cache.plan.bounds import Memory, allocated, constant, numbers, viewed
from opmill_runtime_cache.plan.extent import Extent
from opmill_runtime_cache.plan.model import Alloc, Call, Constant, Plan, TensorSpec, View

SPEC = TensorSpec("float32", (4, 4), (4, 1))


def codes(laws):
    return [code for code, _ in laws]


def test_memory_goes_with_its_owner_and_views_with_memory():
    memory = Memory()
    memory.apply(Alloc(0, SPEC))
    memory.apply(View(1, 0, (4,), (1,)))
    memory.apply(View(2, 1, (2,), (1,)))
    memory.free((1,))
    assert memory.stale == set()  # a view owns nothing
    memory.free((0,))
    assert memory.stale == {0, 1, 2}
    memory.apply(View(3, 1, (2,), (1,)))
    assert 3 in memory.stale
    memory.apply(Alloc(1, SPEC))
    assert memory.stale == {0, 2, 3} and memory.room[memory.piece[1]] == 64
    memory.apply(Call("aten::f", (), {}, (0, None)))
    assert 0 not in memory.stale and memory.room[memory.piece[0]] is None


def test_the_arena_stays():
    memory = Memory()
    memory.apply(Alloc(0, SPEC, 0))
    memory.apply(View(1, 0, (4,), (1,)))
    memory.free((0,))
    assert memory.stale == set()


@pytest.mark.parametrize(
    ("sizes", "strides", "found"),
    [((2, "s0"), ("s0", 1), []), ((-1,), (1,), ["RC010"]), ((1,), (-2,), ["RC010"]), ((1,) * 65, (1,) * 65, ["RC013"])],
)
def test_numbers(sizes, strides, found):
    assert codes(numbers(sizes, strides)) == found


@pytest.mark.parametrize(
    ("offset", "arena", "found"), [(0, 64, []), (4, 64, ["RC018"]), (None, 0, []), ("s0", 64, []), (1 << 63, 64, ["RC010"]), (64, "s0", [])]
)
def test_what_is_allocated_lies_inside_of_the_arena(offset, arena, found):
    plan = Plan("p", 1, (), (), (), arena=arena)
    assert codes(allocated(Alloc(0, SPEC, offset), plan)) == found


BASE = Extent(0, 0, 64, True, 4)


@pytest.mark.parametrize(
    ("view", "room", "bounded", "found"),
    [
        (View(1, 0, (16,), (1,)), 64, True, []),
        (View(1, 0, (16,), (1,), 1), 64, True, ["RC018"]),
        (View(1, 0, (16,), (1,), 1), 64, False, []),
        (View(1, 0, (16,), (1,), 1), None, True, []),
        (View(1, 0, (0,), (1,), 99), 64, True, []),  # nothing is reached
        (View(1, 0, (8,), (1,), 0, "complex64"), 64, True, []),
        (View(1, 0, (16,), ("s0",)), 64, True, []),
        (View(1, 0, (2,), (1 << 62,)), 64, True, ["RC010"]),
    ],
)
def test_views_stay_inside(view, room, bounded, found):
    assert codes(viewed(view, BASE, room, bounded)) == found


def test_a_view_begins_at_an_element():
    assert codes(viewed(View(1, 0, (1,), (1,), 0, "complex64"), Extent(0, 4, 64, True, 4), 64, True)) == ["RC018"]


@pytest.mark.parametrize(
    ("spec", "data", "found"),
    [
        (TensorSpec("int16", (2, 3), (3, 1)), bytes(12), []),
        (TensorSpec("int16", (2, 3), (1, 2)), bytes(12), []),
        (TensorSpec("int16", (2, 3), (3, 1)), bytes(11), ["RC018"]),
        (TensorSpec("int16", (2, 3), (4, 1)), bytes(12), ["RC018"]),
        (TensorSpec("int16", ("s0",), (1,)), bytes(12), ["RC011"]),
        (TensorSpec("int16", (0,), (1,)), b"", []),
    ],
)
def test_constants_fill_their_bytes(spec, data, found):
    assert codes(constant(Constant(0, spec, data))) == found
