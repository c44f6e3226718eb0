"""Which axis the lanes run along."""

import pytest

from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_cpp.target import AVX2
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
