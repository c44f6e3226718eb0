"""Tensors of classes that take operators apart: what is captured of them, and what is assumed."""

from __future__ import annotations

import copy
import enum
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported


class Pair(torch.Tensor):
    """Two tensors that each operator is applied to."""

    a: Any
    b: Any
    tag: Any
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, a: Any, b: Any, tag: Any = 0, size: Any = None, stride: Any = None) -> Any:
        size, stride = a.shape if size is None else size, a.stride() if stride is None else stride
        return torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, dtype=a.dtype, device=a.device)  # type: ignore[attr-defined]

    def __init__(self, a: Any, b: Any, tag: Any = 0, size: Any = None, stride: Any = None) -> None:
        self.a, self.b, self.tag = a, b, tag

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["a"], inner["b"], context, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        tag = next(p.tag for p in pytree.tree_leaves((args, kwargs)) if isinstance(p, Pair))
        found = [func(*of(args, name), **of(kwargs, name)) for name in ("a", "b")]
        result = pytree.tree_map(lambda a, b: Pair(a, b, tag) if isinstance(a, torch.Tensor) else a, *found)
        return return_and_correct_aliasing(func, args, kwargs, result)

    def total(self, scale: float) -> Any:
        return (self.a + self.b) * scale

    @property
    def difference(self) -> Any:
        return self.a - self.b

    @classmethod
    def twice(cls, x: Any) -> Any:
        return cls(x, x * 2)

    def __matmul__(self, other: Any) -> Any:  # type: ignore[override]
        return self.a @ other


def of(args: Any, name: str) -> Any:
    return pytree.tree_map_only(Pair, lambda p: getattr(p, name), args)


class Closed(torch.Tensor):
    """Takes operators, and cannot be taken apart."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            return func(*args, **(kwargs or {}))


def pair(*sizes: int, tag: Any = 0) -> Pair:
    source = torch.Generator().manual_seed(0)
    return Pair(torch.randn(sizes, generator=source), torch.randn(sizes, generator=source), tag)  # type: ignore[no-any-return]


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(got, (list, tuple)):
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    elif isinstance(got, Pair):
        assert got.tag == expected.tag and got.requires_grad == expected.requires_grad
        same(got.a, expected.a)
        same(got.b, expected.b)
    elif isinstance(got, torch.Tensor):
        torch.testing.assert_close(got, expected)
    else:
        assert got == expected


def compiled(function: Any, **more: Any) -> Any:
    return capture(function, backend="eager", fullgraph=True, **more)


FUNCTIONS = {
    "operators": lambda p, x: (p + x).relu() * 2,
    "methods of tensors": lambda p, x: p.sum(1, keepdim=True).expand(3, 3).t(),
    "what is inside": lambda p, x: p.a + p.b * x,
    "metadata": lambda p, x: x * p.tag if p.tag else p,
    "a method of the class": lambda p, x: p.total(0.5) + x,
    "a property": lambda p, x: p.difference @ x,
    "made in between": lambda p, x: (Pair(x, p.a, 4) * 2, Pair.twice(x).sum(0)),
    "an operator of the class": lambda p, x: p @ x,
    "what it is": lambda p, x: (isinstance(p, Pair), type(p) is Pair, isinstance(p, torch.nn.Parameter), p.shape[0], p.dtype, x),
    "views": lambda p, x: (p.view(9), p[0], p.t()),
    "a list": lambda p, x: torch.stack([p, p * 2]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name: str) -> None:
    function, x = FUNCTIONS[name], torch.arange(9.0).view(3, 3)
    f = compiled(function)
    for tag in (0, 2):
        same(f(pair(3, 3, tag=tag), x), function(pair(3, 3, tag=tag), x))


class Role(enum.Enum):
    WEIGHT = 1
    INPUT = 2


class Config(NamedTuple):
    role: Role = Role.INPUT
    count: int = 3


GIVEN = {
    "a member": lambda x: Pair(x, x + 1, Role.WEIGHT) * 2,
    "by name": lambda x: Pair(x, x + 1, tag=Role.WEIGHT) * 2,
    "a named tuple": lambda x: Pair(x, x + 1, Config(count=4)) * 2,
    "in others": lambda x: Pair(x, x + 1, (Config(), (Role.INPUT, 2))) * 2,
    "what it is then": lambda x: x * (Pair(x, x + 1, Config(count=4)) * 2).tag.count,
    "which it is then": lambda x: (Pair(x, x, Role.WEIGHT) * 2).tag is Role.WEIGHT and x + 1,
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_constructor_is_given_members_and_named_tuples(name: str) -> None:
    function, x = GIVEN[name], torch.arange(4.0)
    got, expected = compiled(function)(x), function(x)
    same(got, expected)
    if isinstance(got, Pair):
        assert type(got.tag) is type(expected.tag)


def test_operators_take_tuples_and_no_members() -> None:
    same(compiled(lambda x: x.sum(Config(0, 1)) + torch.zeros(Config(2, 3)).sum())(torch.ones(2, 3)), torch.tensor(6.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unsupported operand"):
        capture(lambda x: x + Role.INPUT, backend="eager")(torch.ones(2))


def test_one_capture_serves_what_looks_alike() -> None:
    f = compiled(lambda p: p * 2 + 1)
    for _ in range(3):
        f(pair(3))
    assert len(f.entries) == 1


@pytest.mark.parametrize("change", ["tag", "a tensor of another type inside", "another class", "requires grad"])
def test_what_a_wrapper_is_made_of_is_assumed(change: str) -> None:
    p = pair(3)
    f = compiled(lambda p: (p * 2 + 1, 5))
    same(f(p), (p * 2 + 1, 5))
    if change == "tag":
        p.tag = 9
    elif change == "requires grad":
        p = p.requires_grad_()
    elif change == "another class":
        p = p.a
    else:
        p.b = p.b.double()
    same(f(p), (p * 2 + 1, 5))
    assert len(f.entries) == 2


def test_a_tensor_inside_that_is_bound_anew_is_seen() -> None:
    p, f = pair(3), compiled(lambda p: p * 2)
    f(p)
    p.a = torch.full((3,), 7.0)
    assert f(p).a.tolist() == [14.0] * 3 and len(f.entries) == 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(pair(4, 3, tag=1))
        self.register_buffer("offset", pair(4))

    def forward(self, x: Any) -> Any:
        assert isinstance(self.weight, torch.nn.Parameter)
        return torch.nn.functional.linear(x, self.weight, self.offset)


def test_parameters_and_buffers_are_found_by_path() -> None:
    net, other, x = Net(), Net(), torch.randn(2, 3)
    other.weight = torch.nn.Parameter(pair(4, 3, tag=1) * 3)
    function = Net.forward
    f = compiled(function)
    with torch.no_grad():
        same(f(net, x), net(x))
        same(f(other, x), other(x))
        assert len(f.entries) == 1
        net.weight.tag = 2
        same(f(net, x), net(x))
        net.weight.a = torch.ones(4, 3)
        same(f(net, x), net(x))
    same(f(net, x), net(x))


def test_gradients() -> None:
    net, x = Net(), torch.randn(2, 3)
    f = compiled(Net.forward)
    got, expected = f(net, x), net(x)
    same(got, expected)
    same(torch.autograd.grad(got.sum(), net.weight), torch.autograd.grad(expected.sum(), net.weight))


def test_symbolic_sizes() -> None:
    f = compiled(lambda p: (p.sum(0), p * p.shape[0]), dynamic=True)
    for size in (4, 5, 7):
        p = pair(size, 3)
        same(f(p), (p.sum(0), p * p.shape[0]))
    assert len(f.entries) == 1
    uneven = pair(4, 3)
    uneven.b = torch.zeros(1, 3)
    same(f(uneven), (uneven.sum(0), uneven * uneven.shape[0]))


def test_what_cannot_be_taken_apart_says_what_to_define() -> None:
    closed = torch.ones(3).as_subclass(Closed)
    with pytest.raises(Unsupported, match="FE051.*Closed") as refused:
        compiled(lambda x: x + 1)(closed)
    assert "__tensor_flatten__" in str(refused.value) and "__tensor_unflatten__" in str(refused.value)


def test_assignments_to_wrappers_are_refused() -> None:
    def function(p: Any) -> Any:
        p.tag = 3
        return p + 1

    with pytest.raises(Unsupported, match="FE032"):
        compiled(function)(pair(3))
    broken = capture(function, backend="eager")
    p = pair(3)
    assert broken(p).tag == 3 and p.tag == 3


@pytest.mark.parametrize("given", [True, False])
def test_attributes_that_say_nothing_of_operators_are_put_on(given: bool) -> None:
    def function(p: Any, x: Any) -> Any:
        made = p if given else p * 2
        made.note, made.steps, made.main = "n", 3, x * 2
        return made.b * made.steps + made.main, made

    found, expected = (call(pair(3), torch.arange(3.0)) for call in (compiled(function), function))
    same(found, expected)
    assert (found[1].note, found[1].steps) == ("n", 3) and torch.equal(found[1].main, expected[1].main)


def test_what_is_put_on_a_tensor_is_there_inside_of_a_wrapper() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y.note = "before"
        made = Pair(Pair(y, x + 1), y)
        y.note, y.other = "after", y + 1
        return made

    found, expected = (call(torch.arange(3.0)) for call in (compiled(function), function))
    same(found, expected)
    for one, other in ((found.a.a, expected.a.a), (found.b, expected.b)):
        assert one.note == other.note == "after" and torch.equal(one.other, other.other)


class Boosted(Pair):
    """Reads an attribute that the context does not say, and keeps what it computed."""

    kept: Any = None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Boosted(inner["a"], inner["b"], context, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by = max(getattr(p, "boost", 1) for p in pytree.tree_leaves(args) if isinstance(p, cls))
        return func(*pytree.tree_map_only(cls, lambda p: p.a + p.b, args), **(kwargs or {})) * by


def boosted(**attributes: Any) -> Any:
    made = Boosted(torch.arange(3.0), torch.ones(3))
    vars(made).update(attributes)
    return made


def test_attributes_that_operators_read_and_the_context_does_not_say_are_not_passed_over() -> None:
    f = capture(lambda p: p * 2, backend="eager")
    for attributes in ({}, {"boost": 3}, {"boost": 4, "name": "n"}, {"name": "n"}):
        assert torch.equal(f(boosted(**attributes)), boosted(**attributes) * 2)
    with pytest.raises(Unsupported, match="FE051: a Boosted with attribute boost"):
        compiled(lambda p: p * 2)(boosted(boost=2))

    def function(p: Any) -> Any:
        p.boost = 5
        return p + 1

    assert torch.equal(capture(function, backend="eager")(boosted()), function(boosted()))


def test_what_a_wrapper_keeps_is_read_from_it() -> None:
    def function(p: Any) -> Any:
        return p.kept

    class Keeping(Boosted):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.kept = None

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Keeping(inner["a"], inner["b"], context, size, stride)

    f, p = capture(function, backend="eager"), Keeping(torch.ones(2), torch.zeros(2))
    assert f(p) is None
    p.kept = torch.full((2,), 5.0)
    assert torch.equal(f(p), p.kept)


def test_a_wrapper_that_is_not_made_yet_is_refused() -> None:
    class Late(Pair):
        def __tensor_flatten__(self) -> Any:
            return ["inner"], None  # until it is assigned: a method of tensors

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Late(inner["inner"], inner["inner"], 0, size, stride)

    with pytest.raises(Unsupported, match=r"FE051.*[\s\S]*__tensor_unflatten__ of .*Late fails"):
        compiled(lambda p: p + 1)(Late(torch.ones(2), torch.ones(2)))


class Told(Pair):
    """Is told of torch's functions, too."""

    __torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: cls.told(func, args, kwargs or {}))  # type: ignore[assignment]

    @classmethod
    def told(cls, func: Any, args: Any, kwargs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return args[0].a - 5 if func is torch.nn.functional.normalize else func(*args, **kwargs)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Told(inner["a"], inner["b"], context, size, stride)


def test_classes_that_are_told_of_functions_are_asked() -> None:
    def function(p: Any, x: Any) -> Any:
        asked = (torch.overrides.has_torch_function((p, x)), torch.overrides.has_torch_function_unary(x))
        return *asked, torch.nn.functional.normalize(p, dim=0), torch.nn.functional.normalize(x, dim=0)

    given = Told(torch.arange(3.0), torch.ones(3)), torch.arange(3.0)
    same(compiled(function)(*given), function(*given))


def test_what_pickles_a_wrapper_is_in_no_graph() -> None:
    def function(x: Any) -> Any:
        return copy.copy(x) * 2

    given = Pair(torch.arange(3.0), torch.ones(3), 4)
    compiled = capture(function, backend="eager")
    found = compiled(given)
    assert found.a.tolist() == [0.0, 2.0, 4.0] and found.b.tolist() == [2.0] * 3 and found.tag == 4
    with pytest.raises(Unsupported, match="FE033: method __reduce_ex__"):
        capture(function, backend="eager", fullgraph=True)(given)
