"""What of a tensor is not as a guard has it, in words."""

import pytest

torch = pytest.importorskip("torch")
from opmill_guards.guard import TensorMatch  # noqa: E402
from opmill_guards.source import Local  # noqa: E402
from opmill_guards.tensor_facts import differences, dispatch_keys, holds  # noqa: E402

X = torch.ones(2, 3)


class Other(torch.Tensor):
    pass


def guard(**more):
    facts = {"type": torch.Tensor, "dtype": torch.float32, "device": X.device, "layout": X.layout, "sizes": (2, 3), "strides": (3, 1)}
    return TensorMatch(Local("x"), **(facts | {"requires_grad": False, "dispatch_keys": dispatch_keys(X)} | more))


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (X, {}),
        (X.double(), {"dtype": (torch.float32, torch.float64)}),
        (torch.ones(2, 4), {"sizes": ((2, 3), (2, 4)), "strides": ((3, 1), (4, 1))}),
        (torch.ones(3, 2).T, {"strides": ((3, 1), (1, 2))}),
        (torch.ones(2), {"sizes": ((2, 3), (2,)), "strides": ((3, 1), (1,))}),
        (X.clone().requires_grad_(), {"requires_grad": (False, True)}),
        (X.clone().as_subclass(Other), {"type": ("Tensor", "Other")}),
    ],
    ids=["same", "type of elements", "sizes", "strides", "rank", "gradient", "class"],
)
def test_each_fact_is_told(tensor, found):
    assert differences(guard(), tensor) == found and holds(guard(), tensor) is not found


def test_another_layout_has_no_strides_to_ask_for():
    assert list(differences(guard(), X.to_sparse())) == ["layout"]


def test_what_is_not_assumed_is_not_looked_at():
    assert holds(guard(sizes=(None, 3), strides=None, requires_grad=None, dispatch_keys=None), torch.ones(7, 3).requires_grad_())
    assert holds(guard(sizes=None, strides=None), torch.ones(7))


def test_inference_mode_is_called_so():
    with torch.inference_mode():
        inside = torch.ones(2, 3)
    assert differences(guard(), inside) == {"made": ("outside of inference mode", "in inference mode")}
    back = guard(dispatch_keys=dispatch_keys(inside))
    assert differences(back, X) == {"made": ("in inference mode", "outside of inference mode")}


def test_other_marks_are_named():
    conjugate = torch.ones(2, 3, dtype=torch.complex64)
    found = differences(guard(dtype=torch.complex64, dispatch_keys=dispatch_keys(conjugate)), conjugate.conj())
    assert list(found) == ["dispatch_keys"] and "Conjugate" in found["dispatch_keys"][1]
