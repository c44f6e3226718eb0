"""Tensors that are wrapped in other ways, against eager: jagged and masked ones of torch, complex ones of a program's own; and DataParallel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch.masked import masked_tensor

import opmill
from opmill.compile import record_of

aten = torch.ops.aten
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning")]


class Pair(torch.Tensor):
    """A complex number a point, as two real ones."""

    @staticmethod
    def __new__(cls: type, re: torch.Tensor, im: torch.Tensor) -> Any:
        kwargs: Any = {"dtype": torch.complex64, "device": re.device, "strides": re.stride()}
        return torch.Tensor._make_wrapper_subclass(cls, re.shape, requires_grad=re.requires_grad, **kwargs)  # type: ignore[attr-defined]

    def __init__(self, re: torch.Tensor, im: torch.Tensor) -> None:
        self.re, self.im = re, im

    def __tensor_flatten__(self) -> Any:
        return ["re", "im"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["re"], inner["im"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        x, y = args[0], args[-1]
        if func is aten.mul.Tensor and isinstance(x, Pair) and isinstance(y, Pair):
            return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)
        if func is aten.mul.Tensor:
            x, y = (x, y) if isinstance(x, Pair) else (y, x)
            return Pair(x.re * y, x.im * y)
        if func is aten.add.Tensor:
            return Pair(x.re + y.re, x.im + y.im)
        if func is aten.mm.default:
            return Pair(x.re @ y.re - x.im @ y.im, x.re @ y.im + x.im @ y.re)
        if func is aten.abs.default:
            return (x.re**2 + x.im**2).sqrt()
        if func is aten._conj.default:
            return Pair(x.re, -x.im)
        if func in (aten.detach.default, aten.alias.default, aten.clone.default, aten.t.default):
            return Pair(func(x.re), func(x.im))
        raise NotImplementedError(str(func))


def jagged(gradients: bool = False) -> Any:
    values = torch.randn(10, 8)
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 3, 8, 10])).requires_grad_(gradients)


def rows(*sizes: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(n, 8) for n in sizes)


def masked(times: int = 1) -> Any:
    """Of other numbers for other ``times``, under the same mask."""
    data = torch.arange(12.0).view(3, 4) + 0.5
    return masked_tensor(data * times + torch.rand(()), data.long() % 3 > 0)


def pairs(count: int) -> tuple[Any, ...]:
    return tuple(Pair(torch.randn(4, 4), torch.randn(4, 4)) for _ in range(count))


torch.manual_seed(0)
LINEAR = torch.nn.Linear(8, 8)


def attention(x: Any) -> Any:
    """In blocks of their own: on processors torch has no kernel for jagged queries."""
    padded = torch.nested.to_padded_tensor(x, 0.0)
    lengths = x.offsets().diff()
    mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
    q, k, v = LINEAR(padded), padded * 2, padded + 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, :]) * mask[..., None]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "jagged, points": (lambda x: (x * 2).sin() + x, lambda: (jagged(),)),
    "jagged, linear": (lambda x: F.gelu(LINEAR(x)), lambda: (jagged(),)),
    "jagged, norm": (lambda x: F.layer_norm(x, (8,)), lambda: (jagged(),)),
    "jagged, values": (lambda x: x.values() * x.offsets().numel(), lambda: (jagged(),)),
    "jagged, sum": (lambda x: x.sum(1), lambda: (jagged(),)),
    "jagged, softmax": (lambda x: torch.softmax(x, -1), lambda: (jagged(),)),
    "jagged, padded": (lambda x: torch.nested.to_padded_tensor(x, 0.0) * 2, lambda: (jagged(),)),
    "jagged, attention": (attention, lambda: (jagged(),)),
    "jagged, apart": (lambda x: [t * 2 for t in x.unbind()], lambda: (jagged(),)),
    "jagged, together": (lambda x: torch.cat([x, x], -1), lambda: (jagged(),)),
    "jagged, made": (lambda *xs: torch.nested.nested_tensor(list(xs), layout=torch.jagged) * 2, lambda: rows(2, 3)),
    "jagged, within": (lambda *xs: torch.nested.as_nested_tensor(list(xs), layout=torch.jagged).values().sin(), lambda: rows(2, 3)),
    "nested, strided": (lambda x: x * 2, lambda: (torch.nested.nested_tensor(list(rows(2, 4))),)),
    "masked, points": (lambda x: (x * 2).sin() + x, lambda: (masked(),)),
    "masked, sum": (lambda x: x.sum(-1), lambda: (masked(),)),
    "masked, parts": (lambda x: x.get_data() * x.get_mask(), lambda: (masked(),)),
    "masked, made": (lambda x: masked_tensor(x, x > 0).mean(), lambda: rows(3)),
    "masked, filled": (lambda x: (x * 3).to_tensor(0.0), lambda: (masked(),)),
    "masked, between": (lambda x, y: (x.sin() * 2, y.sum().get_data() + 1, x.cos())[1], lambda: (*rows(3), masked())),
    "masked, views": (lambda x: x.view(-1) * 2, lambda: (masked(),)),
    "masked, two": (lambda x, y: (x + y) * x - torch.maximum(y, x) / y, lambda: (masked(), masked(2))),
    "masked, two compared": (lambda x, y: torch.ge(x, y), lambda: (masked(), masked(2))),
    "masked, two in place": (lambda x, y: (x * 2).add_(y).mul_(x).sin(), lambda: (masked(), masked(2))),
    "masked, sizes": (lambda x: x * x.shape[0], lambda: (masked(),)),
    "complex, product": (lambda x, y: x * y, lambda: pairs(2)),
    "complex, matrices": (lambda x, y: (x @ y + x) * 2.0, lambda: pairs(2)),
    "complex, conjugate": (lambda x: x.conj() * x, lambda: pairs(1)),
    "complex, size": (lambda x: x.abs() + 1, lambda: pairs(1)),
    "complex, within": (lambda a, b: (Pair(a, b) * Pair(b, a)).re, lambda: rows(3, 3)),
}


def parts(result: Any) -> list[torch.Tensor]:
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in parts(item)]
    if isinstance(result, Pair):
        return [result.re, result.im]
    if hasattr(result, "get_mask"):
        return [result.get_mask(), torch.where(result.get_mask(), result.get_data(), 0)]
    return list(result.unbind()) if result.is_nested else [result]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_eager(name: str) -> None:
    program, make = PROGRAMS[name]
    compiled = opmill.compile(program)
    for seed in range(2):
        torch.manual_seed(seed)
        given = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, wanted = compiled(*given), program(*given)
        assert type(found) is type(wanted)
        torch.testing.assert_close(parts(found), parts(wanted))
    if name.startswith(("complex", "masked")):
        record = record_of(compiled)
        assert record is not None and not record[1].breaks and len(record[1].graphs) == 1


def test_gradients_through_masked_tensors() -> None:
    def program(x: Any) -> Any:
        return (x * 2 + 1).sin().sum(1)

    found = []
    for run in (program, opmill.compile(program)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = masked_tensor(torch.arange(12.0).view(3, 4), torch.arange(12).view(3, 4) % 3 > 0, requires_grad=True)
            run(x).sum().backward()
        found.append(parts(x.grad))
    torch.testing.assert_close(*found)


def outcome(run: Callable[..., Any], *given: Any) -> list[Any]:
    try:
        return parts(run(*given))
    except ValueError as error:
        return [str(error)]


def test_masks_that_differ_are_refused_as_in_eager() -> None:
    def program(x: Any, y: Any) -> Any:
        return (x * 2 + y).sin()

    compiled = opmill.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = masked_tensor(torch.ones(3, 4), torch.arange(12).view(3, 4) > 4)
        for given in ((masked(), masked(2)), (masked(), other), (masked(3), masked())):
            found, wanted = outcome(compiled, *given), outcome(program, *given)
            assert [str(part) for part in found] == [str(part) for part in wanted]
    record = record_of(compiled)
    assert record is not None and not record[1].breaks and len(record[1].graphs) == 1


def test_masks_are_those_of_the_call() -> None:
    compiled = opmill.compile(lambda x: x.sum())
    for seed in range(3):
        data, mask = torch.randn(3, 4), torch.rand(3, 4) > 0.5
        mask[0, 0] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = masked_tensor(data, mask)
            torch.testing.assert_close(parts(compiled(x)), parts(x.sum()))
            x._masked_mask = torch.ones(3, 4, dtype=torch.bool)
            torch.testing.assert_close(parts(compiled(x)), [torch.tensor(True), data.sum()])


def test_gradients_through_jagged_rows() -> None:
    grads = []
    for run in (opmill.compile(lambda x: F.gelu(LINEAR(x * 2))), lambda x: F.gelu(LINEAR(x * 2))):
        torch.manual_seed(0)
        x = jagged(True)
        run(x).values().square().sum().backward()
        grads.append([*x.grad.unbind(), LINEAR.weight.grad])
        LINEAR.weight.grad = LINEAR.bias.grad = None
    torch.testing.assert_close(*grads)


def test_data_parallel_without_devices_is_its_module() -> None:
    model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))
    compiled, x = opmill.compile(model), torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), model(x))
    record = record_of(compiled)
    assert record is not None and not record[1].breaks


class Counted(torch.Tensor):
    """A number and a layout beside a tensor."""

    @staticmethod
    def __new__(cls: type, data: torch.Tensor, count: Any, layout: Any = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, data.shape, strides=data.stride(), dtype=data.dtype, device=data.device
        )

    def __init__(self, data: torch.Tensor, count: Any, layout: Any = None) -> None:
        self.inside, self.count, self.laid = data, count, layout

    def __tensor_flatten__(self) -> Any:
        return ["inside"], (self.count, self.laid)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Counted(inner["inside"], *context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(a for a in args if isinstance(a, Counted))
        result = func(*(a.inside if isinstance(a, Counted) else a for a in args), **(kwargs or {}))
        return Counted(result, first.count, first.laid)


class Layout(NamedTuple):
    groups: int
    length: int = 0


COUNTED: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "a number given": lambda x, k: Counted(x, k) * 2,
    "a length": lambda x, k: Counted(x, x.shape[0]) + 1,
    "reckoned": lambda x, k: Counted(x, k * 3 + x.shape[0]),
    "a named tuple": lambda x, k: Counted(x, 1, Layout(k, x.shape[0])) * 2,
    "in others": lambda x, k: Counted(x, 1, (Layout(k), "rows")),
    "nested": lambda x, k: Counted(Counted(x, k), x.shape[0]) * 2,
    "beside a tensor": lambda x, k: (Counted(x, k) * 2, x * k),
}


@pytest.mark.parametrize("name", COUNTED)
def test_numbers_of_a_wrapper_are_those_of_the_call(name: str) -> None:
    """A number that is symbolic in the graph must not be so in the tensor that the call gives."""
    function = COUNTED[name]
    compiled = opmill.compile(function)
    for k in (3, 4, 6, 5):
        x = torch.randn(k + 2)
        got, expected = (r if isinstance(r, tuple) else (r,) for r in (compiled(x, k), function(x, k)))
        for one, other in zip(got, expected, strict=True):
            while isinstance(other, Counted):
                assert (one.count, one.laid) == (other.count, other.laid)
                assert type(one.count) is int and type(one.laid) is type(other.laid)
                one, other = one.inside, other.inside
            torch.testing.assert_close(one, other)
    assert len(record_of(compiled)[1].graphs) <= 3
