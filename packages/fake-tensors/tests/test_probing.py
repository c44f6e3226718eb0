"""Which element types kernels take: what eager raises, whatever was asked before."""

import itertools
import re

import pytest
import torch

from opmill_fake_tensors.probing import refusal

aten = torch.ops.aten
CALLS = {
    "median": (aten.median.dim, (1,)),
    "kthvalue": (aten.kthvalue.default, (1, 1)),
    "topk": (aten.topk.default, (1, 1)),
    "aminmax": (aten.aminmax.default, ()),
    "lerp": (aten.lerp.Scalar, ("x", 0.5)),
    "_cdist_forward": (aten._cdist_forward.default, ("x", 1.0, None)),
    "add": (aten.add.Tensor, ("x",)),
}
TYPES = (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64)


def eager(func, x, rest):
    try:
        func(x, *(x if r == "x" else r for r in rest))
    except Exception as e:
        return type(e), str(e)
    return None


@pytest.mark.parametrize("shapes", itertools.permutations([(3, 0), (0, 3), (2, 3)]), ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_empty_tensors_say_nothing_of_others(name, shapes, monkeypatch):
    """Kernels return early for these, or refuse something else first; what was found for one shape is not taken for another."""
    monkeypatch.setattr("opmill_fake_tensors.probing._found", {})
    func, rest = CALLS[name]
    for shape, dtype in itertools.product(shapes, TYPES):
        x = torch.zeros(shape, dtype=dtype)
        meta = x.to("meta")
        found = refusal(func, (meta, *(meta if r == "x" else r for r in rest)), {})
        wanted = eager(func, x, rest)
        if found is not None:
            assert (type(found), str(found)) == wanted
        elif wanted is not None:
            assert re.search("non-zero size|out of range|no identity|numel", wanted[1])


def test_what_is_wrong_otherwise_says_nothing_of_types(monkeypatch):
    """A dimension that is not there is refused before the type is looked at."""
    monkeypatch.setattr("opmill_fake_tensors.probing._found", {})
    x = torch.empty(2, 3, device="meta", dtype=torch.bool)
    assert refusal(aten.median.dim, (x, 5), {}) is None
    assert "Bool" in str(refusal(aten.median.dim, (x, 1), {}))


def test_what_is_large_is_tried_small():
    big = torch.empty(1 << 20, 1 << 20, device="meta", dtype=torch.bool)
    assert "Bool" in str(refusal(aten.median.dim, (big, 1), {}))
    assert refusal(aten.add.Tensor, (big, big), {}) is None
    assert refusal(aten.repeat.default, (torch.empty(3, device="meta"), [1 << 40]), {}) is None


def test_what_is_written_has_a_size_of_its_own():
    x = torch.empty(2, 3, device="meta", dtype=torch.bool)
    assert refusal(aten.add.out, (x, x), {"out": x}) is None and refusal(aten.ones.default, ([3],), {}) is None


SEEN: list[list[int]] = []
library = torch.library.Library("probed", "DEF")
library.define("solve(Tensor factors, Tensor pivots, Tensor right) -> Tensor")


def solve(factors, pivots, right):
    SEEN.append(pivots.tolist())
    return right.clone()


library.impl("solve", solve, "CPU")


def test_places_are_tried_where_they_lead_into_memory():
    """Kernels of some versions follow pivots without a look: zeros, which are none, led beyond memory."""
    SEEN.clear()
    given = [torch.empty(4, 4, device="meta"), torch.empty(4, dtype=torch.int32, device="meta"), torch.empty(4, 2, device="meta")]
    assert refusal(torch.ops.probed.solve.default, given, {}) is None
    assert refusal(torch.ops.probed.solve.default, given[:1], {"pivots": given[1], "right": given[2].double()}) is None
    assert SEEN == [[1] * 4] * 2
