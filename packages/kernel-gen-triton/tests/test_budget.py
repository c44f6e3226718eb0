"""What programs may use, where it was too much."""

from dataclasses import replace

from opmill_kernel_gen_triton.budget import DEFAULT, smaller


def test_each_step_is_half_and_ends():
    once = smaller(DEFAULT)
    assert (once.tile, once.longest, once.values) == (DEFAULT.tile // 2, DEFAULT.longest // 2, DEFAULT.values // 2)
    assert replace(once, tile=DEFAULT.tile, longest=DEFAULT.longest, values=DEFAULT.values, dot=None) == DEFAULT
    last = DEFAULT
    for _ in range(40):
        last = smaller(last)
    assert smaller(last) == last and (last.tile, last.longest, last.values) == (64, 64, 64)


def test_tiles_of_products_shrink_twice():
    first = smaller(DEFAULT).dot
    second = smaller(smaller(DEFAULT)).dot
    assert first.stages * first.depth > second.stages * second.depth and smaller(replace(DEFAULT, dot=second)).dot == second
