"""Every primitive has a row here, or a reason why it has none."""

from opmill_graph_ir.loops.primitives import PRIMITIVES
from opmill_kernel_gen_triton.emit.primitives import CONVERSIONS, REFUSED, ROWS


def test_each_primitive_is_written_or_refused():
    tables = [set(ROWS), set(REFUSED), set(CONVERSIONS)]
    assert set().union(*tables) == set(PRIMITIVES)
    assert sum(map(len, tables)) == len(PRIMITIVES), "a primitive in two tables"


def test_rows_are_for_the_types_that_a_primitive_is_of():
    """A row has a text for each kind of operand that the record names, so that none is refused by being forgotten."""
    wanted = {"numbers": {"float", "int"}, "floats": {"float"}, "bools": {"bool"}, "bits": {"int"}, "any": {"float", "int", "bool"}}
    for name, row in ROWS.items():
        texts = {kind for kind in ("float", "int", "bool") if row.text(kind) is not None}
        assert wanted[PRIMITIVES[name].operands] <= texts, name
