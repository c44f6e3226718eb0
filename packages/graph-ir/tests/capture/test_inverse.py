"""A write to a view gives a new outer tensor: for every view that has an inverse, as eager's write does."""

import pytest
import torch

from opmill_graph_ir.capture.graph import Meta, Value
from opmill_graph_ir.capture.inverse import INVERSES, inverted, shares_elements

aten = torch.ops.aten
X = torch.arange(24.0).reshape(4, 6)
C = torch.complex(X, -X)
CASES = [
    (aten.view.default, X, ([2, 12],)),
    (aten.unsqueeze.default, X, (1,)),
    (aten.squeeze.default, X[:, None], ()),
    (aten.squeeze.dim, X[:, None], (1,)),
    (aten.squeeze.dims, X[:, None], ([1],)),
    (aten.alias.default, X, ()),
    (aten.detach.default, X, ()),
    (aten.permute.default, X.reshape(2, 3, 4), ([2, 0, 1],)),
    (aten.permute.default, X.reshape(2, 3, 4), ([-1, 0, 1],)),
    (aten.transpose.int, X, (0, -1)),
    (aten.t.default, X, ()),
    (aten.slice.Tensor, X, (1, 1, 6, 2)),
    (aten.select.int, X, (0, -2)),
    (aten.split.Tensor, X, (4, 1)),
    (aten.split_with_sizes.default, X, ([1, 2, 3], 1)),
    (aten.unbind.int, X, (1,)),
    (aten.as_strided.default, X, ([2, 3], [6, 2], 1)),
    (aten.diagonal.default, X, (1,)),
    (aten.expand.default, X, ([1, 4, 6],)),
    (aten.unfold.default, X, (1, 2, 3)),
    (aten.unfold.default, X, (1, 3, 3)),
    (aten.view_as_real.default, C, ()),
    (aten.view_as_complex.default, X.reshape(4, 3, 2), ()),
    (aten.view.dtype, X, (torch.int32,)),
    (aten._conj.default, C, ()),
    (aten._neg_view.default, X, ()),
    (aten._reshape_alias.default, X, ([2, 12], [12, 1])),
]


def meta_of(t: torch.Tensor) -> Meta:
    return Meta(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()), str(t.device))


def key_of(func: torch._ops.OpOverload) -> str:
    return func.name()


@pytest.mark.parametrize(("func", "base", "rest"), CASES, ids=lambda v: v.name() if isinstance(v, torch._ops.OpOverload) else "")
def test_is_what_a_write_to_the_view_leaves(func, base: torch.Tensor, rest: tuple) -> None:
    eager = base.clone()
    views = func(eager, *rest)
    items = range(len(views)) if isinstance(views, (list, tuple)) else [None]
    for item in items:
        eager = base.clone()
        view = func(eager, *rest)
        view = view if item is None else view[item]
        new = (torch.arange(view.numel()) + 100).reshape(view.shape).to(view.dtype)
        made = INVERSES[key_of(func)](meta_of(base), Value("outer"), Value("new"), rest, {}, item)
        assert made is not None
        known = {"outer": base.clone(), "new": new}

        def run(call, args, kwargs, known=known):
            result = f"v{len(known)}"
            known[result] = call(*(known[a.name] if isinstance(a, Value) else a for a in args), **kwargs)
            return result

        found = known[inverted(made, run)]
        view.copy_(new)
        torch.testing.assert_close(found, eager, rtol=0, atol=0)


def test_every_view_that_has_an_inverse_is_tried() -> None:
    same = {"aten::_unsafe_view", "aten::lift_fresh", "aten::resolve_conj"}  # rows shared with views above
    assert {key_of(func) for func, _, _ in CASES} == set(INVERSES) - same


@pytest.mark.parametrize(
    ("func", "rest"),
    [(aten.expand.default, ([3, 4, 6],)), (aten.unfold.default, (1, 3, 1)), (aten.as_strided.default, ([3, 3], [1, 1], 0))],
    ids=["expand", "unfold", "as_strided"],
)
def test_none_where_an_element_is_many_of_the_view(func, rest: tuple) -> None:
    assert INVERSES[key_of(func)](meta_of(X), Value("outer"), Value("new"), rest, {}, None) is None


@pytest.mark.parametrize(
    ("sizes", "strides", "shares"),
    [
        ((4, 6), (6, 1), False),
        ((4, 6), (1, 4), False),
        ((4, 6), (0, 1), True),
        ((4, 6), (5, 1), True),
        ((1, 6), (0, 1), False),
        ((0, 6), (0, 1), False),
    ],
)
def test_positions_that_may_be_one_element(sizes, strides, shares: bool) -> None:
    assert shares_elements(sizes, strides) is shares
