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
    "incomplete gammas": lambda x: (torch.igamma(x, x), torch.igammac(x, x.double()), torch.special.gammainc(x, x[:1])),
    "mantissas and exponents": lambda x: (torch.frexp(x), torch.frexp(x.T), torch.frexp(x[:, ::2])),
    "polynomials": lambda x: (torch.special.hermite_polynomial_h(x, 2), torch.special.legendre_polynomial_p(x.T, x.T.long())),
    "bessel functions": lambda x: (torch.special.modified_bessel_i0(x), torch.special.spherical_bessel_j0(x.long())),
    "means of complex numbers": lambda x: (torch.complex(x, x).mean(0), torch.complex(x, x).mean()),
    "put": lambda x: (x.put(torch.tensor([1, 2]), torch.ones(2)), x.T.put(x.argmax(1), x[:, 0], accumulate=True)),
    "memory of another": lambda x: torch.ones(2, int(aten._has_same_storage_numel(x, x * 2))),
    "memory of another type": lambda x: torch.ones(2, int(aten._has_same_storage_numel(x[1:], x.double()))),
    "put in place": lambda x: x.clone().put_(torch.tensor([1, 2]), torch.ones(2)),
    "bilinear": lambda x: (F.bilinear(x, x, torch.ones(2, 4, 4)), F.bilinear(x[None], x[None], torch.ones(2, 4, 4), torch.ones(2))),
    "bernoulli": lambda x: (aten.bernoulli(x), aten.bernoulli.p(x.T, 0.5), aten.bernoulli.Tensor(x.T, x.T)),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_as_eager_of_any_size(row):
    assert differs(row, lambda size: torch.rand(size, 4)) is None
