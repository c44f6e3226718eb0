"""Where lanes of a vector read, against their positions one by one."""

import pytest

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_kernel_gen_cpp.emit.lanes import by_lane, even_step, offsets, step_between_turns

I, N = index("i"), 64
EXTENTS = {"i": N, "j": 5}
CASES = [I, I * 3 + 1, floordiv(I, 4), mod(I, 4), floordiv(I, 16) * 7 + mod(I, 16), mod(I * 2, 32), floordiv(I, 3), index("j") * 9 + I]
CASES += [floordiv(I + 4, 8), mod(I + index("j"), 8), floordiv(I, 8) + mod(I, 2) * 3, I * I]


def positions(i, block, lanes):
    return [i.evaluate({"i": block * lanes + k, "j": 2}) for k in range(lanes)]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("i", CASES, ids=str)
def test_parts_are_the_same_position(i, lanes):
    found = by_lane(i, "i", lanes, EXTENTS)
    for block in range(N // lanes):
        assert [found.evaluate({"lane block": block, "lane": k, "j": 2}) for k in range(lanes)] == positions(i, block, lanes)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("i", CASES, ids=str)
def test_an_even_step_is_one_everywhere_and_offsets_are(i, lanes):
    step, apart = even_step(i, "i", lanes, EXTENTS), offsets(i, "i", lanes, EXTENTS)
    for block in range(N // lanes):
        at = positions(i, block, lanes)
        if step is not None:
            assert {b - a for a, b in zip(at, at[1:], strict=False)} == {step.constant}
        if apart is not None:
            assert tuple(p - at[0] for p in at) == apart and max(apart) < lanes


def test_what_is_found_at_all():
    assert even_step(floordiv(I, 64), "i", 8, EXTENTS) == index(0) and even_step(mod(I, 16), "i", 8, EXTENTS) == index(1)
    assert even_step(floordiv(I, 4), "i", 8, EXTENTS) is None and offsets(floordiv(I, 4), "i", 8, EXTENTS) == (0, 0, 0, 0, 1, 1, 1, 1)
    assert offsets(mod(I, 4), "i", 8, EXTENTS) == (0, 1, 2, 3) * 2 and offsets(I * 9, "i", 8, EXTENTS) is None
    assert offsets(floordiv(I, 3), "i", 8, EXTENTS) is None  # other lanes go on in other vectors


TURNING = [
    mod(I + 3, 32),
    floordiv(I, 20),
    mod(I + 3, 32) * 2 + floordiv(I + 3, 32) * 9,
    floordiv(I, 20) + I,
    mod(I * 2 + 1, 40),
    index("j") * 9 + mod(I, 17),
]
TURNING += [
    floordiv(I, 16) * 16 + mod(I, 16),
    mod(I + 5, 30) - mod(I, 30),
    mod(I, 5),
    mod(I, 17) * floordiv(I, 17),
    mod(I, 17) * index("j"),
    mod(I * I, 40),
]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("i", [*CASES, *TURNING], ids=str)
def test_first_and_last_lane_tell_whether_all_are_a_step_apart(i, lanes):
    step = step_between_turns(i, "i", lanes)
    for start in range(N):
        at = [i.evaluate({"i": start + k, "j": 2}) for k in range(lanes)]
        if step is not None and at[-1] - at[0] == step * (lanes - 1):
            assert at == [at[0] + step * k for k in range(lanes)]


def test_which_turns_are_found():
    assert [step_between_turns(i, "i", 8) for i in TURNING[:7]] == [1, 0, 2, 1, 2, 1, None]
    assert [step_between_turns(i, "i", 8) for i in TURNING[7:]] == [None] * 5
