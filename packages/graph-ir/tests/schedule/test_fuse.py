"""Which loops come into one nest."""

import textwrap

import pytest

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


STEP = """
    input p: float32[64, 512]
    input m: float32[64, 512]
    input v: float32[64, 512]
    input g: float32[64, 512]
    input f: float32[1]
    temporary a: float32[64, 512] free
    temporary b: float32[64, 512] free
    loop i<64 j<512
      set a[i, j] = add(m[i, j], mul(g[i, j], f[0]))
    loop k<64 l<512
      set b[k, l] = add(v[k, l], mul(g[k, l], g[k, l]))
    loop q<64 r<512
      set m[q, r] = a[q, r]
    loop s<64 t<512
      set v[s, t] = b[s, t]
    loop x<64 y<512
      set p[x, y] = sub(p[x, y], div(a[x, y], sqrt(b[x, y])))
    return f"""


def test_the_state_of_an_optimizer_is_written_where_it_is_computed():
    """Both moments and the parameter in one nest: each is read and written once."""
    [nest] = groups(STEP)
    assert sorted(nest[1:]) == [("a",), ("b",), ("m",), ("p",), ("v",)]


@pytest.mark.parametrize("reader", ["a", "b"])
def test_what_is_read_at_other_points_is_written_later(reader):
    """Rows of ``m`` from below are read, and must be there still: by what it is given, or by the other moment."""
    old = {"a": "add(m[i, j], mul(g[i, j]", "b": "add(v[k, l], mul(g[k, l]"}[reader]
    new = {"a": "add(m[63 - i, j], mul(g[i, j]", "b": "add(m[63 - k, l], mul(g[k, l]"}[reader]
    found = groups(STEP.replace(old, new))
    [reads] = [k for k, nest in enumerate(found) if (reader,) in nest[1:]]
    [writes] = [k for k, nest in enumerate(found) if ("m",) in nest[1:]]
    assert reads < writes


def test_what_an_operator_may_show_is_written_after_all_that_it_shows():
    """``w`` may be ``m`` itself, and the parameter is computed of it and of what ``m`` becomes."""
    text = STEP.replace("loop i<64 j<512", "call w = aten::contiguous (m)\n    loop i<64 j<512", 1)
    text = text.replace("temporary a:", "temporary w: float32[64, 512]\n    temporary a:", 1).replace(
        "sub(p[x, y], div(a", "sub(w[x, y], div(a"
    )
    found = groups(text)
    [p] = [k for k, nest in enumerate(found) if ("p",) in nest[1:]]
    [m] = [k for k, nest in enumerate(found) if ("m",) in nest[1:]]
    assert len(found[m]) == 2 and found[m][1] == ("m",) and (p != m)


def test_nothing_is_written_before_all_is_checked():
    """An error leaves inputs as they were: the nest that may raise writes none."""
    text = STEP.replace(
        "set b[k, l] = add(v[k, l],", "check lt(g[k, l], float32(1.0)), 'IndexError', 'too large'\n      set b[k, l] = add(v[k, l],"
    )
    found = groups(text)
    [b] = [k for k, nest in enumerate(found) if ("b",) in nest[1:]]
    assert not {("m",), ("v",), ("p",)} & set(found[b][1:])
    assert all(b < k for k, nest in enumerate(found) if {("m",), ("v",), ("p",)} & set(nest[1:]))


def test_a_nest_with_sums_writes_back_nothing():
    """It goes through its points several times: ``t`` sums what ``p`` held before, after ``a`` is known."""
    found = groups("""
        input p: float32[1]
        input x: float32[64]
        temporary s: float32[1] free
        temporary a: float32[1] free
        temporary t: float32[1]
        loop over i<64
          sum b: float32 = x[i]
          set s[0] = b
        loop
          set a[0] = sub(p[0], s[0])
        loop over j<64
          sum c: float32 = mul(sub(x[j], p[0]), s[0])
          set t[0] = c
        loop
          set p[0] = a[0]
        return t""")
    [p] = [nest for nest in found if ("p",) in nest[1:]]
    assert p[1:] == (("p",),)


PADDED = """
    input x: float32[4, 64, 16, 16] strides [16384, 1, 1024, 64]{0}
    temporary t: float32[4, 64, 16, 16] strides [16384, 1, 1024, 64]{0} free
    temporary y: float32[4, 64, 17, 17] strides [18496, 1, 1088, 64]{0}
    loop n<4 c<64 h<16 w<16
      set t[n, c, h, w] = exp(x[n, c, h, w])
    loop b<4 d<64 i<17 j<17
      set y[b, d, i, j] = t.where(logical_and(lt(int64.at(i), int64(16)), lt(int64.at(j), int64(16))), [b, d, i, j], float32(0.0))
    return y"""
SCALED = """
    input x: float32[4, 64, 16, 16] strides {1}{0}
    input g: float32[4, 64]{0}
    temporary t: float32[4, 64]{0} free
    temporary y: float32[4, 64, 16, 16] strides {1}{0}
    loop n<4 c<64
      set t[n, c] = exp(g[n, c])
    loop b<4 d<64 i<16 j<16
      set y[b, d, i, j] = mul(x[b, d, i, j], t[b, d])
    return y"""
LAST, ROWS = "[16384, 1, 1024, 64]", "[16384, 256, 16, 1]"


@pytest.mark.parametrize(
    ("text", "strides", "apart"), [(PADDED, LAST, True), (SCALED, LAST, True), (SCALED, ROWS, False)], ids=["padded", "scaled", "in rows"]
)
def test_a_grid_keeps_its_points_where_nothing_is_summed(text: str, strides: str, apart: bool) -> None:
    """On a processor a program's rows of one image and channel stay together; a grid of programs would walk along images."""
    on_grid, on_processor = (groups(text.format(device, strides)) for device in (" on cuda:0", ""))
    assert len(on_processor) == 1
    assert len(on_grid) == (2 if apart else 1)


def _recurrence(steps: int, device: str) -> str:
    """Sums of a state that is computed step by step, each from inputs of its own."""
    lines = [f"input x{k}: float32[64, 64, 16]{device}" for k in range(3 * steps)]
    lines += [f"temporary h{k}: float32[64, 64, 16]{device} free" for k in range(steps)]
    lines += [f"temporary y{k}: float32[64, 64]{device}" for k in range(steps)]
    for k in range(steps):
        before = f"h{k - 1}[i, j, l]" if k else "float32(0.0)"
        lines += ["loop i<64 j<64 l<16", f"  set h{k}[i, j, l] = add(mul({before}, x{3 * k}[i, j, l]), x{3 * k + 1}[i, j, l])"]
        lines += ["loop i<64 j<64 over l<16", f"  sum r{k}: float32 = mul(h{k}[i, j, l], x{3 * k + 2}[i, j, l])"]
        lines += [f"  set y{k}[i, j] = r{k}"]
    return "\n".join([*lines, "return " + ", ".join(f"y{k}" for k in range(steps))])


@pytest.mark.parametrize(("steps", "device", "nests"), [(20, " on cuda:0", 1), (64, " on cuda:0", 6), (64, "", 1)])
def test_a_nest_of_a_grid_stays_short(steps: int, device: str, nests: int) -> None:
    """Compilers of such kernels relate each place that is read to all others: minutes for hundreds."""
    assert len(groups(_recurrence(steps, device))) <= nests
