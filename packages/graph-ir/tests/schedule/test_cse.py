"""Loops that compute what an earlier one did."""

from pass_text import after, lines

from opmill_graph_ir.schedule.cse import remove_common

BUFFERS = """
input x: float32[8, 4]
temporary a: float32[8, 4] free
temporary b: float32[8, 4] free
temporary y: float32[8, 4]"""


def test_the_first_of_equal_loops_is_kept_whatever_its_axes_are_called():
    program = f"""{BUFFERS}
loop i<8 j<4 of exp
  set a[i, j] = exp(x[i, j])
loop k<8 l<4 of exp_1
  set b[k, l] = exp(x[k, l])
loop m<8 n<4 of add
  set y[m, n] = add(a[m, n], b[m, n])
return y"""
    assert after(remove_common, program) == lines(f"""{BUFFERS}
loop i<8 j<4 of exp
  set a[i, j] = exp(x[i, j])
loop m<8 n<4 of add
  set y[m, n] = add(a[m, n], a[m, n])
return y""")


def test_an_output_takes_the_place_of_the_first():
    program = f"""{BUFFERS}
loop i<8 j<4
  set a[i, j] = exp(x[i, j])
loop k<8 l<4
  set y[k, l] = exp(x[k, l])
loop m<8 n<4
  set b[m, n] = neg(a[m, n])
return b, y"""
    assert after(remove_common, program).endswith(
        lines("""
        loop i<8 j<4
          set y[i, j] = exp(x[i, j])
        loop m<8 n<4
          set b[m, n] = neg(y[m, n])
        return b, y""")
    )


def test_what_reads_an_input_that_is_written_stays():
    program = lines(f"""{BUFFERS}
loop i<8 j<4
  set a[i, j] = exp(x[i, j])
loop k<8 l<4
  set y[k, l] = exp(x[k, l])
loop m<8 n<4
  set x[m, n] = a[m, n]
return y""")
    assert after(remove_common, program) == program


def test_another_layout_or_a_check_keeps_a_loop():
    program = lines("""
        input x: float32[8, 4]
        temporary a: float32[8, 4] strides [1, 8] free
        temporary b: float32[8, 4] free
        temporary c: float32[8, 4] free
        temporary d: float32[8, 4] free
        loop i<8 j<4
          set a[i, j] = exp(x[i, j])
        loop k<8 l<4
          set b[k, l] = exp(x[k, l])
        loop m<8 n<4
          check gt(x[m, n], float32(0.0)), 'RuntimeError', 'no'
          set c[m, n] = neg(x[m, n])
        loop o<8 p<4
          check gt(x[o, p], float32(0.0)), 'RuntimeError', 'no'
          set d[o, p] = neg(x[o, p])
        return a, b, c, d""")
    assert after(remove_common, program) == program
