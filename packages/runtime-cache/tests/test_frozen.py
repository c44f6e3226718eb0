"""Tensors in layouts of a library in plans, and the native table of what was made of tensors that stay."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from opmill_runtime_cache import _native
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.executor.reference import ReferenceExecutable
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Call, ListArg, Literal, Plan, Slot, SlotOutput, TensorInput, TensorSpec
from opmill_runtime_cache.plan.text import parse, render
from opmill_runtime_cache.store import Store


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_an_opaque_tensor_is_held_and_given_to_operators(tmp_path: Any) -> None:
    x, w = torch.randn(8, 32), torch.randn(16, 32)
    packed = torch.ops.mkldnn._reorder_linear_weight(w, 8)
    rows = TensorSpec("float32", (8, 32), (32, 1)), TensorSpec("float32", (16, 32), (32, 1)), TensorSpec("float32", (8, 16), (16, 1))
    none = Literal("none"), ListArg(()), Literal("")
    call = Call("mkldnn::_linear_pointwise", (Slot(0), Slot(1), Literal(None), *none), {}, (2,), specs=(rows[2],))
    inputs = TensorInput(0, rows[0], name="x"), TensorInput(1, rows[1], True, "w", True)
    plan = Plan("packed", 3, inputs, (SlotOutput(2),), (call,), exclusive=(0,))
    assert parse(render(plan)) == plan and decode(encode(plan)) == plan
    for run in (bind(plan, [packed], Store(str(tmp_path))), ReferenceExecutable(plan, [packed], [])):
        for _ in range(2):
            [y] = run(x)
            torch.testing.assert_close(y, x @ w.t())


class Calls:
    """Counts the calls that no copy serves."""

    def __init__(self) -> None:
        self.missed = 0

    def __call__(self, *inputs: Any) -> str:
        self.missed += 1
        return "missed"


def test_calls_go_to_what_was_made_of_their_tensors() -> None:
    miss, a, b, x = Calls(), torch.randn(4), torch.randn(4), torch.randn(2)
    frozen = _native.Frozen((0, 2), 3, miss)
    assert frozen(a, x, b) == "missed"
    tokens = [frozen.add((a, b), lambda *rest: ("first", rest), ()), frozen.add((b, a), lambda *rest: ("second", rest), ())]
    for _ in range(3):
        assert frozen(a, x, b) == ("first", (x,))
        assert frozen(b, x, a) == ("second", (x,))
    assert frozen(a, x, a) == "missed"
    assert frozen.tokens == tokens and all(frozen.is_fresh(token, pair) for token, pair in zip(tokens, [(a, b), (b, a)], strict=True))
    assert frozen.remove(tokens[0]) == 3 and frozen.remove(tokens[0]) is None
    assert frozen(a, x, b) == "missed"
    a.add_(1)
    assert frozen(b, x, a) == "missed" and not frozen.is_fresh(tokens[1], (b, a))
    assert miss.missed == 4


def test_what_is_no_tensor_or_of_another_number_is_refused() -> None:
    frozen = _native.Frozen((0,), 2, Calls())
    assert frozen("no tensor", 1) == "missed"
    for call in (lambda: frozen(torch.ones(1)), lambda: frozen(torch.ones(1), 2, k=3), lambda: frozen.add(("no tensor",), print, ())):
        with pytest.raises(TypeError):
            call()
    for positions in ((1, 0), (2,), (-1,), (0, 0)):
        with pytest.raises(ValueError, match="must rise"):
            _native.Frozen(positions, 2, Calls())
    with pytest.raises(ValueError, match="tensors are wanted"):
        frozen.add((), print, ())


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 512, 10_001])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_samples_see_writes_that_nobody_counts(count: int, dtype: torch.dtype) -> None:
    tensor = torch.zeros(count, dtype=dtype)
    frozen = _native.Frozen((0,), 1, Calls())
    token = frozen.add((tensor,), lambda: "found", (tensor.numel() * tensor.element_size(),))
    assert frozen(tensor) == "found"
    tensor.data.fill_(3)
    assert frozen(tensor) == ("found" if count == 0 else "missed")
    assert frozen.is_fresh(token, (tensor,)) is (count == 0)


@pytest.mark.parametrize("count", [1, 7, 64, 1000])
def test_what_is_compared_whole_sees_each_byte(count: int) -> None:
    tensor = torch.zeros(count, dtype=torch.uint8)
    for place in (0, count // 2, count - 1):
        frozen = _native.Frozen((0,), 1, Calls())
        token = frozen.add((tensor,), lambda: "found", (-count,))
        assert frozen(tensor) == "found" and frozen.is_fresh(token, (tensor,))
        tensor.data[place] += 1
        assert frozen(tensor) == "missed" and not frozen.is_fresh(token, (tensor,))


def test_cycles_through_copies_are_collected() -> None:

    class Owner:
        def __init__(self) -> None:
            self.frozen = _native.Frozen((0,), 1, self.miss)
            self.frozen.add((torch.ones(1),), self.miss, (), [self])

        def miss(self, *inputs: Any) -> None: ...

    owner = Owner()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


@pytest.fixture(autouse=True)
def _native_is_ready(tmp_path: Any) -> None:
    """The extension is connected with torch when the first plan is bound."""
    bind(Plan("nothing", 0, (), (), ()), [], Store(str(tmp_path)))
