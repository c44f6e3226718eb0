"""Numbers and arrays of NumPy's that come with each call: what changes is an input of the graph; tensors take them as eager does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from alike import near, outcome, same

from opmill_bytecode_frontend import capture

KINDS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64)
USES = {
    "product": lambda x, n: x * n, "reflected": lambda x, n: n - x, "of a sum": lambda x, n: x.sum() * n, "quotient": lambda x, n: x / n,
    "compared": lambda x, n: (x < n, n >= x), "function": lambda x, n: torch.mul(x, n), "method": lambda x, n: x.add(n),
    "in place": lambda x, n: x.clone().mul_(n), "powers": lambda x, n: x**n, "factor": lambda x, n: torch.add(x, x, alpha=n),
    "filled": lambda x, n: torch.full((2,), n), "clamped": lambda x, n: x.clamp(max=n), "made": lambda x, n: (torch.tensor(n), torch.tensor([n, 1]), torch.tensor([1.5, n]), torch.as_tensor([[n]]), torch.Tensor([n]), x + 1),
    "read": lambda x, n: torch.tensor([n, x.sum().item()]), "sizes": lambda x, n: (torch.arange(n), torch.zeros(n), x.sum(dim=n)),
    "assigned": lambda x, n: assigned(x.clone(), n), "index": lambda x, n: x[n], "slice": lambda x, n: x[:n], "given": lambda x, n: (x, n),
    "python": lambda x, n: (x * float(n), int(n)), "branch": lambda x, n: x if n > 1 else x * 2, "kept": lambda x, n: {"n": n, "x": x + 1},
    "times": lambda x, n: [x * k for k in range(int(n))], "of numpy": lambda x, n: (x + 1, n * 2, np.sqrt(n)), "told": lambda x, n: f"{n}",
}  # fmt: skip


def assigned(x: torch.Tensor, n: Any) -> torch.Tensor:
    x[1:] = n
    return x


def told(found: Any) -> Any:
    """Results with numbers of NumPy's as what they are."""
    if isinstance(found, np.generic):
        return type(found).__name__, found.item()
    return type(found)(map(told, found)) if isinstance(found, (tuple, list)) else found


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_numbers(use: str) -> None:
    for kind in KINDS:
        compiled = capture(USES[use], "eager")
        for dtype in DTYPES:
            for value in (0, 1, 2, 3, 1):
                x, n = torch.arange(1, 5).to(dtype), kind(value)
                assert same(told(outcome(compiled, x, n)), told(outcome(USES[use], x, n)), near()), (kind, dtype, value)


def test_a_number_that_changes_is_an_input() -> None:
    for kind, most in ((np.float64, 2), (np.float32, 2), (np.int64, 4)):
        translations: list[object] = []
        compiled = capture(lambda x, n: x * n + n, "eager", on_translation=translations.append)
        for k in range(12):
            assert torch.equal(compiled(torch.ones(2), kind(k)), torch.ones(2) * k + k)
        assert len(translations) == most


def test_which_number_it_is() -> None:
    def asks(x: torch.Tensor, a: Any, b: Any) -> Any:
        return x + 1, a is b, a == b, [a] == [b], a in (b,), a

    for kind in (np.float64, np.float32, np.int64):
        compiled, one = capture(asks, "eager"), kind(2)
        for a, b in ((one, one), (one, kind(2)), (kind(2), kind(2)), (kind(3), one), (kind("nan") if kind is not np.int64 else one, one)):
            got, want = compiled(torch.ones(1), a, b), asks(torch.ones(1), a, b)
            assert got[1:5] == want[1:5] and got[5] is want[5] is a


def test_signs_of_zeros_and_what_is_no_number() -> None:
    compiled = capture(lambda x, n: x / n, "eager")
    for value in (0.0, -0.0, float("nan"), 0.0, float("inf"), float("nan")):
        x, n = torch.ones(2), np.float32(value)
        assert same(compiled(x, n), x / n)


INDEXED = {
    "rows": lambda x, i: x[i], "columns": lambda x, i: x[:, i], "beside a number": lambda x, i: x[1, i], "written": lambda x, i: written(x.clone(), i),
    "twice": lambda x, i: x[i[0], i], "ellipsis": lambda x, i: x[..., i], "new": lambda x, i: x[None, i], "of a slice": lambda x, i: x[1:][i],
    "not": lambda x, i: x[~i], "list": lambda x, i: x[[i[0], 1]],
}  # fmt: skip


def written(x: torch.Tensor, i: Any) -> torch.Tensor:
    x[i] = 7
    return x


@pytest.mark.parametrize("use", INDEXED)
@pytest.mark.filterwarnings("ignore")
def test_tensors_indexed_by_arrays(use: str) -> None:
    arrays = [np.array([1, 0, 2]), np.array([-1, 1]), np.array([[0, 1], [2, 2]]), np.array([True, False, True]), np.array([1], np.int32)]
    arrays += [
        np.array([0, 1], np.int8),
        np.array([0.0, 1.0]),
        np.array([5]),
        np.array(1),
        np.array([], np.int64),
        np.array([1, 0], np.uint8),
    ]
    for array in arrays:
        compiled = capture(INDEXED[use], "eager")
        for k in range(2):
            x = torch.arange(9.0).reshape(3, 3) + k
            got, want = outcome(compiled, x, array), outcome(INDEXED[use], x, array)
            assert same(got, want) or (isinstance(want, tuple) and isinstance(got, tuple) and got[0] == want[0]), array


def test_tensors_made_by_classes_share_memory_as_in_eager() -> None:
    for cls in (torch.Tensor, torch.FloatTensor, torch.LongTensor, torch.DoubleTensor):
        for dtype in (np.float32, np.float64, np.int64):

            def makes(a: Any, cls: type = cls) -> Any:
                made = cls(a)
                made.add_(1)
                return made, made * 2

            ours, theirs = np.arange(4).astype(dtype), np.arange(4).astype(dtype)
            assert same(outcome(capture(makes, "eager"), ours), outcome(makes, theirs)) and np.array_equal(ours, theirs), (cls, dtype)


MOVES = {
    "converted": lambda a: torch.from_numpy(a[1:4].astype(np.int64)) * 2, "whole": lambda a: torch.from_numpy(a.astype(np.float32)) + 1,
    "tensor": lambda a: torch.from_numpy(a).long(), "item": lambda a: torch.ones(3) * a[2], "sum": lambda a: torch.ones(3) * a.sum(),
    "computed": lambda a: torch.from_numpy((a + a).astype(np.int64)), "list": lambda a: a.tolist(), "row": lambda a: torch.tensor(a[[0, 1]].astype(np.int64)),
    "back": lambda a: torch.from_numpy(a.astype(np.int64).astype(np.uint16).astype(np.int32)), "copy": lambda a: torch.from_numpy(a.copy().astype(int)),
    "larger": lambda a: torch.from_numpy(np.maximum(a, 7).astype(np.int64)), "part": lambda a: a[1:3],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("use", MOVES)
@pytest.mark.filterwarnings("ignore")
def test_unsigned_arrays(use: str, dtype: Any) -> None:
    compiled = capture(MOVES[use], "eager")
    for k in range(3):
        given = (np.arange(6) * 9000 + k).astype(dtype)
        got, want = outcome(compiled, given), outcome(MOVES[use], given)
        if isinstance(want, np.ndarray):
            assert got.dtype == want.dtype and got.strides == want.strides and np.array_equal(got, want) and np.shares_memory(got, given)
        else:
            assert same(got, want)


@pytest.mark.filterwarnings("ignore")
def test_arrays_that_tensors_do_not_hold_are_captured_a_few_times() -> None:
    translations: list[object] = []
    compiled = capture(lambda x, a: x * 2 + torch.from_numpy((a + 1).astype(float)), "eager", on_translation=translations.append)
    before = 0
    for k in range(20):
        a = np.broadcast_to(np.array(float(k)), (3,)) if k % 2 else np.arange(3).astype(np.uint64)
        assert torch.equal(compiled(torch.ones(3), a), 2 + torch.from_numpy((a + 1).astype(float)))
        before = len(translations) if k < 14 else before
    assert len(translations) == before
