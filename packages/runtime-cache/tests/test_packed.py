"""Products with matrices that stay, which the native executor packs: against float64, other numbers of rows, matrices that move, and refusals."""

import threading

import pytest
import torch
from runtime_kernels import kernel
from runtime_plans import spec

from opmill_runtime_cache.errors import BindError, PlanError
from opmill_runtime_cache.executor import bind, bind_reference, packs_matrices
from opmill_runtime_cache.plan.codec import decode, encode
from opmill_runtime_cache.plan.model import Alloc, Call, Launch, Literal, Plan, SizeOf, Slot, SlotOutput, TensorInput, TensorSpec, View
from opmill_runtime_cache.plan.text import parse, render

ROWS, DEPTH, COLUMNS = 40, 70, 96


def product(bias=False, linear=True, beta=1, alpha=1, rows=ROWS, multiplied=ROWS, first=(DEPTH, 1), out=(COLUMNS, 1), columns=COLUMNS):
    """``beta * bias + alpha * x @ w``. ``linear``: w lies as linear layers hold it; ``rows``: a size, or a symbol."""
    held = spec(COLUMNS, DEPTH) if linear else spec(DEPTH, COLUMNS)
    inputs = [TensorInput(0, TensorSpec("float32", (rows, DEPTH), first)), TensorInput(1, held, held=True, multiplied=multiplied)]
    w = View(2, 1, (DEPTH, columns), (1, DEPTH) if linear else (COLUMNS, 1), 0 if columns == COLUMNS else DEPTH)
    y = Alloc(3, TensorSpec("float32", (rows, columns), out))
    call = Call("aten::mm.out", (Slot(0), Slot(2)), {"out": Slot(3)})
    if bias:
        inputs.append(TensorInput(4, TensorSpec("float32", (columns,), (1,))))
        call = Call("aten::addmm.out", (Slot(4), Slot(0), Slot(2)), {"beta": Literal(beta), "alpha": Literal(alpha), "out": Slot(3)})
    bindings = () if type(rows) is int else (SizeOf(rows, 0, 0),)
    return Plan("product", 5, tuple(inputs), (SlotOutput(3),), (w, y, call), bindings)


def near(found, exact):
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(("bias", "beta", "alpha"), [(False, 1, 1), (True, 1, 1), (True, 0, 1), (True, 0.5, -2)])
def test_results_are_those_of_float64(store, linear, bias, beta, alpha):
    plan = product(bias, linear, beta, alpha)
    w, x, b = torch.randn(COLUMNS, DEPTH) if linear else torch.randn(DEPTH, COLUMNS), torch.randn(ROWS, DEPTH), torch.randn(COLUMNS)
    exact = alpha * x.double() @ (w.t() if linear else w).double() + (beta * b.double() if bias else 0)
    given = (x, b) if bias else (x,)
    for make in (bind, bind_reference):
        run = make(plan, [w], store)
        for _ in range(3):
            near(run(*given)[0], exact)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", [(DEPTH, 1), (100, 1), (1, ROWS)])
@pytest.mark.parametrize("out", [(COLUMNS, 1), (128, 1), (1, ROWS)])
def test_what_is_multiplied_and_the_result_may_lie_otherwise(store, first, out, threads):
    w, x = torch.randn(COLUMNS, DEPTH), torch.empty_strided((ROWS, DEPTH), first).normal_()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        [y] = bind(product(first=first, out=out), [w], store)(x)
        assert y.stride() == out
        near(y, x.double() @ w.t().double())
    finally:
        torch.set_num_threads(before)


def test_a_part_of_a_matrix_and_special_values(store):
    w, x = torch.randn(COLUMNS, DEPTH), torch.randn(ROWS, DEPTH)
    near(bind(product(columns=20), [w], store)(x)[0], x.double() @ w[1:21].t().double())
    x[0, 0], x[1, 0], w[3, 5] = float("nan"), float("inf"), -float("inf")
    found, wanted = bind(product(), [w], store)(x)[0], x @ w.t()
    assert torch.equal(found.isnan(), wanted.isnan()) and torch.equal(found.isinf(), wanted.isinf())


def test_other_numbers_of_rows_read_the_matrix_as_it_is(store):
    w = torch.randn(COLUMNS, DEPTH)
    run = bind(product(rows="s0"), [w], store)
    for rows in (ROWS, 1, 7, ROWS, 64, 300):
        x = torch.randn(rows, DEPTH)
        near(run(x)[0], x.double() @ w.t().double())


@pytest.mark.skipif(not packs_matrices(), reason="this torch's products do not read packed matrices")
def test_the_matrix_is_read_once_and_another_is_not_taken_for_it(store):
    w, x = torch.randn(COLUMNS, DEPTH), torch.randn(ROWS, DEPTH)
    run = bind(product(), [w], store)
    before = run(x)[0]
    w.zero_()
    assert torch.equal(run(x)[0], before), "it was promised to stay"
    memory = w.data
    w.data = torch.ones_like(w)
    near(run(x)[0], x.double().sum(1, keepdim=True).expand(-1, COLUMNS))
    w.data = memory
    assert torch.equal(run(x)[0], before)
    unmarked = bind(product(multiplied=0), [w], store)
    assert not unmarked(x)[0].any()


def test_threads_share_what_is_packed(store):
    w, x = torch.randn(COLUMNS, DEPTH), torch.randn(ROWS, DEPTH)
    run = bind(product(), [w], store)
    exact, found = x.double() @ w.t().double(), []
    threads = [threading.Thread(target=lambda: found.extend(run(x)[0] for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for y in found:
        near(y, exact)


def test_plans_that_say_so_are_written_and_read():
    plan = product()
    assert "multiplied=40" in render(plan) and parse(render(plan)) == plan and decode(encode(plan)) == plan


@pytest.mark.parametrize(("held", "opaque", "rows"), [(False, False, 3), (True, True, 3), (True, False, -1), (True, False, 1 << 31)])
def test_only_matrices_that_are_held_stay(held, opaque, rows, store):
    plan = Plan("wrong", 1, (TensorInput(0, spec(2, 2), held=held, opaque=opaque, multiplied=rows),), (), ())
    with pytest.raises(PlanError, match="RC083"):
        bind(plan, [torch.ones(2, 2)] * held, store)


def test_what_stays_is_not_written(store):
    w = torch.ones(2, 2)
    inputs = (TensorInput(0, spec(2, 2), held=True, multiplied=30),)
    by_an_operator = Plan(
        "writes", 2, inputs, (), (View(1, 0, (4,), (1,)), Call("aten::fill_.Scalar", (Slot(1), Literal(0.0)), {}, (None,)))
    )
    with pytest.raises(BindError, match="RC049.*promised to stay"):
        bind(by_an_operator, [w], store)
    by_a_kernel = Plan("writes", 1, inputs, (), (Launch(0, (0, 0), (4, 2), (1,)),), kernels=(kernel("affine"),))
    with pytest.raises(BindError, match="RC049.*promised to stay"):
        bind(by_a_kernel, [w], store)
    assert w.all()
