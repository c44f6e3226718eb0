"""Where lanes of a vector read, against their positions one by one."""

import pytest

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_kernel_gen_cpp.emit.lanes import by_lane, even_step, offsets

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
