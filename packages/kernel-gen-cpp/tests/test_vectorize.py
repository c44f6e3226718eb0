"""Which axis the lanes run along."""

import pytest

from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_cpp.emit.lanes import even_step
from opmill_kernel_gen_cpp.target import AVX2, AVX512
from opmill_kernel_gen_cpp.vectorize import choose

ROWS = """kernel rows()
  in b0: float32[{numel}]
  out b1: float32[512]
nest i0<512
  phase j0<{count}
    sum v0: float32 = b0[{row}*i0 + {step}*j0]
  phase
    set b1[i0] = v0
"""


@pytest.mark.parametrize("step", [1, 2, 4])
def test_rows_whose_elements_share_cache_lines_are_summed_along(step):
    """Side by side, each lane would touch a line of its own: ten times slower where rows are a power of two apart."""
    [nest] = parse(ROWS.format(numel=512 * 512 * step, count=512, row=512 * step, step=step)).nests
    assert choose(nest, {"i0": 512, "j0": 512}, AVX2).inner == {0: "j0"}


def test_columns_are_summed_side_by_side():
    [nest] = parse(ROWS.format(numel=512 * 512, count=512, row=1, step=512)).nests
    assert choose(nest, {"i0": 512, "j0": 512}, AVX2).outer == "i0"


SHIFTED = """kernel shifted()
  in b0: float32[{n}]
  out b1: float32[{n}]
nest i0<512
  phase j0<512
    max v0: float32 = b0[i0 + 512*j0]
  phase j0<512
    set b1[{place}] = exp(sub(b0[i0 + 512*j0], v0))
"""


@pytest.mark.parametrize(("place", "unroll"), [("i0 + 512*j0", 4), ("512*i0 + j0", 1)])
def test_few_rows_are_written_at_a_time(place, unroll):
    """Lines of rows that are a power of two apart have few places in a cache."""
    [nest] = parse(SHIFTED.format(n=512 * 512, place=place)).nests
    choice = choose(nest, {"i0": 512, "j0": 512}, AVX512)
    assert (choice.outer, choice.unroll) == ("i0", unroll)


@pytest.mark.parametrize(("by", "lanes", "step"), [(64, 16, 1), (64, 8, 1), (16, 16, 1), (48, 16, 1), (8, 16, None), (40, 16, None)])
def test_lanes_stay_within_a_multiple_of_them(by, lanes, step):
    """Heads side by side, halves of a gate, repeated rows: no vector reaches from one into the next."""
    extents = {"i": 768, "k": 4}
    at = mod(index("i"), by, extents) + floordiv(index("i"), by, extents) * 8192 + index("k") * 98304
    found = even_step(at, "i", lanes, extents)
    assert (None if found is None else found.constant) == step
    assert even_step(mod(index("i") + 5, by, extents), "i", lanes, extents) is None


ADDED = """kernel added()
  in b0: int64[100]
  in b1: float32[6400]
  inout b2: float32[6400]
nest i0<100 j0<64
  phase
    let v0 = b0[{let}]
    add b2[{place}] = b1[64*i0 + j0]
"""


@pytest.mark.parametrize(("let", "place", "axis"), [("i0", "64*v0 + j0", "j0"), ("j0", "64*v0 + j0", None), ("i0", "64*j0 + v0", None)])
def test_what_may_meet_is_added_one_by_one(let, place, axis):
    [nest] = parse(ADDED.format(let=let, place=place)).nests
    assert choose(nest, {"i0": 100, "j0": 64}, AVX2).outer == axis
