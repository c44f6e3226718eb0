"""The backward for the case that a large result besides the loss has no gradient."""

from joint_text import joint_of, lines, shown

from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.capture.silent import silent_tangents, without

LOGITS = """
    input x: float32[{rows}, 4096] {device}
    input h: float32[{rows}, 4096] {device}
    input l: float32[] {device}
    a: float32[{rows}, 4096] {device} = aten::sin(x)
    y: float32[] {device} = aten::sum(a)
    b: float32[{rows}, 4096] {device} strides [0, 0] = aten::expand(l, [{rows}, 4096])   # backward of sum
    c: float32[{rows}, 4096] {device} = aten::add.Tensor(b, h)   # backward of sum
    d: float32[{rows}, 4096] {device} = aten::cos(x)   # backward of sin
    e: float32[{rows}, 4096] {device} = aten::mul.Tensor(c, d)   # backward of sin
    return a, y, e"""


def tangents_of(rows: int, device: str) -> tuple[int, ...]:
    joint = joint_of(LOGITS.format(rows=rows, device=device), outputs=2, tangents=2)
    return silent_tangents(joint, partition(joint))


def test_large_results_on_gpus_beside_a_loss():
    assert tangents_of(4096, "on cuda:0") == (0,)
    assert tangents_of(8, "on cuda:0") == () and tangents_of(4096, "") == ()


def test_zeros_stand_for_the_gradient_that_does_not_come():
    joint = joint_of(LOGITS.format(rows=4096, device="on cuda:0"), outputs=2, tangents=2)
    halves = partition(joint)
    before, after = shown(halves.backward), shown(without(joint, halves, (0,)))
    assert "input h" in before and "input h" not in after
    zeros = "h: float32[4096, 4096] on cuda:0 = aten::full([4096, 4096], 0, dtype=torch.float32, device=device('cuda:0'))   # backward"
    assert after.splitlines()[2] == lines(zeros)
    assert after.splitlines()[3:] == before.splitlines()[3:]
