"""Walks over expressions."""

from opmill_graph_ir.loops.text import parse
from opmill_graph_ir.loops.walk import children, expressions, inside, roots, written

[NEST] = parse("""kernel k()
  in a: float32[8]
  inout b: float32[8]
  out c: float32[1]
nest
  phase j<8
    let v = exp(a[j])
    check gt(v, float32(0.0)), 'E', 'm'
    sum s: float32 = mul(v, b.where(gt(v, float32(1.0)), j, float32(2.0)))
    set b[j] = v
  phase
    set c[0] = s
""").nests


def test_values_of_a_phase_come_in_its_order():
    first, last = NEST.phases
    shown = [type(e).__name__ + getattr(e, "name", "") for e in roots(first)]
    assert shown == ["Opexp", "Opgt", "Opmul", "Refv"] and [e.name for e in roots(last)] == ["s"]


def test_what_is_inside_is_told_once_and_masks_are_inside():
    product = NEST.phases[0].reductions[0].value
    found = inside(product)
    assert found[0] is product and len(found) == len(set(found)) == 5  # mul, v, b.where, gt, 1.0
    load = product.args[1]
    assert children(load) == (load.mask,) and children(load.mask.args[0]) == ()


def test_expressions_of_a_phase_are_distinct():
    found = list(expressions(NEST.phases[0]))
    assert len(found) == len(set(found)) and {type(e).__name__ for e in found} == {"Op", "Load", "Ref", "Const"}
    assert written(NEST) == {"b", "c"}
