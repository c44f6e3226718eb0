"""Producers that are computed where they are read."""

from pass_text import after, lines

from opmill_graph_ir.schedule.inline import inline


def test_a_chain_becomes_one_expression_and_notes_where_it_comes_from():
    program = """
        input x: float32[64, 4]
        temporary a: float32[64, 4] free
        temporary b: float32[64, 4] free
        temporary y: float32[4, 64]
        loop i<64 j<4 of exp   # exp
          set a[i, j] = exp(x[i, j])
        loop k<64 l<4 of neg   # neg
          set b[k, l] = neg(a[k, l])
        loop m<4 n<64 of mul   # mul
          set y[m, n] = mul(b[n, m], float32(2.0))
        return y"""
    assert after(inline, program).endswith(
        lines("""
        loop j<4 i<64 of exp, neg, mul   # exp; neg; mul
          set y[j, i] = mul(neg(exp(x[i, j])), float32(2.0))
        return y""")
    )


def test_what_costs_much_is_not_computed_for_each_row_again():
    program = lines("""
        input x: float32[64]
        temporary a: float32[64] free
        temporary y: float32[512, 64]
        loop i<64
          set a[i] = exp(x[i])
        loop k<512 l<64
          set y[k, l] = a[l]
        return y""")
    assert after(inline, program) == program
    assert "set y[k, l] = neg(x[l])" in after(inline, program.replace("exp(", "neg("))


def test_reads_under_a_mask_compute_under_it():
    program = """
        input x: float32[60]
        temporary a: float32[60] free
        temporary y: float32[64]
        loop i<60
          set a[i] = neg(x[i])
        loop j<64
          set y[j] = a.where(lt(int64.at(j), int64(60)), [j], float32(1.0))
        return y"""
    shown = after(inline, program)
    assert "where(lt(int64.at(j), int64(60)), neg(x.where(lt(int64.at(j), int64(60)), [j], float32(0.0))), float32(1.0))" in shown
