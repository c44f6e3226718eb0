"""Tensors made of tensors: taken apart, put together, and as fakes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.errors import NoFakeKernel
from opmill_fake_tensors.symbols import Sizes, sym_int
from opmill_fake_tensors.wrappers import NotTakenApart, numbers_of, put_together, take_apart, with_numbers


class Pair(torch.Tensor):
    """Two tensors that each operator is applied to."""

    a: Any
    b: Any
    tag: int
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, a: Any, b: Any, tag: int = 0, size: Any = None, stride: Any = None) -> Any:
        size, stride = a.shape if size is None else size, a.stride() if stride is None else stride
        return torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, dtype=a.dtype, device=a.device)  # type: ignore[attr-defined]

    def __init__(self, a: Any, b: Any, tag: int = 0, size: Any = None, stride: Any = None) -> None:
        self.a, self.b, self.tag = a, b, tag

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["a"], inner["b"], context, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        found = [func(*of(args, name), **of(kwargs or {}, name)) for name in ("a", "b")]
        return pytree.tree_map(lambda a, b: Pair(a, b) if isinstance(a, torch.Tensor) else a, *found)


def of(args: Any, name: str) -> Any:
    return pytree.tree_map_only(Pair, lambda p: getattr(p, name), args)


class Closed(torch.Tensor):
    """Takes operators, and cannot be taken apart."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return NotImplemented


def test_what_is_taken_apart_is_put_together() -> None:
    inner = Pair(torch.ones(2), torch.zeros(2), 5)
    outer = Pair(inner, Pair(torch.ones(2) * 2, torch.ones(2) * 3, 6), 7)
    form, leaves = take_apart(outer)
    assert form is not None and form.count == 4 and [leaf.tolist() for leaf in leaves] == [[1, 1], [0, 0], [2, 2], [3, 3]]
    again = put_together(form, iter(leaves))
    assert (again.tag, again.a.tag, again.b.tag) == (7, 5, 6) and again.b.b is leaves[3]
    assert form.fits(take_apart(again)[0]) and not form.fits(take_apart(inner)[0])
    again.b.tag = 0
    assert not form.fits(take_apart(again)[0])


def test_a_plain_tensor_has_no_form() -> None:
    x = torch.ones(2)
    assert take_apart(x) == (None, [x]) and take_apart(torch.nn.Parameter(x))[0] is None


def test_what_cannot_be_taken_apart_says_what_to_define() -> None:
    closed = torch.ones(2).as_subclass(Closed)
    with pytest.raises(NotTakenApart, match="__tensor_flatten__ and __tensor_unflatten__"):
        take_apart(closed)
    with pytest.raises(NoFakeKernel, match="__tensor_flatten__"):
        FakeContext().from_tensor(closed)


class Other(Pair):
    """Is put together as what it is derived from."""


def test_what_is_being_made_is_not_taken_apart() -> None:
    half = Pair.__new__(Pair, torch.ones(2), torch.zeros(2))
    half.tag = 0
    with pytest.raises(NotTakenApart, match="__tensor_flatten__ of Pair fails: AttributeError"):
        take_apart(half)


def test_what_is_put_together_is_of_the_class() -> None:
    other = Other(torch.ones(2), torch.zeros(2), 5)
    form, leaves = take_apart(other)
    with pytest.raises(NotTakenApart, match="__tensor_unflatten__ of Other gives a Pair"):
        put_together(form, iter(leaves))
    with pytest.raises(NoFakeKernel, match="__tensor_unflatten__ of Other"):
        FakeContext().from_tensor(other)


def test_what_is_brought_to_a_type_inside_of_a_class_keeps_its_device() -> None:
    fakes = FakeContext()
    like = fakes.from_tensor(torch.ones(2, dtype=torch.float64))

    class Sum(Pair):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
            return (args[0].a != 0).sum().to(like)  # one operator, of which torch makes others

    with fakes:
        found = Sum(fakes.from_tensor(torch.ones(3)), fakes.from_tensor(torch.ones(3)), 0).sum()
    assert (type(found), found.device, found.dtype) == (type(like), like.device, torch.float64)


def test_what_is_no_tensor_belongs_to_the_form() -> None:
    pair, other = Pair(torch.ones(2), torch.ones(2)), Pair(torch.ones(2), torch.ones(2))
    pair.b = other.b = "a mesh"
    form, leaves = take_apart(pair)
    assert form is not None and form.count == len(leaves) == 1 and put_together(form, iter(leaves)).b == "a mesh"
    assert form.fits(take_apart(other)[0])
    other.b = "another"
    assert not form.fits(take_apart(other)[0])


def test_operators_on_fake_wrappers_run_what_the_class_says() -> None:
    pair = Pair(torch.ones(3, 4), torch.zeros(3, 4), 1).requires_grad_()
    with FakeContext() as context:
        fake: Any = context.from_tensor(pair)
        assert context.from_tensor(pair) is fake and type(fake.a) is FakeTensor and fake.requires_grad and fake.is_leaf and fake.tag == 1
        result = (fake @ torch.ones(4, 5)).relu()
    assert type(result) is Pair and result.shape == (3, 5) and type(result.b) is FakeTensor and result.b.shape == (3, 5)
    assert result.grad_fn is not None and result.a.grad_fn is None


def test_symbolic_sizes_are_those_of_what_is_inside() -> None:
    pair = Pair(torch.ones(3, 4), torch.zeros(3, 4))
    with FakeContext(Sizes()) as context:
        fake: Any = context.from_tensor(pair, {0: None})
        assert str(fake.shape) == str(fake.a.shape) == str(fake.b.shape) == "torch.Size([s0, 4])"
        assert str((fake + 1).sum(1).shape) == "torch.Size([s0])"


def test_what_lies_in_a_wrapper_is_not_known() -> None:
    """Operators on it go to its class: it has no memory of its own that could be looked at."""
    wrapper, context = Pair(torch.ones(2), torch.zeros(2)), FakeContext()
    context.know(wrapper, lambda: None)
    fake = context.from_tensor(wrapper)
    assert not fake.a.is_known() and not fake.b.is_known()


def test_a_write_is_noted_beside_wrappers() -> None:
    known, context = torch.zeros(2), FakeContext()
    context.know(known, lambda: None)
    wrapper: Any = context.from_tensor(Pair(torch.ones(2), torch.zeros(2)))
    with context:
        wrapper.a.add_(1)
        context.from_tensor(torch.ones(2)).add_(1)
        assert context.from_tensor(known).is_known()


def test_what_fails_to_be_put_together_is_not_taken_apart() -> None:
    pair = Pair(torch.ones(2), torch.zeros(2))
    pair.a = "no tensor"
    with pytest.raises(NoFakeKernel, match="__tensor_unflatten__ of Pair fails: AttributeError"):
        FakeContext().from_tensor(pair)


def test_computed_wrappers_are_no_leaves() -> None:
    pair = Pair(torch.ones(3), torch.zeros(3)).requires_grad_() * 2
    fake = FakeContext().from_tensor(pair)
    assert fake.requires_grad and not fake.is_leaf


def test_contexts_contradict_where_they_are_known_to_differ() -> None:
    def form(context: Any) -> Any:
        made = Pair(torch.ones(2), torch.ones(2))
        found = take_apart(made)[0]
        assert found is not None
        return replace(found, context=context)

    nobody, other = object(), object()
    for one, another, known in [
        (("m", 1), ("m", 2), True),
        (("m", 1), ("m", 1), False),
        ({"a": 1}, {"a": 2}, True),
        ({"a": [1]}, {"a": [1, 2]}, True),
        (1, "1", True),
        (nobody, other, False),  # only identity tells them apart
        ((nobody, 1), (other, 2), True),
        (torch.ones(2), torch.zeros(2), False),
    ]:
        assert form(one).contradicts(form(another)) is known, (one, another)
        outer, inner = form(None), form(one)
        assert replace(outer, parts=(inner, None)).contradicts(replace(outer, parts=(form(another), None))) is known


@pytest.mark.parametrize("error", [AssertionError, ValueError, KeyError, RuntimeError])
def test_what_a_constructor_refuses_is_a_refusal(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def checks(*_: Any) -> Any:
        raise error("parts of two kinds")

    form, leaves = take_apart(Pair(torch.ones(2), torch.ones(2)))
    monkeypatch.setattr(Pair, "__tensor_unflatten__", staticmethod(checks))
    with pytest.raises(NotTakenApart, match=f"__tensor_unflatten__ of Pair fails: {error.__name__}: .?parts of two kinds"):
        put_together(form, iter(leaves))


class Blocks(NamedTuple):
    name: str
    count: int


@dataclass(frozen=True)
class Layout:
    block: Any
    kind: str = "rows"


CONTEXTS = {
    "a number": lambda n: n,
    "a tuple": lambda n: (n, "x", 2),
    "a list": lambda n: [1, n, n],
    "a dict": lambda n: {"count": n, "other": None},
    "a named tuple": lambda n: Blocks("x", n),
    "a data class": lambda n: Layout((n, 2)),
    "a shape": lambda n: torch.Size([n, 3]),
    "what is nested": lambda n: {"a": [Layout(Blocks("x", n)), (n, 1)]},
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_symbolic_numbers_of_a_context_are_those_of_the_form(name: str) -> None:
    sizes = Sizes()
    n, make = sym_int(sizes, sizes.new(5)), CONTEXTS[name]
    form, _ = take_apart(Pair(torch.ones(2), torch.zeros(2), make(n)))
    assert form is not None
    filled = with_numbers(form, iter([7 if isinstance(k, torch.SymInt) else k for k in numbers_of(form)]))
    assert filled.context == make(7) and type(filled.context) is type(make(7))
    known, _ = take_apart(Pair(torch.ones(2), torch.zeros(2), make(4)))
    assert known is not None and with_numbers(known, iter(numbers_of(known))).context is known.context
