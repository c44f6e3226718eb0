"""What phases mention and cost."""

import pytest

from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_cpp.walk import bounds_of, indices, names_in, op_cost

[NEST] = parse("""kernel k(n)
  in a: float32[64]
  inout b: float32[64]
nest i<8
  phase j<n
    let v = exp(a[8*i + j])
    sum s: float32 = mul(v, cast.float32(int64.at(n + j)))
    set b[8*i + j] = add(b[8*i + j], v)
  phase
    set b[i] = s
""").nests


def test_names_and_indices():
    first, last = NEST.phases
    assert names_in(first) >= {"i", "j", "n", "v"} and names_in(last) >= {"i", "s"} and "j" not in names_in(last)
    assert sorted((str(i), store) for i, store in indices(first)) == [("8*i + j", False), ("8*i + j", False), ("8*i + j", True)]


@pytest.mark.parametrize(("cheap", "dear"), [("neg(a[i])", "exp(a[i])"), ("a[i]", "neg(a[i])"), ("neg(a[i])", "add(a[i], a[i + 1])")])
def test_functions_cost_more_than_arithmetic_and_loads_count(cheap, dear):
    text = "kernel k()\n  in a: float32[9]\n  out b: float32[8]\nnest i<8\n  phase\n    set b[i] = {}\n"
    first, second = (op_cost(parse(text.format(value)).nests[0].phases[0]) for value in (cheap, dear))
    assert 0 < first < second


def test_extents_are_numbers_as_far_as_symbols_are():
    assert bounds_of(NEST, {"n": 5}) == {"n": 5, "i": 8, "j": 5}
    assert bounds_of(NEST, {})["j"] >= 1 << 40
