"""Plans as nodes of autograd: what native code is told is checked before it is used."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_runtime_cache import _native
from opmill_runtime_cache.executor.native import _load


@pytest.fixture(autouse=True)
def _loaded() -> None:
    assert _load() is None


class Direct(torch.autograd.Function):
    forward = staticmethod(_native.forward)


Direct._backward_cls.apply = _native.backward  # type: ignore[attr-defined]


class Owner:
    """The backward of ``exp(x) * w`` for one that saves its output and ``w``."""

    def __init__(self) -> None:
        self.backward, self.left = self, 0

    def take(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        gradient, output, w = given
        return [gradient * output, gradient * output / w]

    def slowly(self, context: Any, noted: Any, *gradients: Any) -> tuple[Any, ...]:
        self.left += 1
        assert noted.count == 2 and len(noted.inputs) == 1 and noted.drawn is None
        [gradient], (output, w) = gradients, context.saved_tensors
        return None, gradient * output, gradient * output / w


W = torch.full((2, 3), 2.0, requires_grad=True)


def rules(**changes: Any) -> dict[str, Any]:
    owner = Owner()
    return {
        "apply": super(torch.autograd.Function, Direct).apply, "transformed": lambda: False, "keeps": None, "drawn": None,
        "run": lambda x: [torch.exp(x) * W, "more"], "owner": owner, "held": (W,), "otherwise": lambda *inputs: ("otherwise", *inputs),
        "relaid": owner.take, "refused": ArithmeticError, "tensor": torch.Tensor, "inputs": 1, "outputs": 2, "gradients": 2, "owned": b"\0",
        "saved": ((2, 0), (1, 0)), "connected": (0, 1), "tangents": ((0, 11, (3, 1)),), **changes,
    }  # fmt: skip


def x() -> torch.Tensor:
    return torch.rand(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_gradients_are_those_of_the_plan() -> None:
    given = rules()
    call, at = _native.Differentiated(**given), x()
    out, more = call(at)
    assert more == "more" and out.requires_grad and out.grad_fn.saved_tensors[0].equal(out)
    found = torch.autograd.grad(out, [at, W], torch.ones(2, 3), retain_graph=True)
    want = torch.autograd.grad(torch.exp(at) * W, [at, W], torch.ones(2, 3))
    assert all(map(torch.allclose, found, want)) and given["owner"].left == 0
    again = torch.autograd.grad(out, [at, W], torch.ones(3, 2).t())
    assert all(map(torch.allclose, again, want)) and given["owner"].left == 1


def test_what_is_not_plain_goes_otherwise() -> None:
    at = x()
    assert _native.Differentiated(**rules(transformed=lambda: True))(at) == ("otherwise", at)
    assert _native.Differentiated(**rules())(at, 3) == ("otherwise", at, 3)
    assert _native.Differentiated(**rules())("no tensor") == ("otherwise", "no tensor")
    sparse = at.detach().to_sparse()
    assert _native.Differentiated(**rules())(sparse)[1] is sparse


@pytest.mark.parametrize(
    "wrong",
    [
        {"saved": ((0, 1),)}, {"saved": ((3, 0),)}, {"saved": ((2, -1),)}, {"connected": (2,)}, {"connected": (-1,)}, {"owned": b""},
        {"tangents": ((2, 11, ()),)}, {"tangents": ((0, 99, ()),)}, {"inputs": -1},
    ],
)  # fmt: skip
def test_rules_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not fit together"):
        _native.Differentiated(**rules(**wrong))


def test_exceptions_come_through() -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("here")

    for wrong in ({"run": fails}, {"transformed": fails}, {"drawn": fails}, {"run": lambda x: ()}, {"run": lambda x: 3}):
        with pytest.raises((KeyError, RuntimeError, TypeError)):
            _native.Differentiated(**rules(**wrong))(x())
    with pytest.raises(IndexError):
        _native.Differentiated(**rules(saved=((2, 5),)))(x())
    for wrong in ({"keeps": fails}, {"owner": 7}):
        out = _native.Differentiated(**rules(**wrong))(x())[0]
        with pytest.raises((KeyError, AttributeError)):
            out.backward(torch.ones(2, 3))


def test_a_call_runs_only_where_it_was_made() -> None:
    for arguments in ((), (1, 2), (None, None, None)):
        with pytest.raises(TypeError):
            _native.forward(*arguments)
    out = _native.Differentiated(**rules())(x())[0]
    with pytest.raises(RuntimeError, match="runs once"):
        _native.forward(out.grad_fn, out.grad_fn.noted)
    with pytest.raises(TypeError, match="cannot create"):
        _native.Noted()
    for node in (7, torch.exp(x()).grad_fn):
        with pytest.raises(AttributeError):
            _native.backward.__func__(node)
