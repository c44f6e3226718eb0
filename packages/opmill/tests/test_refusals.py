"""What eager refuses is refused, with its type and text, also where nobody reads the result; and what it takes is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opmill

EYE, ZEROS, ONES = torch.eye(3), torch.zeros(3, 3), torch.ones(3)
DOUBLE = torch.float64
FAR = torch.tensor([0, 7])
INTEGERS = torch.arange(64).reshape(4, 4, 4)

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (torch.linalg.cholesky, (-EYE,)),
    "inv": (torch.linalg.inv, (ZEROS,)),
    "solve": (torch.linalg.solve, (ZEROS, EYE)),
    "one_hot, too large": (lambda x: F.one_hot(x, 3), (torch.tensor([0, 5]),)),
    "one_hot, negative": (lambda x: F.one_hot(x, 3), (torch.tensor([0, -1]),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.5), (ONES, ONES.to(DOUBLE))),
    "index_copy": (lambda x, i, y: x.index_copy(0, i, y), (ONES, torch.tensor([0]), ONES[:1].to(DOUBLE))),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (ONES, torch.tensor([0]), ONES[:1].to(DOUBLE))),
    "index_put": (lambda x, i, y: x.index_put((i,), y), (ONES, torch.tensor([0]), ONES[:1].to(DOUBLE))),
    "layer_norm": (lambda x, w: F.layer_norm(x, (3,), w), (EYE, ONES.to(DOUBLE))),
    "binary_cross_entropy, input": (F.binary_cross_entropy, (2 * ONES, ONES)),
    "binary_cross_entropy, target": (F.binary_cross_entropy, (0.5 * ONES, 1.5 * ONES)),
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, beta=-1), (ONES, ONES)),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, delta=0), (ONES, ONES)),
    "softshrink": (lambda x: F.softshrink(x, -0.5), (ONES,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x[None], 2, divisor_override=0), (EYE,)),
    "gelu": (lambda x: F.gelu(x, approximate="x"), (ONES,)),
    "bucketize": (torch.bucketize, (ONES, EYE)),
    "diagonal_scatter": (torch.diagonal_scatter, (EYE, ONES[:2])),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 1), (EYE, ONES[:1])),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 0, 0, 2), (EYE, EYE[:1])),
    "as_strided_scatter": (lambda x, y: torch.as_strided_scatter(x, y, (2,), (1,), 0), (EYE, ONES)),
    "put": (torch.put, (ONES, torch.tensor([0, 1]), ONES)),
    "put, index": (torch.put, (ONES, ONES, ONES)),
    "soft_margin_loss": (F.soft_margin_loss, (ONES[0], ONES)),
    "segment_reduce": (
        lambda x, y: torch.segment_reduce(x, "sum", offsets=y, axis=0, unsafe=True),
        (ONES, torch.tensor([[0, 3]])),
    ),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), (ONES, ONES)),
    "index_copy, index": (lambda x, i: x.index_copy(0, i, x), (ONES, ONES)),
    "hardshrink": (F.hardshrink, (INTEGERS,)),
    "multi_margin_loss": (F.multi_margin_loss, (INTEGERS[0], torch.arange(4))),
    "batch_norm": (lambda x, y: F.batch_norm(x, y, y, training=True), (EYE, ONES.to(DOUBLE))),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (INTEGERS[0],)),
    "max_unpool1d": (lambda x, i: F.max_unpool1d(x, i, 2), (INTEGERS[0], INTEGERS[0])),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x, i, 2), (INTEGERS, INTEGERS)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (INTEGERS[None, None],)),
    **{
        f"interpolate, {mode}": (lambda x, m=mode, a=antialias: F.interpolate(x, scale_factor=2, mode=m, antialias=a), (x[None],))
        for mode, x, antialias in (
            ("nearest", INTEGERS, False),
            ("nearest-exact", INTEGERS, False),
            ("bicubic", INTEGERS, False),
            ("linear", INTEGERS[0], False),
            ("trilinear", INTEGERS[None], False),
            ("bilinear", INTEGERS.to(torch.float16), True),
        )
    },
    "a method of tensors on a number": (lambda x: torch.Tensor.__radd__(1, x), (ONES,)),
    "a slot of tensors on a number": (lambda x: torch.Tensor.__len__(x.dim()), (ONES,)),
    "a method of lists on a tuple": (lambda x: list.append((1, 2), x), (ONES,)),
    "complex": (torch.complex, (ONES, ONES.to(DOUBLE))),
    "heaviside": (torch.heaviside, (ONES, ONES.to(DOUBLE))),
    "_assert_async": (lambda x: torch._assert_async(x.sum() > 100), (ONES,)),
    "_assert_async with a text": (lambda x: torch.ops.aten._assert_async.msg(x.sum() > 100, "no"), (ONES,)),
    "gather": (lambda x, i: x.gather(0, i), (ONES, FAR)),
    "embedding": (lambda x, i: F.embedding(i, x), (EYE, FAR)),
    "index": (lambda x, i: x[i], (ONES, FAR)),
    "a list": (lambda x: x[[0, 7]], (ONES,)),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), (ONES, FAR)),
    "index_select": (lambda x, i: x.index_select(0, i), (ONES, FAR)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[:2], i), (EYE, FAR)),
    "division": (lambda x, y: x // y, (torch.tensor([1, 2]), torch.tensor([1, 0]))),
    "linspace": (lambda x: torch.linspace(x, 2.0, 3, dtype=torch.float32), (torch.tensor(1j),)),
    "logspace": (lambda x: torch.logspace(1.0, x, 3, dtype=torch.int64), (torch.tensor(1j),)),
    "_softmax_backward_data": (lambda x, y: torch._softmax_backward_data(x, y, 1, torch.float32), (EYE, EYE.to(DOUBLE))),
    "_log_softmax_backward_data": (lambda x, y: torch._log_softmax_backward_data(x, y, 1, torch.float32), (EYE, EYE.to(DOUBLE))),
    "remainder": (lambda x, y: x % y, (torch.tensor([1, 2]), torch.tensor([1, 0]))),
}
"""Functions and arguments that eager refuses."""


def raised(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    try:
        function(*args)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_as_eager_refuses(name: str, unread: bool, dynamic: bool) -> None:
    function, args = REFUSED[name]

    def run(*given: Any) -> Any:
        result = function(*given)
        return given[0] + 1 if unread else result

    expected = raised(run, args)
    assert expected
    assert raised(opmill.compile(run, dynamic=dynamic), args) == expected


def test_what_nobody_reads_raises_in_training() -> None:
    def run(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.gather(0, i)
        return (x * 2).sum()

    compiled = opmill.compile(run)
    x = torch.ones(3, requires_grad=True)
    compiled(x, torch.tensor([0, 2])).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert raised(compiled, (x, FAR)) == raised(run, (x, FAR)) != ""


def test_operators_of_other_libraries_that_give_nothing_run_in_order() -> None:
    said: list[float] = []
    with torch.library._scoped_library("opmill_test", "DEF") as library:
        library.define("say(Tensor x) -> ()")
        library.impl("say", lambda x: said.append(float(x.sum())), "CPU")
        library.impl("say", lambda x: None, "Meta")

        def run(x: torch.Tensor) -> torch.Tensor:
            torch.ops.opmill_test.say(x)
            y = x * 2
            torch.ops.opmill_test.say(y)
            return y + 1

        compiled = opmill.compile(run)
        for _ in range(2):
            assert compiled(ONES).tolist() == [3.0] * 3
    assert said == [3.0, 6.0] * 2


def test_what_a_handler_catches_says_the_sizes_of_the_call() -> None:
    """Also once sizes are symbolic."""

    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        try:
            return x @ y
        except RuntimeError as e:
            return str(e), x * 2

    compiled = opmill.compile(run)
    for left, right in (((2, 3), (3, 2)), ((2, 3), (4, 2)), ((5, 3), (4, 4)), ((6, 3), (4, 4)), ((6, 3), (3, 4)), ((7, 3), (3, 4))):
        x, y = torch.ones(left), torch.ones(right)
        expected, got = run(x, y), compiled(x, y)
        if isinstance(expected, tuple):
            assert got[0] == expected[0]
        else:
            assert torch.equal(got, expected)


@pytest.mark.parametrize("of_module", [False, True])
def test_writes_to_tensors_of_inference_mode_are_refused_outside_of_it(of_module: bool) -> None:
    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            target = self.count if of_module else x
            target.add_(1)
            return target[0] * 2

    module = Counting()
    module.register_buffer("count", torch.zeros(3))
    compiled = opmill.compile(module)
    with torch.inference_mode():
        inferred = torch.ones(3)
    compiled(torch.ones(3))
    module.count = inferred
    expected = raised(module, (inferred,))
    assert expected.startswith("RuntimeError: Inplace update to inference tensor")
    written = inferred.clone()  # eager refuses what it has done
    with torch.inference_mode():
        inferred.sub_(1)
    assert raised(compiled, (inferred,)) == expected
    assert torch.equal(inferred, written)
    with torch.inference_mode():
        assert compiled(inferred).item() == 2 * (written[0] + 1)
