"""Scans that are read from their end."""

from pass_text import after, lines

from opmill_graph_ir.schedule.backward_scans import turn_scans


def test_a_scan_read_from_its_end_runs_backward():
    program = """
        input g: float32[8]
        temporary s: float32[8] free
        temporary y: float32[8]
        loop over i<8
          scan.sum a: float32 = g[7 - i]
          set s[i] = a
        loop j<8
          set y[j] = mul(s[7 - j], float32(2.0))
        return y"""
    assert after(turn_scans, program).endswith(
        lines("""
        loop over i<8
          scan.back.sum a: float32 = g[i]
          set s[i] = a
        loop j<8
          set y[j] = mul(s[j], float32(2.0))
        return y""")
    )


def test_a_scan_that_is_also_read_from_its_beginning_stays():
    program = lines("""
        input g: float32[8]
        temporary s: float32[8] free
        temporary y: float32[8]
        loop over i<8
          scan.sum a: float32 = g[i]
          set s[i] = a
        loop j<8
          set y[j] = mul(s[7 + -1*j], s[j])
        return y""")
    assert after(turn_scans, program) == program
