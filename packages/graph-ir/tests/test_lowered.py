"""What a lowered program says of its buffers."""

from dataclasses import replace

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.lowered import BufferInfo, Lowered, TensorOutput

X = BufferInfo("x", "complex64", (index(3), index("s0")), (index("s0"), index(1)), "cpu", "input")


def test_a_complex_number_is_a_pair_along_one_more_dimension():
    cells = X.cells
    assert (cells.dtype, cells.sizes, cells.strides) == ("float32", (*X.sizes, index(2)), (index("s0") * 2, index(2), index(1)))
    real = replace(X, dtype="float64")
    assert real.cells is real


def test_from_outside_a_program_is_its_inputs_and_outputs():
    y, w = replace(X, name="y", role="temporary"), replace(X, name="w", role="held")
    program = Lowered((), {"x": X, "y": y, "w": w}, ("x", "w"), (TensorOutput("y"),), {"c": b"1"}, {"s0": 8}, checks=(("s0 > 3", "no"),))
    seen = program.outside()
    assert seen.buffers == {"x": X, "w": w} and (seen.outputs, seen.constants, seen.checks) == (
        program.outputs,
        {"c": b"1"},
        program.checks,
    )
    assert seen.outside() == seen
