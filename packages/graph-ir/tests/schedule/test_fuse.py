"""Which loops come into one nest."""

import textwrap

from opmill_graph_ir.schedule.fuse import fuse
from opmill_graph_ir.schedule.laws import verify_program
from opmill_graph_ir.schedule.text import parse_program


def groups(text: str) -> list[tuple[tuple[str, ...], ...]]:
    """By nest, the axes that its loops share, and what each member writes or calls."""
    program = parse_program(textwrap.dedent(text))
    verify_program(program)
    return [
        (
            tuple(a.name for a in group.axes or ()),
            *(tuple(sorted(m.written())) if hasattr(m, "written") else (m.op,) for m in group.members),
        )
        for group in fuse(program)
    ]


def test_a_softmax_is_one_nest_over_its_rows():
    assert groups("""
        input x: float32[64, 32]
        temporary m: float32[64] free
        temporary s: float32[64] free
        temporary y: float32[64, 32]
        loop i<64 over j<32
          max a: float32 = x[i, j]
          set m[i] = a
        loop k<64 over l<32
          sum b: float32 = exp(sub(x[k, l], m[k]))
          set s[k] = b
        loop n<64 o<32
          set y[n, o] = div(exp(sub(x[n, o], m[n])), s[n])
        return y""") == [(("i",), ("m",), ("s",), ("y",))]


def test_what_reads_other_points_shares_only_the_axes_on_which_it_reads_its_own():
    """``y`` reads the rows of ``t`` from below: they share columns. What calls an operator, and reads what it gave, stands alone."""
    assert groups("""
        input x: float32[64, 32]
        temporary t: float32[64, 32] free
        temporary y: float32[64, 32]
        temporary p: float32[64, 64]
        temporary z: float32[64, 64]
        loop i<64 j<32
          set t[i, j] = exp(x[i, j])
        loop a<64 b<32
          set y[a, b] = t[63 - a, b]
        call p = aten::mm (t, t.view([32, 64], [1, 32]))
        loop k<64 l<64
          set z[k, l] = neg(p[k, l])
        return y, z""") == [(("j",), ("t",), ("y",)), ((), ("aten::mm",)), (("k", "l"), ("z",))]


def test_operators_that_draw_numbers_keep_their_order():
    found = groups("""
        input x: float32[8]
        temporary a: float32[8]
        temporary b: float32[8]
        temporary c: float32[8]
        call a = aten::bernoulli.p (x, 0.5)
        loop i<8
          set c[i] = neg(a[i])
        call b = aten::bernoulli.p (x, 0.25)
        return a, b, c""")
    assert [members for _, *members in found if members[0][0].startswith("aten")] == [[("aten::bernoulli.p",)], [("aten::bernoulli.p",)]]
