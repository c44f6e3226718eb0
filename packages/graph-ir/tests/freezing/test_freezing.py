"""Graphs whose weights stay: against eager in double precision, weights that change all the same, and what the store keeps."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.nn import functional as F

from opmill_graph_ir.backend import CompiledGraph, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphWarning
from opmill_graph_ir.freezing import packing
from opmill_graph_ir.freezing.rewrite import freeze
from opmill_graph_ir.freezing.weights import held_inputs
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import Call
from opmill_runtime_cache.store import Store

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))


def compiled(function: Function, inputs: Sequence[Any], folder: Any = None, kernels: bool = False, **options: Any) -> CompiledGraph:
    """``kernels``: with kernels of our own, where a generator is installed; that takes seconds."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")  # this package may be installed without a generator
        module = torch.fx.symbolic_trace(function)
        settings = GraphOptions(freeze=True, verify=True, cache=folder is not None, **options)
        return compile_graph(
            module, inputs, options=settings, store=None if folder is None else Store(str(folder)), generators=None if kernels else ()
        )


def operators(run: CompiledGraph) -> list[str]:
    return [step.op for step in run.plan.steps if isinstance(step, Call)]


def check(function: Function, inputs: Sequence[Any], run: CompiledGraph, times: float = 4.0) -> None:
    """Results against float64, allowed ``times`` eager's error."""
    with torch.no_grad():
        found, eager = run(*inputs)[0], function(*inputs)[0]
        wide = copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function
        exact = wide(*(x.double() if x.is_floating_point() else x for x in inputs))[0]
    assert found.dtype == eager.dtype and found.shape == eager.shape and found.stride() == eager.stride()
    limit = times * (eager - exact).abs().max() + 1e-6 * exact.abs().max()
    assert (found - exact).abs().max() <= limit


def weight(*sizes: int) -> Parameter:
    return Parameter(torch.randn(*sizes) / sizes[-1] ** 0.5)


# ---- what is folded and packed ------------------------------------------------------------------------------------------------

NORMS = [
    (bias, affine, groups, dtype)
    for bias in (True, False)
    for affine in (True, False)
    for groups in (1, 2)
    for dtype in ("float32", "float64")
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("bias", "affine", "groups", "dtype"), NORMS)
def test_norms_are_folded_into_convolutions(bias: bool, affine: bool, groups: int, dtype: str, transposed: bool) -> None:
    kind = getattr(torch, dtype)
    rest = [weight(6).to(kind) for _ in range(3)]
    variance = Parameter(torch.rand(6).to(kind) + 0.1)

    def function(x: Any, w: Any, b: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
        y = (F.conv_transpose2d if transposed else F.conv2d)(x, w, b if bias else None, padding=1, groups=groups)
        return (F.batch_norm(y, mean, var, scale if affine else None, shift if affine else None, False, 0.1, 1e-5),)

    x = torch.randn(2, 4, 7, 5, dtype=kind)
    sizes = (4, 6 // groups) if transposed else (6, 4 // groups)
    inputs = [x, Parameter(weight(*sizes, 3, 3).to(kind)), weight(6).to(kind), rest[0], rest[1], rest[2], variance]
    inputs = [Parameter(t) if k else t for k, t in enumerate(inputs)]
    run = compiled(function, inputs)
    assert any("batch_norm" in op for op in operators(run)) == (transposed and groups > 1)
    assert run.frozen is not None
    check(function, inputs, run)


def test_norms_that_are_not_the_only_reader_or_train_stay() -> None:
    def both(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y = F.conv2d(x, w)
        return F.batch_norm(y, mean, var, None, None, False, 0.1, 1e-5), y

    def training(x: Any, w: Any, mean: Any, var: Any) -> Any:
        return (F.batch_norm(F.conv2d(x, w), mean, var, None, None, True, 0.1, 1e-5),)

    for function in (both, training):
        inputs = [torch.randn(2, 3, 6, 6), weight(4, 3, 1, 1), Parameter(torch.randn(4), False), Parameter(torch.rand(4) + 0.5, False)]
        before = [t.clone() for t in inputs]
        with torch.no_grad():
            wanted = function(*before)
            found = compiled(function, inputs)(*inputs)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(inputs[2], Parameter(before[2], False), rtol=1e-4, atol=1e-5)


MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "causal": lambda x, given: torch.ones_like(x, dtype=torch.bool).tril(),
    "open": lambda x, given: torch.zeros_like(x + given),
    "given": lambda x, given: x + given,
}


class Attends(torch.nn.Module):
    """Tensors of its own, which graphs hold, around what is made of weights."""

    def __init__(self, mask: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.make = mask
        self.register_buffer("mask", torch.randn(6, 6))
        self.register_buffer("moved", torch.randn(128))

    def forward(self, x: Any, a: Any, b: Any, bias: Any) -> Any:
        q = F.linear(x, a * 2, bias).view(2, 6, 4, 32).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, self.make(x[0, :, :6], self.mask))
        return (F.linear(y.transpose(1, 2).reshape(2, 6, 128), b + 1) + self.moved,)


@pytest.mark.parametrize("name", MASKS)
def test_what_graphs_hold_keeps_its_places_where_a_mask_is_dropped(name: str) -> None:
    module = Attends(MASKS[name])
    inputs = [torch.randn(2, 6, 128), weight(128, 128), weight(128, 128), weight(128)]
    check(module, inputs, compiled(module, inputs))


ACTIVATIONS: dict[str, Function] = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "tanh gelu": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu6": F.relu6,
}
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_products_are_packed_with_what_follows_and_special_values_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LEAST_MATRIX", {})
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    after = ACTIVATIONS[name]

    def function(x: Any, w: Any, b: Any) -> Any:
        return (after(F.linear(x, w, b)),)

    inputs = [torch.randn(4, 16, 128), weight(96, 128), weight(96)]
    run = compiled(function, inputs, kernels=True)
    assert "mkldnn::_linear_pointwise" in operators(run)
    check(function, inputs, run)
    with torch.no_grad():
        for k, value in enumerate(SPECIAL):
            inputs[0][0, k] = value
        found, wanted = run(*inputs)[0], function(*inputs)[0]
    assert torch.equal(found.isnan(), wanted.isnan()), "NaN is not lost on the way"
    assert torch.equal(found.isinf(), wanted.isinf())


@pytest.mark.parametrize("rows", [1, 2, 40])
@pytest.mark.parametrize("kind", ["linear", "in rows", "without a bias", "of bytes", "twice"])
def test_matrices_lie_in_rows_for_mkl(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    functions: dict[str, Function] = {
        "linear": lambda x, w, b: (torch.tanh(F.linear(x, w, b)),),
        "in rows": lambda x, w, b: (torch.addmm(b, x, w),),
        "without a bias": lambda x, w, b: (x @ w.t(),),
        "of bytes": lambda x, w, b: (x @ w.to(x.dtype).t() * b,),
        "twice": lambda x, w, b: (F.linear(x, w, b) + F.linear(x + 1, w),),
    }
    matrix = Parameter(torch.randint(-127, 128, (96, 96), dtype=torch.int8), False) if kind == "of bytes" else weight(96, 96)
    inputs = [torch.randn(rows, 96), matrix, weight(96)]
    run = compiled(functions[kind], inputs)
    products = [step for step in run.plan.steps if isinstance(step, Call) and step.op.startswith(("aten::mm", "aten::addmm"))]
    assert len(products) == (2 if kind == "twice" else 1) and not any("mkldnn" in name for name in operators(run))
    held = [i for i in run.plan.inputs if getattr(i, "held", False) and i.spec.sizes == (96, 96)]
    assert [i.spec.strides for i in held] == [(96, 1)]
    check(functions[kind], inputs, run)
    with torch.no_grad():
        inputs[1].zero_()
        check(functions[kind], inputs, run)


BESIDE: dict[str, tuple[Function, int]] = {
    # three products of 48 rows with matrices of 128 x 192, 128 x 160 and 128 x 192, and how many are left
    "one operand": (lambda x, a, b, c, u, v: (F.linear(x, a), F.linear(x, b), F.linear(x, c)), 1),
    "with biases": (lambda x, a, b, c, u, v: (F.linear(x, a, u), F.linear(x, b, v), F.linear(x, c, u)), 1),
    "some with biases": (lambda x, a, b, c, u, v: (F.linear(x, a, u), F.linear(x, b), F.linear(x, c, u)), 2),
    "something in between": (lambda x, a, b, c, u, v: (F.linear(x, a).sigmoid() * F.linear(x, c), F.gelu(F.linear(x + 1, b))), 2),
    "in one loop": (lambda x, a, b, c, u, v: (F.linear(x, a) * F.linear(x, c), F.linear(x, b)), 1),
    "one matrix twice": (lambda x, a, b, c, u, v: (F.linear(x, a), F.linear(x, a, u)), 2),
    "parts of the operand": (lambda x, a, b, c, u, v: (F.linear(x[:2], a), F.linear(x[1:], b)), 2),
    "a matrix that comes late": (lambda x, a, b, c, u, v: (F.linear(x, a * 2) + F.linear(x, c + F.linear(x, a).mean()), F.linear(x, b)), 2),
}


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("name", BESIDE)
def test_products_of_one_operand_are_one_product(name: str) -> None:
    function, count = BESIDE[name]
    inputs = [torch.randn(4, 12, 128), weight(192, 128), weight(160, 128), weight(192, 128), weight(192), weight(160)]
    run = compiled(function, inputs, kernels=True)
    assert len([op for op in operators(run) if "mm" in op or "linear" in op]) == count
    with torch.no_grad():
        for _ in range(2):
            found, wanted = run(*inputs), function(*inputs)
            exact = function(*(t.double() for t in inputs))
            for ours, eager, best in zip(found, wanted, exact, strict=True):
                assert (ours.shape, ours.stride(), ours.is_contiguous()) == (eager.shape, eager.stride(), eager.is_contiguous())
                assert (ours - best).abs().max() <= 4 * (eager - best).abs().max() + 1e-6 * best.abs().max()
            for k in (1, 5):
                inputs[k].mul_(-1)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_weights_of_bytes_are_widened_and_packed_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)

    def function(x: Any, w: Any, scale: Any) -> Any:
        return (torch.mm(x, w.to(x.dtype).t()) * scale,)

    bytes_ = Parameter(torch.randint(-127, 128, (768, 1024), dtype=torch.int8), False)
    inputs = [torch.randn(rows, 1024), bytes_, weight(768)]
    run = compiled(function, inputs, kernels=True)
    scaled = "aten::mul.Tensor"  # where no generator is installed that makes it a kernel
    assert [name for name in operators(run) if name != scaled] == ["mkldnn::_linear_pointwise"], "no call widens them again"
    check(function, inputs, run)
    with torch.no_grad():
        bytes_.zero_()
        assert not run(*inputs)[0].any()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("name", ["none", "relu", "hardswish", "silu"])
@pytest.mark.parametrize("groups", [1, 32])
def test_convolutions_are_packed(name: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LEAST_CONVOLUTION", 1 << 16)
    after = ACTIVATIONS[name]

    def function(x: Any, w: Any, b: Any, v: Any) -> Any:
        y = after(F.conv2d(x, w, b, stride=2, padding=1, groups=groups))
        return (F.conv2d(y, v).flatten(2),)

    inputs = [torch.randn(2, 32, 30, 28), weight(32, 32 // groups, 3, 3), weight(32), weight(8, 32, 1, 1)]
    run = compiled(function, inputs, kernels=True)
    assert "mkldnn::_convolution_pointwise" in operators(run)
    check(function, inputs, run)
    inputs[0][1, 3, 4, 5] = float("nan")
    with torch.no_grad():
        assert torch.equal(run(*inputs)[0].isnan(), function(*inputs)[0].isnan())


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("name", ["none", "relu", "hardswish", "silu", "tanh"])
@pytest.mark.parametrize(("stride", "more"), [(1, 0), (2, 1), (3, 2)])
def test_transposed_convolutions_are_packed(name: str, stride: int, more: int) -> None:
    after = ACTIVATIONS[name]

    def function(x: Any, w: Any, b: Any, v: Any) -> Any:
        y = after(F.conv_transpose2d(x, w, b, stride=stride, padding=1, output_padding=more))
        return F.conv_transpose2d(y, v, stride=2), y

    inputs = [torch.randn(2, 32, 7, 6), weight(32, 24, 3, 4), weight(24), weight(24, 3, 2, 2)]
    run = compiled(function, inputs, kernels=True)
    assert "mkldnn::_convolution_transpose_pointwise" in operators(run)
    check(function, inputs, run)
    inputs[0][1, 3, 4, 5] = float("nan")
    with torch.no_grad():
        for found, wanted in zip(run(*inputs), function(*inputs), strict=True):
            assert torch.equal(found.isnan(), wanted.isnan()) and found.stride() == wanted.stride()


def test_only_what_follows_from_weights_is_taken_out() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        both = torch.cat([w, v]).sin()
        return x * both[:3], both + x[0], torch.rand(6) * 0 + w.mean()

    inputs = [torch.randn(3), weight(3), weight(3)]
    with torch.no_grad():
        module = torch.fx.symbolic_trace(lambda x, w, v: function(x, w, v)[:2])
        made = freeze(functionalize(module, inputs), held_inputs(module, inputs))
        assert made is not None and made.positions == (1, 2) and made.kept == ()
        assert [node.func._schema.name for node in made.weights.nodes] == ["aten::cat", "aten::sin"]
        assert not {"aten::cat", "aten::sin"} & {node.func._schema.name for node in made.graph.nodes}
        for a, b in zip(compiled(function, inputs, kernels=True)(*inputs), function(*inputs), strict=True):
            torch.testing.assert_close(a, b)


def test_what_a_graph_writes_or_gives_out_does_not_stay() -> None:
    def function(x: Any, written: Any, given: Any, w: Any) -> Any:
        written.add_(x)
        return written * 2, given, (w * 3)

    inputs = [torch.randn(3), *(Parameter(torch.randn(3), False) for _ in range(3))]
    with torch.no_grad():
        module = torch.fx.symbolic_trace(function)
        made = freeze(functionalize(module, inputs), held_inputs(module, inputs))
        assert made is not None and made.positions == (3,)
        run, reference = compiled(function, inputs), [t.clone() for t in inputs]
        for _ in range(2):
            found, wanted = run(*inputs), function(*reference)
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b)
            assert found[1] is inputs[2] or found[1].data_ptr() == inputs[2].data_ptr()
            found[2].zero_()  # the caller's own: the next call must not see it


@pytest.mark.parametrize("asks", [False, True])
def test_operators_over_weights_alone_may_give_no_tensor(asks: bool) -> None:
    """Of what attention gives, that nobody reads: it is undefined where no weights of attention are asked for."""

    def function(x: Any, q: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        found = torch._native_multi_head_attention(q, q, q, 32, 4, w, b, v, c, None, asks)
        return (x + found[0],)

    inputs = [torch.randn(1, 5, 32), weight(1, 5, 32), weight(96, 32), weight(96), weight(32, 32), weight(32)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*GI030")
        run = compiled(function, inputs)
        assert run.frozen is not None and not any("attention" in name for name in operators(run))
        for _ in range(2):
            check(function, inputs, run)


# ---- weights that change all the same ---------------------------------------------------------------------------------------------


def scaled(x: Any, w: Any) -> Any:
    return (x * (w * 2 + 1),)


def new_value(w: Parameter) -> Parameter:
    return Parameter(torch.randn_like(w))


def in_place(w: Parameter) -> Parameter:
    w.add_(1)
    return w


def through_a_view(w: Parameter) -> Parameter:
    w[1:].mul_(3)
    return w


def by_setting_data(w: Parameter) -> Parameter:
    w.data = torch.randn_like(w)
    return w


def by_setting_data_twice(w: Parameter) -> Parameter:
    for _ in range(2):  # the second may lie where the first lay
        w.data = torch.randn_like(w)
    return w


@pytest.mark.parametrize("change", [new_value, in_place, through_a_view, by_setting_data, by_setting_data_twice])
def test_a_change_is_seen_by_the_next_call(change: Callable[[Parameter], Parameter]) -> None:
    w, x = weight(5), torch.randn(5)
    run = compiled(scaled, [x, w])
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
            w = change(w)
        torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    assert len(run.executable.tokens) == 1, "what was made of what is gone is let go"


def test_a_write_that_nobody_counts_is_seen_by_samples_and_by_thaw() -> None:
    w, x = weight(500), torch.randn(500)
    plain, sampling = compiled(scaled, [x, w]), compiled(scaled, [x, w], sample=True)
    with torch.no_grad():
        before = plain(x, w)[0], sampling(x, w)[0]
        w.data.mul_(2)
        torch.testing.assert_close(plain(x, w)[0], before[0])  # the documented limit of the promise
        torch.testing.assert_close(sampling(x, w)[0], scaled(x, w)[0])
        assert plain.thaw() == 1 and plain.thaw() == 0
        torch.testing.assert_close(plain(x, w)[0], scaled(x, w)[0])
        w.data[-1] = 77  # one element: seen once the samples have come round
        for _ in range(16):
            sampling(x, w)
        torch.testing.assert_close(sampling(x, w)[0], scaled(x, w)[0])


def test_tensors_of_inference_mode_stay_too() -> None:
    with torch.inference_mode():
        w = Parameter(torch.randn(4), False)
    x = torch.randn(4)
    run = compiled(scaled, [x, w])
    torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    assert len(run.executable.tokens) == 1


def test_each_set_of_weights_has_its_own_and_goes_with_it() -> None:
    x, first, second = torch.randn(4), weight(4), weight(4)
    run = compiled(scaled, [x, first])
    with torch.no_grad():
        for _ in range(3):
            for w in (first, second):
                torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    assert len(run.executable.tokens) == 2
    gone = weakref.ref(first)
    del first, w
    gc.collect()
    assert gone() is None, "a copy keeps no parameter"
    assert len(run.executable.tokens) == 1


def test_weights_that_change_every_time_end_frozen_calls_until_thawed() -> None:
    w, x = weight(5), torch.randn(5)
    run = compiled(scaled, [x, w])
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(20):
            w.add_(1)
            torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    assert any("GI034" in str(each.message) and each.category is GraphWarning for each in caught)
    assert run.executable.tokens == []
    run.thaw()
    with torch.no_grad():
        torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])
    assert len(run.executable.tokens) == 1


def test_weights_that_change_now_and_then_are_frozen_again() -> None:
    w, x = weight(5), torch.randn(5)
    run = compiled(scaled, [x, w])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            w.add_(1)
            for _ in range(6):
                torch.testing.assert_close(run(x, w)[0], scaled(x, w)[0])


# ---- the store, other modes -----------------------------------------------------------------------------------------------------


def test_the_store_keeps_the_plan_and_no_weights(tmp_path: Any) -> None:
    def function(x: Any, w: Any, b: Any) -> Any:
        return (F.linear(x, w, b),)

    inputs = [torch.randn(64, 128), weight(96, 128), weight(96)]
    first = compiled(function, inputs, tmp_path)
    inputs = [torch.randn(64, 128), weight(96, 128), weight(96)]  # others
    second = compiled(function, inputs, tmp_path)
    assert not first.report.cached and second.report.cached
    check(function, inputs, second)
    plain = [torch.randn(64, 128), weight(96, 128).detach(), weight(96).detach()]
    third = compiled(function, plain, tmp_path)
    assert not third.report.cached and third.frozen is None, "nothing is promised of these"


def test_nothing_is_frozen_where_rounding_is_eagers_or_gradients_are_wanted() -> None:
    inputs = [torch.randn(4), weight(4)]
    assert compiled(scaled, inputs, numerics="eager").frozen is None
    module = torch.fx.symbolic_trace(scaled)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        run = compile_graph(module, inputs, options=GraphOptions(freeze=True, cache=False), generators=())
    assert run.frozen is None
    run(*inputs)[0].sum().backward()
    torch.testing.assert_close(inputs[1].grad, 2 * inputs[0])
