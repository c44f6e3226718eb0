"""Ways through the native executor: scalars, oneDNN operators, wide biases, views of held tensors, the GIL, memory, and going without."""

import gc
import resource
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runtime_kernels import kernel
from runtime_plans import spec

from opmill_runtime_cache import _native
from opmill_runtime_cache.errors import BindError, ExecutorWarning, PlanError
from opmill_runtime_cache.executor import bind, bind_reference, native
from opmill_runtime_cache.executor.names import operator_of
from opmill_runtime_cache.executor.routes import way_of
from opmill_runtime_cache.plan.model import (
    DTYPES,
    Alloc,
    Call,
    Expr,
    Launch,
    ListArg,
    Literal,
    Plan,
    SizeInput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)
from opmill_runtime_cache.plan.verify import verify

SHIM = 2


def spec_of(tensor):
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride()))


def one_call(op, tensors, args, kwargs=None, sizes=()):
    """A plan that calls one operator on its inputs and returns the result."""
    inputs = tuple(TensorInput(i, spec_of(t)) for i, t in enumerate(tensors)) + tuple(SizeInput(name) for name in sizes)
    n = len(tensors)
    call = Call(op, tuple(args), kwargs or {}, (n,))
    return Plan(op, n + 1, inputs, (SlotOutput(n),), (call,))


def route(plan):
    specs = {item.slot: item.spec for item in plan.inputs if type(item) is TensorInput}
    [call] = plan.steps
    return way_of(call, operator_of(call.op), lambda size: 0, lambda slot: slot, lambda slot: DTYPES.index(specs[slot].dtype)).route


SCALARS = st.one_of(st.integers(-3, 3), st.sampled_from([2**53, 2**53 + 1, 0.5, -0.0, float("inf"), float("nan"), True]))


@given(
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64]),
    st.sampled_from(["add.Tensor", "add.Scalar", "mul.Scalar", "pow.Tensor_Scalar", "pow.Scalar", "clamp"]),
    SCALARS,
    SCALARS,
)
def test_scalars_keep_values_and_types(store, dtype, op, scalar, alpha):
    x = torch.tensor([-2, 0, 1, 3]).to(dtype)
    args = {
        "add.Tensor": ((Slot(0), Slot(0)), {"alpha": Literal(alpha)}),
        "add.Scalar": ((Slot(0), Literal(scalar), Literal(alpha)), {}),
        "pow.Scalar": ((Literal(scalar), Slot(0)), {}),
    }.get(op, ((Slot(0), Literal(scalar)), {}))
    plan = one_call(f"aten::{op}", [x], *args)
    try:
        [want] = bind_reference(plan, [], store)(x)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            bind(plan, [], store)(x)
        return
    [got] = bind(plan, [], store)(x)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=0)


def several(op, tensors, args, count, dropped=0, **kwargs):
    """A plan that calls one operator on its inputs and returns its first ``count`` results; ``dropped`` follow."""
    n = len(tensors)
    inputs = tuple(TensorInput(i, spec_of(t)) for i, t in enumerate(tensors))
    call = Call(op, tuple(args), kwargs, (*range(n, n + count), *[None] * dropped))
    return Plan(op, n + count, inputs, tuple(SlotOutput(n + k) for k in range(count)), (call,))


def numbers(*items):
    return ListArg(tuple(Literal(item) for item in items))


@pytest.mark.parametrize("bias", [None, (4,)], ids=["no bias", "bias"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_backward_of_convolution_goes_through_its_shim(store, bias, count):
    if bias is None and count == 3:
        pytest.skip("there is no third gradient")
    gradient, x, w = torch.randn(2, 4, 6, 6), torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    mask = [k < count for k in range(3)]
    sizes = Literal(None) if bias is None else numbers(*bias)
    args = (
        *map(Slot, range(3)),
        sizes,
        numbers(1, 1),
        numbers(1, 1),
        numbers(1, 1),
        Literal(False),
        numbers(0, 0),
        Literal(1),
        numbers(*mask),
    )
    plan = several("aten::convolution_backward", [gradient, x, w], args, count, 3 - count)
    assert route(plan) == SHIM
    for got, want in zip(bind(plan, [], store)(gradient, x, w), bind_reference(plan, [], store)(gradient, x, w), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_backward_of_attention_goes_through_its_shim(store, masked):
    q, k, v = (torch.randn(2, 3, 8, 16) for _ in range(3))
    mask = [torch.randn(2, 1, 8, 8)] if masked else []
    extra = {"attn_mask": mask[0]} if masked else {}
    out, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, not masked, **extra)
    tensors = [torch.randn_like(out), q, k, v, out, logsumexp, *mask]
    args = (*map(Slot, range(6)), Literal(0.0), Literal(not masked))
    given = {"attn_mask": Slot(6)} if masked else {}
    plan = several("aten::_scaled_dot_product_flash_attention_for_cpu_backward", tensors, args, 3, **given)
    assert route(plan) == SHIM
    for got, want in zip(bind(plan, [], store)(*tensors), bind_reference(plan, [], store)(*tensors), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_none_where_a_schema_asks_for_a_tensor(store):
    """Fused attention on GPUs is called so: without a mask its backward gets a tensor that is undefined."""
    with torch.library._scoped_library("opmill_runtime_cache_tests", "FRAGMENT") as library:
        library.define("or_one(Tensor a, Tensor b) -> Tensor")
        library.impl("or_one", lambda a, b: a + 1 if b is None else a + b, "CPU")
        x, y = torch.randn(3), torch.randn(3)
        for args, want in (((Slot(0), Literal(None)), x + 1), ((Slot(0), Slot(1)), x + y)):
            plan = several("opmill_runtime_cache_tests::or_one", [x, y], args, 1)
            assert route(plan) == 0
            for make in (bind, bind_reference):
                torch.testing.assert_close(make(plan, [], store)(x, y)[0], want)


def test_integer_scalars_of_floating_tensors_need_no_python(store):
    x = torch.randn(3)
    plan = one_call("aten::mul.Scalar", [x], (Slot(0), Literal(3)))
    assert route(plan) == SHIM and torch.equal(bind(plan, [], store)(x)[0], x * 3)
    symbolic = one_call("aten::mul.Scalar", [x], (Slot(0), Expr("n*2")), sizes=("n",))
    assert route(symbolic) == SHIM and torch.equal(bind(symbolic, [], store)(x, 5)[0], x * 10)
    assert route(one_call("aten::mul.Scalar", [x.int()], (Slot(0), Literal(3)))) != SHIM


def ints(*values):
    return ListArg(tuple(map(Literal, values)))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize(
    "attr,scalars,algorithm",
    [("none", (), ""), ("relu", (), None), ("leaky_relu", (0.1,), None), ("hardtanh", (0.0, 6.0), ""), ("gelu", (), "tanh")],
)
def test_onednn_convolutions(store, attr, scalars, algorithm):
    x, w, b = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    tail = (Literal(attr), ListArg(tuple(map(Literal, scalars))), Literal(algorithm))
    args = (Slot(0), Slot(1), Slot(2), ints(1, 1), ints(1, 1), ints(1, 1), Literal(1), *tail)
    plan = one_call("mkldnn::_convolution_pointwise", [x, w, b], args)
    assert route(plan) == SHIM
    torch.testing.assert_close(bind(plan, [], store)(x, w, b), bind_reference(plan, [], store)(x, w, b))
    without = one_call("mkldnn::_convolution_pointwise", [x, w], (Slot(0), Slot(1), Literal(None), *args[3:]))
    torch.testing.assert_close(bind(without, [], store)(x, w), bind_reference(without, [], store)(x, w))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("name", ["_convolution_pointwise.binary", "_convolution_pointwise_.binary"])
@pytest.mark.parametrize("alpha,unary", [(None, None), (1.0, "relu")])
def test_onednn_convolutions_with_an_addend(store, name, alpha, unary):
    x, w, b = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    other = torch.randn(2, 4, 8, 8)
    first = (Slot(3), Slot(0)) if "_." in name else (Slot(0), Slot(3))
    tail = (Literal("add"), Literal(alpha), Literal(unary), ListArg(()), Literal(None))
    plan = one_call(f"mkldnn::{name}", [x, w, b, other], (*first, Slot(1), Slot(2), ints(1, 1), ints(1, 1), ints(1, 1), Literal(1), *tail))
    got = bind(plan, [], store)(x, w, b, other.clone())
    torch.testing.assert_close(got, bind_reference(plan, [], store)(x, w, b, other.clone()))


@pytest.mark.parametrize("rows,columns,bias", [(300, 700, (700,)), (300, 700, (300, 1)), (700, 300, (700, 300)), (3, 70000, (1,))])
def test_wide_biases(store, rows, columns, bias):
    tensors = [torch.randn(bias), torch.randn(rows, 2), torch.randn(2, columns)]
    call = Call("aten::addmm.out", (Slot(0), Slot(1), Slot(2)), {"out": Slot(3)})
    plan = Plan(
        "wide", 4, tuple(TensorInput(i, spec_of(t)) for i, t in enumerate(tensors)), (SlotOutput(3),), (Alloc(3, spec(rows, columns)), call)
    )
    torch.testing.assert_close(bind(plan, [], store)(*tensors)[0], torch.addmm(*tensors))


def test_views_of_held_tensors_last_as_long_as_their_memory(store):
    plan = Plan(
        "lasting",
        3,
        (TensorInput(0, spec(2, 3), held=True),),
        (SlotOutput(2),),
        (View(1, 0, (3, 2), (1, 3)), Call("aten::clone", (Slot(1),), {}, (2,))),
    )
    w = torch.randn(2, 3)
    run = bind(plan, [w], store)
    for change in (
        lambda: None,
        lambda: w.add_(1),
        lambda: setattr(w, "data", torch.randn(2, 3)),
        lambda: w.set_(torch.randn(6).view(2, 3)),
    ):
        change()
        assert torch.equal(run()[0], w.t()) and torch.equal(run()[0], w.t())


def test_another_thread_goes_on_during_a_long_plan(store):
    """The kernel waits for an answer that needs the GIL."""
    flag = torch.zeros(1)
    checks = (("RuntimeError", "no answer came"),)
    launch = Launch(0, (0,), (), (0,), checks)
    plan = Plan("long", 1, (TensorInput(0, TensorSpec("float32", (1,), (1,))),), (), (launch,), kernels=(kernel("answered"),))
    run = bind(plan, [], store)
    rounds = 3

    def answer():
        for _ in range(rounds):
            while flag.item() != 1:
                pass
            flag.fill_(2)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for _ in range(rounds):
        run(flag)
    thread.join()


def test_without_the_native_executor_plans_run_in_python(store, monkeypatch):
    monkeypatch.setattr(native, "_load", lambda: "torch 0.0 does not offer this to native code")
    native._warn_once.cache_clear()
    x = torch.randn(2, 3)
    plan = one_call("aten::relu", [x], (Slot(0),))
    with pytest.warns(ExecutorWarning, match=r"RC070.*torch 0\.0"):
        run = bind(plan, [], store)
    assert torch.equal(run(x)[0], x.relu()) and not isinstance(run, _native.Executable)
    bind(plan, [], store)  # the second time without a warning: warnings are errors here
    native._warn_once.cache_clear()


def test_a_torch_without_a_symbol_is_named():
    tensor = torch.empty(1)
    libraries = native.torch_library("torch_cpu"), native.torch_library("torch_python")
    assert _native.load(*libraries, tensor, 12345, torch._C.TensorBase, native._numbered) == "the tensor inside a Python tensor"
    assert "libtorch_cpu" in _native.load("nowhere.so", libraries[1], tensor, tensor._cdata, torch._C.TensorBase, native._numbered)
    assert _native.load(*libraries, tensor, tensor._cdata, torch._C.TensorBase, native._numbered) is None


def overlapping(out, factor):
    """mm.out from one arena tensor into another, both 2x2 floats at byte offsets given (or views of one buffer by element)."""
    return Plan(
        "overlap",
        4,
        (TensorInput(0, spec(2, 2)),),
        (),
        (Alloc(1, spec(2, 2), factor), Alloc(2, spec(2, 2), out), Call("aten::mm.out", (Slot(0), Slot(1)), {"out": Slot(2)})),
        arena=256,
    )


def test_a_product_must_not_be_written_over_its_factors():
    verify(overlapping(64, 0))
    for plan in (
        overlapping(0, 0),
        Plan("same", 2, (TensorInput(0, spec(2, 2)),), (), (Call("aten::mm.out", (Slot(0), Slot(0)), {"out": Slot(0)}),)),
        Plan("rows", 2, (TensorInput(0, spec("n", 2)), SizeInput("n")), (), (Call("aten::mm.out", (Slot(0), Slot(0)), {"out": Slot(0)}),)),
    ):
        with pytest.raises(PlanError, match="RC028"):
            verify(plan)
    column = [View(1, 0, (4, 4), (8, 1)), View(2, 0, (4, 4), (8, 1), 4)]  # side by side: spans overlap, elements do not
    call = Call("aten::mm.out", (Slot(1), Slot(1)), {"out": Slot(2)})
    verify(Plan("columns", 3, (TensorInput(0, spec(4, 8)),), (), (*column, call)))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell how much memory is in use")
def test_many_calls_leave_nothing_behind(store):
    x, w = torch.randn(4, 6), torch.randn(6, 6)
    steps = (
        Alloc(2, spec(4, 6), 0),
        Call("aten::mm.out", (Slot(0), Slot(1)), {"out": Slot(2)}),
        View(3, 1, (6, 6), (1, 6)),
        Call("aten::mm", (Slot(2), Slot(3)), {}, (4,)),
        Call("aten::mul.Scalar", (Slot(4), Literal(2)), {}, (5,)),
        Call("aten::split.Tensor", (Slot(5), Literal(2)), {}, (6, 7)),
        Call("aten::clamp", (Slot(7), Literal(0)), {}, (8,)),
        Alloc(9, spec(4, 6)),
    )
    plan = Plan(
        "leak", 10, (TensorInput(0, spec(4, 6)), TensorInput(1, spec(6, 6), held=True)), (SlotOutput(8), SlotOutput(9)), steps, arena=128
    )
    run = bind(plan, [w], store)

    def rounds(count):
        for _ in range(count):
            run(x)
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        return resident, sys.getrefcount(x), sys.getrefcount(w)

    before = rounds(500)
    after = rounds(20_000)
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 1_500_000  # one leaked handle a call would be 5 MB


def test_an_operator_of_another_library_that_fails_runs_once(store):
    """Its second call might seem to work, as the second wait for an exchange that failed does."""
    calls = []
    with torch.library._scoped_library("runtime_cache_tests", "DEF") as library:
        library.define("fails_once(Tensor x) -> Tensor")

        def fails_once(x):
            calls.append(x.shape)
            if len(calls) == 1:
                raise ValueError("only once")
            return x + 1

        library.impl("fails_once", fails_once, "CPU")
        x = torch.ones(3)
        bound = bind(one_call("runtime_cache_tests::fails_once", [x], [Slot(0)]), [], store)
        with pytest.raises(ValueError, match="only once"):
            bound(x)
        assert len(calls) == 1
        assert torch.equal(bound(x)[0], x + 1)


TRANSFORMS = {
    "aten::_fft_r2c": (torch.float32, (0, True)),
    "aten::_fft_c2c": (torch.complex64, (0, True)),
    "aten::_fft_c2r": (torch.complex64, (0, 8)),
}


@pytest.mark.parametrize("op", TRANSFORMS)
@pytest.mark.parametrize("dims", [(1,), (0, 1), (2,), (-1,), (0, 1 << 40), (1, 1)])
def test_transforms_are_told_dimensions_that_there_are(op, dims, store):
    """Torch's kernels take them without a look, and read beyond the tensor's strides."""
    dtype, rest = TRANSFORMS[op]
    x = torch.randn(3, 5, dtype=dtype)
    listed = ListArg(tuple(Literal(d) for d in dims))
    run = bind(one_call(op, [x], [Slot(0), listed, *(Literal(value) for value in rest)]), [], store)
    if dims not in ((1,), (0, 1)):
        with pytest.raises(BindError, match=rf"\[RC045\] {op} is told of dimensions that its tensor has not got"):
            run(x)
        return
    [got] = run(x)
    torch.testing.assert_close(got, operator_of(op)(x, list(dims), *rest))
