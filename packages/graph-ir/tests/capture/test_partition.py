"""What the forward keeps for the backward, and what the backward computes again."""

from joint_text import joint_of, lines, shown

from opmill_graph_ir.capture.partition import partition


def test_what_a_product_gave_is_kept_and_what_is_cheap_is_computed_again():
    halves = partition(
        joint_of("""
        input x: float32[8, 4]
        input w: float32[4, 4]
        input g: float32[8, 4]
        a: float32[8, 4] = aten::mm(x, w)
        b: float32[8, 4] = aten::sin(a)
        y: float32[8, 4] = aten::mul.Tensor(b, 2)
        c: float32[8, 4] = aten::cos(a)   # backward of sin
        d: float32[8, 4] = aten::mul.Tensor(g, c)   # backward of sin
        e: float32[4, 4] strides [1, 4] = aten::t(w)   # backward of mm
        f: float32[8, 4] = aten::mm(d, e)   # backward of mm
        return y, f""")
    )
    assert shown(halves.forward) == lines("""
        input x: float32[8, 4]
        input w: float32[4, 4]
        a: float32[8, 4] = aten::mm(x, w)
        b: float32[8, 4] = aten::sin(a)
        y: float32[8, 4] = aten::mul.Tensor(b, 2)
        return y, a""")
    assert shown(halves.backward) == lines("""
        input g: float32[8, 4]
        input w: float32[4, 4]
        input a: float32[8, 4]
        c: float32[8, 4] = aten::cos(a)   # backward of sin
        d: float32[8, 4] = aten::mul.Tensor(g, c)   # backward of sin
        e: float32[4, 4] strides [1, 4] = aten::t(w)   # backward of mm
        f: float32[8, 4] = aten::mm(d, e)   # backward of mm
        return f""")
    assert halves.saved == ("w", "a")


def test_an_output_is_kept_once():
    halves = partition(
        joint_of("""
        input x: float32[8]
        input g: float32[8]
        y: float32[8] = aten::exp(x)
        d: float32[8] = aten::mul.Tensor(g, y)   # backward of exp
        return y, d""")
    )
    assert shown(halves.forward).endswith("return y") and halves.saved == ("y",)


def test_fewer_bytes_are_kept_where_either_would_do():
    """Of a mean and what it is the mean of, the smaller one."""
    halves = partition(
        joint_of("""
        input x: float32[64, 64]
        input g: float32[64]
        a: float32[64, 64] = aten::mm(x, x)
        b: float32[64] = aten::sum.dim_IntList(a, [1])
        y: float32[64] = aten::sin(b)
        c: float32[64] = aten::cos(b)   # backward of sin
        d: float32[64] = aten::mul.Tensor(g, c)   # backward of sin
        e: float32[64, 1] = aten::unsqueeze(d, 1)   # backward of sum
        f: float32[64, 64] strides [1, 0] = aten::expand(e, [64, 64])   # backward of sum
        return y, f""")
    )
    assert halves.saved == ("b",)


def test_what_only_the_backward_needs_is_not_in_the_forward():
    halves = partition(
        joint_of("""
        input x: float32[8]
        input g: float32[8]
        y: float32[8] = aten::sin(x)
        c: float32[8] = aten::cos(x)   # backward of sin
        d: float32[8] = aten::mul.Tensor(g, c)   # backward of sin
        return y, d""")
    )
    assert "cos" not in shown(halves.forward) and "cos" in shown(halves.backward) and halves.saved == ("x",)


def test_random_numbers_are_drawn_once():
    halves = partition(
        joint_of("""
        input x: float32[8]
        input g: float32[8]
        r: float32[8] = aten::rand_like(x)
        y: float32[8] = aten::mul.Tensor(x, r)
        d: float32[8] = aten::mul.Tensor(g, r)   # backward of mul
        return y, d""")
    )
    assert shown(halves.forward).endswith("return y, r") and "rand" not in shown(halves.backward)


def test_what_the_backward_reads_of_a_written_input_is_copied_before():
    joint = joint_of("""
        input x: float32[8]
        input g: float32[8]
        y: float32[8] = aten::sin(x)
        c: float32[8] = aten::cos(x)   # backward of sin
        d: float32[8] = aten::mul.Tensor(g, c)   # backward of sin
        return y, d""")
    joint.graph.mutations = {"x": "y"}
    halves = partition(joint)
    assert shown(halves.forward).splitlines()[1:3] == ["x_before: float32[8] = aten::clone(x)", "y: float32[8] = aten::sin(x_before)"]
    assert shown(halves.forward).endswith("return y, x_before") and "aten::cos(x_before)" in shown(halves.backward)


WRITTEN = """
    input x: float32[4]
    input t: float32[4]
    v0: float32[4] = aten::{saved}
    v1: float32[4] = aten::mul.Tensor(x, 2)
    v2: float32[4] = aten::alias(v1)
    v3: float32[4] = aten::mul.Tensor(t, {read})
    write x <- v2
    return v0, v3"""


def test_what_is_left_in_an_input_is_read_there() -> None:
    halves = partition(joint_of(WRITTEN.format(saved="sin(x)", read="v2"), counted={"x": 0}))
    assert halves.saved == ("v1",) and halves.left == {"v1": "x"}
    assert len(halves.forward.outputs) == 1  # no copy of it is returned


def test_what_was_there_before_is_kept() -> None:
    halves = partition(joint_of(WRITTEN.format(saved="sin(x)", read="x"), counted={"x": 1}))
    assert not halves.left and len(halves.forward.outputs) == 2
