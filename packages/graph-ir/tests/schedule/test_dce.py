"""Statements whose results nobody reads."""

from pass_text import after, lines

from opmill_graph_ir.schedule.dce import remove_dead


def test_what_is_not_read_goes_and_what_draws_numbers_stays():
    """Of a loop with two results the one that nobody reads goes."""
    buffers = """
input x: float32[8]
temporary a: float32[8] free
temporary b: float32[] free
temporary c: float32[] free
temporary d: float32[8]
temporary y: float32[8]"""
    program = f"""{buffers}
loop i<8
  set a[i] = exp(x[i])
loop over j<8
  welford m, s: float32 = x[j]
  set b[()] = m
  set c[()] = s
call d = aten::bernoulli.p (x, 0.5)
loop k<8
  set y[k] = mul(x[k], b[()])
return y"""
    assert after(remove_dead, program) == lines(f"""{buffers}
loop over j<8
  welford m, s: float32 = x[j]
  set b[()] = m
call d = aten::bernoulli.p (x, 0.5)
loop k<8
  set y[k] = mul(x[k], b[()])
return y""")


def test_a_chain_that_ends_nowhere_goes_whole_and_writes_to_inputs_stay():
    program = """
        input x: float32[8]
        temporary a: float32[8] free
        temporary b: float32[8] free
        loop i<8
          set a[i] = exp(x[i])
        loop j<8
          set b[j] = exp(a[j])
        loop k<8
          set x[k] = neg(x[k])
        return """
    assert after(remove_dead, program).endswith("loop k<8\n  set x[k] = neg(x[k])\nreturn")
