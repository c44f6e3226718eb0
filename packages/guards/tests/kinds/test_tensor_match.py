"""The facts of a tensor."""

import pytest

torch = pytest.importorskip("torch")
from opmill_guards.kinds.tensor_match import of  # noqa: E402
from opmill_guards.source import Local  # noqa: E402

X = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (torch.zeros(4, 5), "shape"),
        (torch.zeros(6, 4).t(), "stride"),
        (torch.zeros(4, 6, dtype=torch.float64), "dtype"),
        (torch.zeros(4, 6, device="meta"), "device"),
        (torch.zeros(4, 6, requires_grad=True), "requires_grad"),
        (torch.nn.Parameter(torch.zeros(4, 6)), "type"),
        (torch.zeros(4, 6).to_sparse(), "layout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fact_counts(says, other, told):
    guard = of(Local("x"), X)
    assert says(guard, x=X + 1) == ""
    assert says(guard, x=other) != ""
    assert says(of(Local("x"), other), x=X) != ""


def test_what_is_no_tensor(says):
    assert says(of(Local("x"), X), x=1) != ""
