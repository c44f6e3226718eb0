"""Operators that are asked of fakes with rows of this package: sizes that change are not assumed."""

import pytest
import torch
import torch.nn.functional as F

from changing import differs

aten = torch.ops.aten
ROWS = {
    "all": lambda x: torch._is_all_true(x > 0),
    "any": lambda x: torch._is_any_true(x > 0),
    "log sigmoid": F.logsigmoid,
    "log sigmoid, transposed": lambda x: F.logsigmoid(x.T),
    "with logits": lambda x: F.binary_cross_entropy_with_logits(x, x.round(), reduction="none"),
    "with logits and weights": lambda x: F.binary_cross_entropy_with_logits(x, x.round(), torch.ones(4), pos_weight=torch.ones(4)),
    "normal": lambda x: torch.normal(0.0, 1.0, x.shape),
    "normal, other type": lambda x: torch.normal(0.0, 1.0, x.shape, dtype=torch.float64),
    "normal, filling": lambda x: aten.normal_functional(x.T, 0.0, 1.0),
    "exponential": aten.exponential,
    "log normal": aten.log_normal,
    "cauchy": aten.cauchy,
    "geometric": lambda x: aten.geometric(x, 0.5),
    "random": lambda x: (aten.random(x), aten.random(x, 3), aten.random(x, 3, 9)),
    "bernoulli": lambda x: (aten.bernoulli(x), aten.bernoulli.p(x.T, 0.5), aten.bernoulli.Tensor(x.T, x.T)),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_as_eager_of_any_size(row):
    assert differs(row, lambda size: torch.rand(size, 4)) is None
