"""Records of primitives: what they say of types is what their meaning does."""

import pytest
import torch

from opmill_graph_ir.loops.cases import cases
from opmill_graph_ir.loops.primitives import PRIMITIVES

TYPES = {
    "numbers": (torch.float32, torch.int64),
    "floats": (torch.float32,),
    "bits": (torch.int64,),
    "bools": (torch.bool,),
    "any": (torch.float32, torch.int64, torch.bool),
}


@pytest.mark.parametrize("name", sorted(n for n, p in PRIMITIVES.items() if p.meaning is not None))
def test_meaning(name):
    """It takes as many operands as the record says, of these types, and gives one of that type."""
    known = PRIMITIVES[name]
    for dtype in TYPES[known.operands]:
        args = [torch.ones(3).to(dtype) for _ in range(known.arity)]
        if name == "where":
            args[0] = args[0].bool()
        out = known.meaning(*args)
        assert out.dtype is {"same": dtype, "bool": torch.bool, "any": torch.int32}[known.result]


def test_what_needs_the_type_of_the_result_has_no_meaning_of_its_own():
    assert {n for n, p in PRIMITIVES.items() if p.meaning is None} == {"cast", "bitcast"}


def test_each_primitive_has_a_case_for_generators():
    """The table that generators are tested with is made of the records."""
    covered = {case.name.rpartition("_")[0] for case in cases()} | {"philox", "coin", "cast"}
    assert PRIMITIVES.keys() <= covered


@pytest.mark.parametrize("name", sorted(n for n, p in PRIMITIVES.items() if p.rounding == "once"))
def test_rounded_once(name):
    """In float32 the result is the float64 result, rounded."""
    known = PRIMITIVES[name]
    args = [torch.rand(200, generator=torch.Generator().manual_seed(k)) + 0.1 for k in range(known.arity)]
    assert torch.equal(known.meaning(*args), known.meaning(*(a.double() for a in args)).float())
