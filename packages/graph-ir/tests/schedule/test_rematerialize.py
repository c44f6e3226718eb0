"""What two phases compute alike is kept in the result that the second one writes."""

from pass_text import lines, nest_after

from opmill_graph_ir.schedule.rematerialize import reuse_between_phases


def reused(text: str) -> str:
    return nest_after(lambda nest, _, fresh_name: reuse_between_phases(nest, fresh_name), text)


def test_the_exponentials_of_a_softmax_are_computed_once():
    kernel = """
        kernel k()
          in x: float32[256]
          out y: float32[256]
        nest i<8
          phase j<32
            sum s: float32 = exp(x[32*i + j])
          phase l<32
            set y[32*i + l] = div(exp(x[32*i + l]), s)"""
    assert reused(kernel) == lines("""
        kernel k()
          in x: float32[256]
          out y: float32[256]
        nest i<8
          phase j<32
            let v0 = exp(x[32*i + j])
            sum s: float32 = v0
            set y[32*i + j] = v0
          phase l<32
            set y[32*i + l] = div(y[32*i + l], s)""")


def test_what_is_cheap_is_computed_twice():
    kernel = lines("""
        kernel k()
          in x: float32[256]
          out y: float32[256]
        nest i<8
          phase j<32
            sum s: float32 = neg(x[32*i + j])
          phase l<32
            set y[32*i + l] = div(neg(x[32*i + l]), s)""")
    assert reused(kernel) == kernel


def test_a_result_that_lies_across_keeps_nothing():
    kernel = lines("""
        kernel k()
          in x: float32[256]
          out y: float32[256]
        nest i<8
          phase j<32
            sum s: float32 = exp(x[i + 8*j])
          phase l<32
            set y[32*i + l] = div(exp(x[i + 8*l]), s)""")
    assert reused(kernel) == kernel
