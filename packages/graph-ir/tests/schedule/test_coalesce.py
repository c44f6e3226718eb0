"""Axes that lie one behind the other in all memory are one."""

from pass_text import lines, nest_after

from opmill_graph_ir.schedule.coalesce import shape_nest


def coalesced(text: str) -> str:
    return nest_after(lambda nest, extents, _: shape_nest(nest, extents), text)


def test_rows_that_follow_each_other_are_one_axis():
    kernel = """
        kernel k()
          in x: float32[128]
          out y: float32[128]
        nest i<4 j<8 l<4
          phase
            set y[32*i + 4*j + l] = neg(x[32*i + 4*j + l])"""
    assert coalesced(kernel) == lines("""
        kernel k()
          in x: float32[128]
          out y: float32[128]
        nest l<128
          phase
            set y[l] = neg(x[l])""")


def test_a_transposed_operand_keeps_them_apart():
    kernel = lines("""
        kernel k()
          in x: float32[128]
          out y: float32[128]
        nest i<4 j<8 l<4
          phase
            set y[32*i + 4*j + l] = neg(x[32*i + j + 8*l])""")
    assert coalesced(kernel) == kernel


def test_rows_that_data_name_are_gone_through_one_after_the_other():
    kernel = lines("""
        kernel k()
          in n: int64[100]
          in x: float32[800]
          inout y: float32[80]
        nest j<8 i<100
          phase
            let v = n[i]
            add y[j + 8*v] = x[8*i + j]""")
    assert coalesced(kernel) == kernel.replace("nest j<8 i<100", "nest i<100 j<8")


def test_axes_that_data_alone_place_stay_in_order():
    kernel = lines("""
        kernel k()
          in n: int64[800]
          in x: float32[800]
          inout y: float32[80]
        nest j<8 i<100
          phase
            let v = n[i + 100*j]
            set y[v] = x[8*i + j]""")
    assert coalesced(kernel) == kernel
