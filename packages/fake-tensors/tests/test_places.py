"""What operators are run on to see what they give and take leads into memory: kernels of some versions follow it without a look."""

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.places import _PLACES, lead_into_memory

aten = torch.ops.aten


def test_each_argument_of_pivots_is_known():
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]
    names = {a.name for schema in schemas for a in schema.arguments if "pivots" in a.name and str(a.type) == "Tensor"}
    assert names == _PLACES


@pytest.mark.parametrize("named", [False, True])
def test_ones_are_places(named):
    factors, pivots, right = torch.zeros(3, 3), torch.zeros(3, dtype=torch.int32), torch.zeros(3, 1)
    lead_into_memory(
        aten.linalg_ldl_solve.default, [factors] if named else [factors, pivots, right], {"pivots": pivots, "B": right} if named else {}
    )
    assert pivots.tolist() == [1, 1, 1] and not factors.any() and not right.any()


@pytest.mark.parametrize(
    "solve", [torch.linalg.ldl_solve, torch.linalg.lu_solve, lambda a, p, b: torch.lu_unpack(a, p)], ids=["ldl", "lu", "unpack"]
)
def test_systems_on_fakes_leave_memory_whole(solve):
    """In sizes enough for the allocator to see it; a fault ends the process."""
    for n in range(1, 12):
        given = torch.eye(n), torch.arange(1, n + 1, dtype=torch.int32), torch.ones(n, n)
        want = solve(*given)
        with FakeContext() as context:
            got = solve(*map(context.from_tensor, given))
        for one, other in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, want)], strict=True):
            assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
