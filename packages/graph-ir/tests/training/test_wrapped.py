"""Graphs of wrappers against eager: results, gradients, writes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.wrapped import stored
from opmill_runtime_cache.store import Store


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
        kwargs = kwargs or {}
        pairs = [p for p in pytree.tree_leaves((args, kwargs)) if isinstance(p, Pair)]
        if func is torch.ops.aten.lerp_.Scalar:  # which this class does by other tensors than it had
            pairs[0].a = torch.lerp(pairs[0].a, pairs[1].a, args[2])
            return pairs[0]
        if func is torch.ops.aten.neg_.default:
            pairs[0].tag += 1
            return pairs[0]
        found = [func(*of(args, name), **of(kwargs, name)) for name in ("a", "b")]
        result = pytree.tree_map(lambda a, b: Pair(a, b, pairs[0].tag) if isinstance(a, torch.Tensor) else a, *found)
        return return_and_correct_aliasing(func, args, kwargs, result)


def of(args: Any, name: str) -> Any:
    return pytree.tree_map_only(Pair, lambda p: getattr(p, name), args)


class Scaled(torch.Tensor):
    """Integers times a scale; gradients are plain."""

    q: Any
    scale: Any
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, q: Any, scale: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=scale.dtype, device=q.device)  # type: ignore[attr-defined]

    def __init__(self, q: Any, scale: Any) -> None:
        self.q, self.scale = q, scale

    def __tensor_flatten__(self) -> Any:
        return ["q", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Scaled(inner["q"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return Scaled(args[0].q, args[0].scale)
        plain = pytree.tree_map_only(Scaled, lambda s: s.q.to(s.scale.dtype) * s.scale, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def graph(function: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(function, concrete_args=None)


def pair(*sizes: int, tag: int = 3, seed: int = 0) -> Pair:
    source = torch.Generator().manual_seed(seed)
    return Pair(torch.randn(sizes, generator=source), torch.randn(sizes, generator=source), tag)  # type: ignore[no-any-return]


def copied(x: Any) -> Any:
    if isinstance(x, Pair):
        made = Pair(copied(x.a), copied(x.b), x.tag)
    elif isinstance(x, Scaled):
        made = Scaled(x.q.clone(), x.scale.clone())
    else:
        made = x.detach().clone()
    return made.requires_grad_() if x.requires_grad else made


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(got, (list, tuple)):
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    elif isinstance(got, Pair):
        assert got.tag == expected.tag and got.requires_grad == expected.requires_grad and got.stride() == expected.stride()
        same(got.a, expected.a)
        same(got.b, expected.b)
    elif isinstance(got, torch.Tensor):
        assert got.requires_grad == expected.requires_grad and got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)
    else:
        assert got == expected


STORES: list[Any] = []


@pytest.fixture(params=["compiled", "from the store"], autouse=True)
def store(request: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each case is compiled, and is then run from what the store has of it."""
    STORES.clear()
    if request.param == "from the store":
        STORES.append(Store(tmp_path))
        monkeypatch.setattr(stored, "package_of", lambda cls: ("tests", "1"))
    yield
    STORES.clear()


def check(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """The compiled graph, once it does as eager: results, what is written, gradients."""
    module = graph(function, len(inputs))
    if STORES:
        options["store"] = STORES[0]
        first = compile_graph(module, list(map(copied, inputs)), **options)
        assert not first.report.cached
        compiled = compile_graph(graph(function, len(inputs)), list(map(copied, inputs)), **options)
        assert compiled.report.cached
    else:
        compiled = compile_graph(module, list(map(copied, inputs)), options=GraphOptions(cache=False), **options)
    for _ in range(2):
        ours, theirs = list(map(copied, inputs)), list(map(copied, inputs))
        got, expected = list(compiled(*ours)), list(module(*theirs))
        same(got, expected)
        same([x.detach() for x in ours], [x.detach() for x in theirs])
        wanted = [k for k, x in enumerate(inputs) if x.requires_grad]
        loss = [sum(o.square().sum() for o in outs if isinstance(o, torch.Tensor) and o.requires_grad) for outs in (got, expected)]
        if wanted and isinstance(loss[0], torch.Tensor):
            same(*(torch.autograd.grad(total, [given[k] for k in wanted]) for total, given in zip(loss, (ours, theirs), strict=True)))
    return compiled


def linear(x: Any, w: Any) -> Any:
    y = torch.nn.functional.linear(x, w)
    return torch.relu(y) * 2, y.sum(1)


class Rewrapped(torch.autograd.Function):
    """Another wrapper of the very tensors that are inside: so DTensor does where nothing has to be sent."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return Pair(x.a, x.b, x.tag)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


@torch.fx.wrap
def rewrapped(x: Any) -> Any:
    return Rewrapped.apply(x)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("place", ["alone", "before", "behind", "read", "twice"])
def test_an_output_of_the_very_tensors_of_an_input_is_refused(place: str, nested: bool) -> None:
    """Its gradient would take the place in autograd that tensors of the input have. The graph runs as it is instead."""
    functions: dict[str, Any] = {
        "alone": lambda x: (rewrapped(x),),
        "before": lambda x: (rewrapped(x), x * 2),
        "behind": lambda x: (x * 2, rewrapped(x)),
        "read": lambda x: (rewrapped(x), rewrapped(x) * 3),
        "twice": lambda x: (rewrapped(x), rewrapped(x)),
    }
    weight: Any = Pair(pair(3, 5), pair(3, 5, seed=1), 9) if nested else pair(3, 5)
    plain = compile_graph(graph(functions[place], 1), [copied(weight)], options=GraphOptions(cache=False))
    same(list(plain(copied(weight))), list(functions[place](copied(weight))))  # nothing is differentiated
    with pytest.raises(GraphError, match="GI001"):
        compile_graph(graph(functions[place], 1), [copied(weight).requires_grad_()], options=GraphOptions(cache=False))


def test_a_graph_of_wrappers_is_one_of_plain_tensors() -> None:
    compiled = check(linear, torch.randn(4, 8), pair(5, 8))
    assert len(compiled.plan.inputs) == 3 and len(compiled.plan.outputs) == 4


def test_wrappers_in_wrappers() -> None:
    check(linear, torch.randn(4, 8), Pair(pair(5, 8), pair(5, 8, seed=1), 9))


def test_gradients_are_wrappers() -> None:
    """That of the plain operand, too: its product with a wrapper is one."""
    check(linear, torch.randn(4, 8, requires_grad=True), pair(5, 8).requires_grad_())


def test_gradients_of_nested_wrappers() -> None:
    check(linear, torch.randn(4, 8), Pair(pair(5, 8), pair(5, 8, seed=1), 9).requires_grad_())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", ["diagonals", "transposed", "windows"])
def test_gradients_are_laid_out_as_the_tensors(name: str, nested: bool) -> None:
    """A wrapper said that it were, with others inside."""
    functions: dict[str, Any] = {
        "diagonals": lambda x: (torch.diag_embed(x) * 2,),
        "transposed": lambda x: (x.t().contiguous().sin(),),
        "windows": lambda x: (torch.nn.functional.pad(x, (1, 1)).sin(),),
    }
    weight: Any = Pair(pair(3, 5), pair(3, 5, seed=1), 9) if nested else pair(3, 5)
    compiled = compile_graph(graph(functions[name], 1), [copied(weight).requires_grad_()], options=GraphOptions(cache=False))
    found = []
    for run in (compiled, functions[name]):
        leaf = copied(weight).requires_grad_()
        run(leaf)[0].sum().backward()
        found.append(leaf.grad)
    same(*found)


def test_a_gradient_that_is_plain_where_the_tensor_is_none() -> None:
    weight = Scaled(torch.randint(-9, 9, (5, 8), dtype=torch.int8), torch.rand(5, 1)).requires_grad_()
    check(linear, torch.randn(4, 8, requires_grad=True), weight)


def test_an_output_that_is_an_input_or_comes_twice() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * w
        return w, y, y

    with torch.no_grad():
        module = graph(function, 2)
        x, w = torch.randn(3), pair(3)
        compiled = compile_graph(module, [x, w], options=GraphOptions(cache=False))
        out = compiled(x, w)
        assert out[0] is w and out[1] is out[2]


def test_two_outputs_of_one_wrapper_inside() -> None:
    check(lambda w: (w * 2, (w * 2).sum(0)), pair(3, 4).requires_grad_())


def test_writes_go_to_what_is_inside() -> None:
    with torch.no_grad():
        check(lambda x, w: (w.mul_(2).add(x), w.t().add_(1)), torch.randn(3, 3), pair(3, 3))


def test_an_attribute_that_becomes_another_tensor() -> None:
    with torch.no_grad():
        check(lambda w, v: (w.lerp_(v, 0.5) + 1,), pair(3), pair(3, seed=2))


def test_metadata_that_changes_is_refused() -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI062"):
        compile_graph(graph(lambda w: (w.neg_() * 1,), 1), [pair(3)], options=GraphOptions(cache=False))


class Sealed(torch.Tensor):
    """Says nothing of what is inside."""

    @staticmethod
    def __new__(cls, a: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_what_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(GraphError, match="GI060.*Sealed"):
        compile_graph(graph(lambda w: (w * 2,), 1), [Sealed(torch.ones(3))], options=GraphOptions(cache=False))


def test_a_gradient_of_other_tensors_than_the_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "__coerce_tangent_metadata__", lambda self: self.a, raising=False)
    with pytest.raises(GraphError, match="GI061.*Pair"):
        compile_graph(graph(lambda w: (w * 2,), 1), [pair(3).requires_grad_()], options=GraphOptions(cache=False))


def test_views_share_memory_with_what_they_are_views_of() -> None:
    w = pair(3, 4)
    with torch.no_grad():
        compiled = compile_graph(graph(lambda w: (w.t(), w[0]), 1), [w], options=GraphOptions(cache=False))
        turned, row = compiled(w)
        row.mul_(0)
    assert turned.a.data_ptr() == w.a.data_ptr() and not w.a[0].any() and not w.b[0].any()


OTHER = {
    "another tag": lambda: Pair(torch.ones(3), torch.arange(3.0), 5),
    "inside": lambda: Pair(Pair(torch.ones(3), torch.ones(3), 5), torch.ones(3)),
    "a plain tensor": lambda: torch.arange(3.0),
}


def known(tensor: Any) -> Any:
    return [known(tensor.a), known(tensor.b), tensor.tag] if isinstance(tensor, Pair) else None if tensor is None else tensor.tolist()


FUNCTIONS = {
    "a plain output": lambda w, x: (w * 2, x.sin(), w.sin()),
    "a plain input": lambda w, x: (w * 2 + x, w.sin(), x * w.relu()),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("other", OTHER)
def test_gradients_that_look_otherwise_than_the_output_are_eagers(other: str, function: str) -> None:
    """The backward was captured for the output's class and tag; the class may compute otherwise for another."""
    module = graph(FUNCTIONS[function], 2)
    found = []
    for compiled in (False, True):
        w = (Pair(pair(3), torch.ones(3)) if other == "inside" else pair(3)).requires_grad_()
        x = torch.arange(3.0).requires_grad_()
        run = compile_graph(module, [w, x], options=GraphOptions(cache=False)) if compiled else module
        first, second, _ = run(w, x)
        torch.autograd.backward([first, second], [OTHER[other](), torch.ones_like(second)])
        found.append([known(w.grad), known(x.grad)])
    assert found[0] == found[1]


@pytest.mark.parametrize("other", ["another tag", "a plain tensor"])
@pytest.mark.parametrize("why", ["written since", "random numbers", "written by it"])
def test_another_gradient_says_so_where_nothing_can_be_computed_again(why: str, other: str) -> None:
    functions = {"random numbers": lambda w: (torch.dropout(w, 0.5, True),), "written by it": lambda w: (w * 2, w.detach().add_(1))}
    module = graph(functions.get(why, lambda w: (w * 2,)), 1)
    w = pair(3).requires_grad_()
    out = compile_graph(module, [w], options=GraphOptions(cache=False))(w)[0]
    if why == "written since":
        w.detach().mul_(2)
    with pytest.raises(GraphError, match="GI063: a gradient (whose metadata|that is a Tensor)"):
        out.backward(OTHER[other]())


def test_a_class_says_how_another_gradient_becomes_like_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "__coerce_same_metadata_as_tangent__", lambda self, context, cls=None: self, raising=False)
    w = pair(3).requires_grad_()
    [out] = compile_graph(graph(lambda w: (w * 2,), 1), [w], options=GraphOptions(cache=False))(w)
    out.backward(OTHER["another tag"](), retain_graph=True)
    assert w.grad.a.tolist() == [2.0] * 3
    with pytest.raises(GraphError, match="GI063: a gradient that is a Tensor"):
        out.backward(torch.ones(3))


class Id:
    """Only identity tells it from others."""


def test_metadata_that_cannot_be_compared_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def tagged() -> Any:
        return Pair(torch.ones(3), torch.ones(3), (Id(), torch.ones(2), {"a": Id()}))

    w = tagged().requires_grad_()
    [out] = compile_graph(graph(lambda w: (w * 2,), 1), [w], options=GraphOptions(cache=False))(w)
    out.backward(tagged())
    torch.testing.assert_close(w.grad.a, torch.full((3,), 2.0))


def test_getattr_of_a_wrapper_is_what_is_inside() -> None:
    traced = torch.fx.Graph()
    w = traced.placeholder("w")
    inside = traced.call_function(getattr, (w, "a"))
    traced.output((traced.call_function(operator.mul, (inside, 2)),))
    module = torch.fx.GraphModule({}, traced)
    given = pair(3).requires_grad_()
    [out] = compile_graph(module, [given], options=GraphOptions(cache=False))(given)
    assert not out.requires_grad
    torch.testing.assert_close(out, given.a * 2)
