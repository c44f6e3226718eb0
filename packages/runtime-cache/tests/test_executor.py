"""The native executor against the reference executor."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runtime_kernels import kernel
from runtime_plans import Case, cases, spec

from opmill_runtime_cache import _native
from opmill_runtime_cache.errors import BindError, KernelMissing, PlanError, PlanInputError, SizeCheckFailed
from opmill_runtime_cache.executor import bind, bind_reference
from opmill_runtime_cache.plan import decode, encode, parse, render, verify
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Check,
    Constant,
    Define,
    Item,
    KernelRef,
    Launch,
    ListArg,
    Literal,
    Plan,
    SizeInput,
    SizeOf,
    SizeOfStep,
    SizeOutput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)


def assert_same(got: tuple, want: tuple) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(a, b, equal_nan=True)
        assert a.stride() == b.stride() and not a.requires_grad


@given(cases(), st.integers(1, 4), st.integers(1, 4))
def test_native_agrees_with_reference(store, case: Case, rows: int, more_rows: int):
    held = case.held_tensors(0)
    native, reference = bind(case.plan, held, store), bind_reference(case.plan, held, store)
    assert isinstance(native, _native.Executable)
    for seed, count in enumerate((rows, more_rows, rows)):
        assert_same(native(*case.inputs(count, seed)), reference(*case.inputs(count, seed)))


def product_plan(rows="s0", dtype="float32"):
    """relu(x @ w + b) twice over an arena, x of s0 rows."""
    matrix = TensorSpec(dtype, (rows, 6), (6, 1))
    return Plan(
        "product",
        5,
        (
            TensorInput(0, matrix, name="x"),
            TensorInput(1, TensorSpec(dtype, (6, 6), (6, 1)), held=True, name="w"),
            TensorInput(2, TensorSpec(dtype, (6,), (1,)), held=True, name="b"),
        ),
        (SlotOutput(4),),
        (
            Alloc(3, matrix, 0),
            Call("aten::addmm.out", (Slot(2), Slot(0), Slot(1)), {"out": Slot(3)}),
            Call("aten::relu_", (Slot(3),), {}, (None,)),
            Alloc(4, matrix),
            Call("aten::addmm.out", (Slot(2), Slot(3), Slot(1)), {"out": Slot(4)}),
        ),
        (SizeOf("s0", 0, 0),) if rows == "s0" else (),
        arena=f"{rows}*48 + 64" if rows == "s0" else 512,
    )


def product(x, w, b):
    return torch.addmm(b, torch.relu(torch.addmm(b, x, w)), w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_of_each_type(store, dtype):
    x, w, b = torch.randn(3, 6, dtype=dtype), torch.randn(6, 6, dtype=dtype), torch.randn(6, dtype=dtype)
    [got] = bind(product_plan(dtype=str(dtype).removeprefix("torch.")), [w, b], store)(x)
    torch.testing.assert_close(got, product(x, w, b))


@pytest.mark.parametrize(
    "op,shapes,bias",
    [
        ("bmm", [(3, 4, 5), (3, 5, 2)], None), ("baddbmm", [(3, 4, 5), (3, 5, 2)], (4, 1)), ("baddbmm", [(1, 4, 5), (1, 5, 2)], (1, 4, 2)),
        ("bmm", [(3, 4, 70), (3, 70, 2)], None), ("baddbmm", [(3, 4, 70), (3, 70, 2)], (4, 1)), ("baddbmm", [(1, 4, 70), (1, 70, 2)], (1, 4, 2)),
    ],
)  # fmt: skip
def test_batched_products(store, op, shapes, bias):
    tensors = [torch.randn(s) for s in ([bias] if bias else []) + shapes]
    specs = [TensorSpec("float32", tuple(t.shape), t.stride()) for t in tensors]
    out = TensorSpec("float32", (shapes[0][0], 4, 2), (8, 2, 1))
    n = len(tensors)
    steps = (Alloc(n, out), Call(f"aten::{op}.out", tuple(map(Slot, range(n))), {"out": Slot(n)}))
    plan = Plan(op, n + 1, tuple(TensorInput(i, s) for i, s in enumerate(specs)), (SlotOutput(n),), steps)
    [got], want = bind(plan, [], store)(*tensors), getattr(torch, op)(*tensors)
    torch.testing.assert_close(got, want)
    assert shapes[0][2] > 5 or torch.equal(got, want), "torch does not leave the smallest to BLAS, which rounds otherwise"


def test_nan_in_fresh_memory_does_not_leak_through_beta_zero(store):
    plan = Plan(
        "beta",
        4,
        (TensorInput(0, spec(2, 2)), TensorInput(1, spec(2, 2)), TensorInput(2, spec(2, 2))),
        (),
        (Call("aten::addmm.out", (Slot(0), Slot(1), Slot(1)), {"beta": Literal(0.0), "out": Slot(2)}),),
    )
    out = torch.full((2, 2), torch.nan)
    bind(plan, [], store)(torch.full((2, 2), torch.nan), torch.eye(2), out)
    assert torch.equal(out, torch.eye(2))


def test_held_tensors_are_read_anew(store):
    w, b, x = torch.randn(6, 6), torch.randn(6), torch.randn(2, 6)
    run = bind(product_plan(), [w, b], store)
    run(x)
    w.mul_(2)
    torch.testing.assert_close(run(x)[0], product(x, w, b))
    w.data = torch.randn(6, 6)
    torch.testing.assert_close(run(x)[0], product(x, w, b))
    w.data = torch.randn(6, 6).t()
    with pytest.raises(PlanInputError, match="RC052.*'w'.*stride"):
        run(x)


def test_views_of_held_tensors_follow_the_storage(store):
    plan = Plan(
        "view",
        3,
        (TensorInput(0, spec(2, 3), held=True),),
        (SlotOutput(2),),
        (View(1, 0, (3, 2), (1, 3)), Call("aten::clone", (Slot(1),), {}, (2,))),
    )
    w = torch.randn(2, 3)
    run = bind(plan, [w], store)
    assert torch.equal(run()[0], w.t())
    w.data = torch.randn(2, 3)
    assert torch.equal(run()[0], w.t())


def test_arenas_are_not_visible_and_do_not_alias_results(store):
    run = bind(product_plan(), [torch.eye(6), torch.zeros(6)], store)
    first = run(torch.ones(4, 6))[0]
    run(torch.full((4, 6), 5.0))
    assert torch.equal(first, torch.ones(4, 6))
    escaping = Plan(
        "escape",
        2,
        (),
        (SlotOutput(1),),
        (Alloc(0, spec(2, 2), 0), Call("aten::fill_.Scalar", (Slot(0), Literal(3.0))), Call("aten::t", (Slot(0),), {}, (1,))),
        arena=64,
    )
    for make in (bind, bind_reference):
        run = make(escaping, [], store)
        result = run()[0]
        result.zero_()
        assert torch.equal(run()[0], torch.full((2, 2), 3.0))


def test_instances_are_reused(store):
    run = bind(product_plan(), [torch.eye(6), torch.zeros(6)], store)
    for rows in (1, 2, 1, 2):
        run(torch.ones(rows, 6))
    assert run.instances == 2
    run(torch.ones(50, 6))
    assert run.instances == 3 and run.arena_bytes == 50 * 48 + 64


def test_sizes_take_turns_with_one_arena(store):
    run = bind(product_plan(), [torch.eye(6), torch.zeros(6)], store)
    for rows in (3, 40, 7, 40, 3, 41, 1, 7):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(run(x)[0], torch.relu(x))
    assert run.instances == 5 and run.arena_bytes == 41 * 48 + 64


def test_plans_take_turns_with_one_arena_and_leave_none_behind(store):
    gc.collect()
    before = _native.idle_arena_bytes()
    runs = [bind(product_plan(), [torch.eye(6), torch.zeros(6)], store) for _ in range(3)]
    for rows in (30_000, 40_000, 7):
        for run in runs:
            x = torch.randn(rows, 6)
            torch.testing.assert_close(run(x)[0], torch.relu(x))
    assert _native.idle_arena_bytes() <= max(before, 40_000 * 48 + 64) + 64
    del run, runs
    gc.collect()
    assert _native.idle_arena_bytes() <= before


def test_arenas_of_threads(store):
    runs = [bind(product_plan(), [torch.eye(6) * (k + 1), torch.zeros(6)], store) for k in range(4)]

    def work(k):
        for rows in (5, 900, 70) * 20:
            x = torch.randn(rows, 6)
            torch.testing.assert_close(runs[k](x)[0], torch.relu(x) * (k + 1) ** 2)
            torch.testing.assert_close(runs[0](x)[0], torch.relu(x))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def chain_plan(last="aten::square"):
    """Two inputs used one after the other, the first through a view; a third that is returned; then ``last``."""
    steps = (
        View(3, 0, (2, 2), (2, 1), 0),
        Call("aten::exp", (Slot(3),), {}, (4,)),
        Call("aten::exp", (Slot(1),), {}, (5,)),
        Call("aten::mul.Tensor", (Slot(4), Slot(5)), {}, (6,)),
        Call(last, (Slot(6),), {}, (7,)),
    )
    inputs = tuple(TensorInput(k, spec(2, 2), False, name) for k, name in enumerate("abc"))
    return Plan("chain", 8, inputs, (SlotOutput(7), SlotOutput(2)), steps)


@pytest.mark.parametrize("make", [bind, bind_reference])
def test_inputs_that_are_given_away(make, store):
    run = make(chain_plan(), [], store)
    given = [torch.arange(4.0).view(2, 2) + k for k in range(3)]
    want = [t.clone() for t in run(*given)]
    watched = [weakref.ref(t) for t in given]
    got = run.take(given)
    assert given == [] and all(map(torch.equal, got, want))
    assert watched[2]() is not None
    del got
    assert [w() for w in watched] == [None] * 3
    with pytest.raises(PlanInputError, match="RC052"):
        run.take(bad := [torch.ones(3), torch.ones(2, 2), torch.ones(2, 2)])
    assert len(bad) == 3
    with pytest.raises(PlanInputError, match="RC050"):
        run.take([])


def test_inputs_that_are_given_away_go_with_their_last_step(store):
    """Memory of an input is there again for what comes after."""
    seen = []
    library = torch.library.Library("opmill_test_release", "FRAGMENT")
    library.define("look(Tensor x) -> Tensor")
    library.impl("look", lambda x: seen.append([w() is not None for w in watched]) or x.clone(), "CompositeExplicitAutograd")
    run = bind(chain_plan("opmill_test_release::look"), [], store)
    given = [torch.ones(2, 2) for _ in range(3)]
    watched = [weakref.ref(t) for t in given]
    run(*given)
    run.take(given)
    assert seen == [[True, True, True], [False, False, True]]


def test_the_arena_may_be_as_large_as_leading_definitions_say(store):
    plan = product_plan()
    text = [Define("rows", "s0 + 1"), Define("bytes", "max(rows*48, 64) + 64")]
    defined = msgspec.structs.replace(plan, steps=(*text, *plan.steps), arena="bytes")
    assert parse(render(defined)) == defined
    for make in (bind, bind_reference):
        run = make(defined, [torch.eye(6), torch.zeros(6)], store)
        for rows in (2, 9, 1):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(run(x)[0], torch.relu(x))
    late = msgspec.structs.replace(plan, steps=(plan.steps[0], *text, *plan.steps[1:]), arena="bytes")
    with pytest.raises(PlanError, match="RC011"):
        verify(late)


def test_strides_may_be_bound_as_sizes_are(store):
    spaced = TensorSpec("float32", ("s0", 3), ("s1", 1))
    plan = Plan(
        "spaced", 2, (TensorInput(0, spaced, name="x"),), (SlotOutput(1), SizeOutput("s1")),
        (Call("aten::mul.Scalar", (Slot(0), Literal(2.0)), {}, (1,)),), (SizeOf("s0", 0, 0), SizeOf("s1", 0, 0, stride=True)),
    )  # fmt: skip
    assert parse(render(plan)) == plan and decode(encode(plan)) == plan
    for make in (bind, bind_reference):
        run = make(plan, [], store)
        for rows, step in ((2, 3), (5, 7), (2, 9)):
            x = torch.randn(rows, step)[:, :3]
            got, stride = run(x)
            assert torch.equal(got, x * 2) and stride == step
        with pytest.raises(IndexError if make is bind else Exception):
            run(torch.tensor(1.0))


def test_threads(store):
    w, b = torch.randn(6, 6), torch.randn(6)
    run = bind(product_plan(), [w, b], store)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for i in range(60):
            x = torch.randn(1 + (seed + i) % 3, 6, generator=generator)
            if not torch.allclose(run(x)[0], product(x, w, b), atol=1e-5):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_reentrance(store):
    """An operator in Python calls the executable that is running."""
    library = torch.library.Library("opmill_test", "FRAGMENT")
    library.define("again(Tensor x, Scalar depth) -> Tensor")
    plan = Plan(
        "again",
        3,
        (TensorInput(0, spec(2, 2)), SizeInput("n")),
        (SlotOutput(2),),
        (
            Alloc(1, spec(2, 2), 0),
            Launch(0, (0, 0, 1), (4,), (2,)),
            Check("n >= 0", "negative"),
            Call("opmill_test::again", (Slot(1), Literal(1.0)), {}, (2,)),
        ),
        kernels=(kernel("add"),),
        arena=64,
    )
    run = bind(plan, [], store)
    depth = [0]

    def again(x, _):
        if depth[0] == 3:
            return x.clone()
        depth[0] += 1
        inner = run(x.clone(), 0)[0]
        return inner + x

    library.impl("again", again, "CompositeExplicitAutograd")
    try:
        assert torch.equal(run(torch.ones(2, 2), 0)[0], torch.full((2, 2), 2.0 + 4 + 8 + 16))
    finally:
        library._destroy()


def test_dynamic_sizes_inside_a_call(store):
    plan = Plan(
        "dynamic",
        4,
        (TensorInput(0, spec("s0", 2)), TensorInput(3, TensorSpec("int64", (), ()))),
        (SlotOutput(2), SizeOutput("n*10 + k")),
        (
            Call("aten::nonzero", (Slot(0),), {}, (1,)),
            SizeOfStep("n", 1, 0),
            Item("k", 3),
            Alloc(2, TensorSpec("float32", ("n", "k"), ("k", 1))),
            Call("aten::fill_.Scalar", (Slot(2), Literal(1.0))),
        ),
        (SizeOf("s0", 0, 0),),
    )
    for make in (bind, bind_reference):
        run = make(plan, [], store)
        for x, k in ((torch.tensor([[0.0, 1.0], [2.0, 3.0]]), 2), (torch.zeros(1, 2), 4)):
            out, number = run(x, torch.tensor(k))
            assert out.shape == (int((x != 0).sum()), k) and number == int((x != 0).sum()) * 10 + k


def test_results_of_sizes_known_inside_a_call_are_as_promised(store):
    """Laid out anew where their strides are not, refused where their sizes are not; a failed check of sizes has a type of its own."""
    plan = Plan(
        "late promises",
        4,
        (TensorInput(0, spec("s0", 2)),),
        (SlotOutput(2), SlotOutput(3)),
        (
            Call("aten::nonzero", (Slot(0),), {}, (1,)),
            SizeOfStep("n", 1, 0),
            Check("n != 1", "one is not wanted", "SizeCheckFailed"),
            Call("aten::mul.Scalar", (Slot(1), Literal(2)), {}, (2,), "", (TensorSpec("int64", ("n", 2), (2, 1)),)),
            Call("aten::sum.dim_IntList", (Slot(2), ListArg((Literal(1),))), {}, (3,), "", (TensorSpec("int64", ("min(n, 3)",), (1,)),)),
        ),
        (SizeOf("s0", 0, 0),),
    )
    for make in (bind, bind_reference):
        run = make(plan, [], store)
        for x in (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.zeros(1, 2)):
            found, total = run(x)
            assert torch.equal(found, x.nonzero() * 2) and torch.equal(total, found.sum(1))
            assert found.stride() == (2, 1)
        with pytest.raises(SizeCheckFailed, match="one is not wanted"):
            run(torch.tensor([[0.0, 1.0]]))
        with pytest.raises(PlanInputError, match="RC056"):
            run(torch.ones(2, 2))


def test_constants_and_other_widths(store):
    data = torch.tensor([1.5, -2.0])
    plan = Plan(
        "constant",
        3,
        (TensorInput(1, TensorSpec("int16", (4,), (1,))),),
        (SlotOutput(0), SlotOutput(2)),
        (View(2, 1, (2,), (1,), 0, "float32"),),
        constants=(Constant(0, TensorSpec("float32", (2,), (1,)), bytes(data.view(torch.uint8).tolist())),),
    )
    for make in (bind, bind_reference):
        constant, view = make(plan, [], store)(data.view(torch.int16))
        assert torch.equal(constant, data) and torch.equal(view, data)


def test_writes_of_kernels_count_as_versions(store):
    plan = Plan("bump", 1, (TensorInput(0, spec(2, 2)),), (), (Launch(0, (0, 0), (4, 3), (1,)),), kernels=(kernel("affine"),))
    for make in (bind, bind_reference):
        x = torch.ones(2, 2)
        version = x._version
        make(plan, [], store)(x)
        assert torch.equal(x, torch.full((2, 2), 4.0)) and x._version > version


def test_gradients_are_not_recorded_and_grad_mode_is_kept(store):
    w = torch.randn(6, 6, requires_grad=True)
    x = torch.randn(2, 6, requires_grad=True)
    [out] = bind(product_plan(), [w, torch.zeros(6)], store)(x)
    assert not out.requires_grad and torch.is_grad_enabled()


def test_views_that_leave_may_be_written_with_gradients(store):
    plan = Plan("row", 2, (TensorInput(0, spec(2, 2)),), (SlotOutput(1),), (View(1, 0, (2,), (1,)),))
    w = torch.ones(2, requires_grad=True)
    for make in (bind, bind_reference):
        x = torch.zeros(2, 2)
        [row] = make(plan, [], store)(x)
        row.add_(w)
        assert x.requires_grad and torch.equal(torch.autograd.grad(x.sum(), w)[0], w)


def test_errors_of_operators_are_torchs_own(store):
    plan = Plan(
        "bad", 2, (TensorInput(0, spec(2, 3)),), (SlotOutput(1),), (Call("aten::view", (Slot(0), ListArg((Literal(5),))), {}, (1,)),)
    )
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 6"):
        bind(plan, [], store)(torch.ones(2, 3))
    assert torch.is_grad_enabled()


def test_checks(store):
    plan = Plan(
        "checks",
        1,
        (TensorInput(0, spec("s0", 2)),),
        (SlotOutput(0),),
        (
            Check("s0 > 1", "too few rows", "ValueError"),
            Launch(0, (0,), ("s0*2",), (), (("RuntimeError", "never"), ("IndexError", "index out of range in self"))),
        ),
        (SizeOf("s0", 0, 0),),
        kernels=(kernel("checked"),),
    )
    for make in (bind, bind_reference):
        run = make(plan, [], store)
        run(torch.ones(2, 2))
        with pytest.raises(ValueError, match="too few rows"):
            run(torch.ones(1, 2))
        with pytest.raises(IndexError, match="index out of range in self"):
            run(-torch.ones(2, 2))


@pytest.mark.parametrize(
    "inputs,message",
    [
        ((), "RC050"),
        ((1,), "RC051"),
        ((torch.ones(2, 5),), "RC052"),
        ((torch.ones(2, 6).double(),), "RC052"),
        ((torch.ones(6, 2).t(),), "RC052"),
        ((torch.ones(2, 6, 1),), "RC052"),
    ],
)
def test_inputs_of_the_wrong_kind(store, inputs, message):
    for make in (bind, bind_reference):
        with pytest.raises((PlanInputError, IndexError), match=message):
            make(product_plan(), [torch.eye(6), torch.zeros(6)], store)(*inputs)


def test_binding_errors(store):
    with pytest.raises(BindError, match="RC030"):
        bind(product_plan(), [torch.eye(6)], store)
    with pytest.raises(BindError, match="RC036"):
        bind(Plan("none", 0, (), (), (Call("aten::no_such_thing", ()),)), [], store)
    missing = Plan("missing", 0, (), (), (Launch(0, ()),), kernels=(KernelRef("cpu", "cpu-so", "0" * 64, "f"),))
    with pytest.raises(KernelMissing, match="RC031"):
        bind(missing, [], store)
    with pytest.raises(BindError, match="RC033"):
        bind(Plan("entry", 0, (), (), (), kernels=(kernel("nothing"),)), [], store)
    with pytest.raises(PlanError, match="RC014"):
        bind(Plan("illegal", 1, (), (SlotOutput(0),), ()), [], store)


def test_division_by_zero_in_sizes(store):
    plan = Plan("zero", 0, (SizeInput("n"),), (SizeOutput("7//n"),), ())
    for make in (bind, bind_reference):
        run = make(plan, [], store)
        assert run(-2) == (-4,)
        with pytest.raises(ZeroDivisionError):
            run(0)


@pytest.mark.parametrize("make", [bind, bind_reference])
def test_a_result_with_other_strides_than_promised_is_laid_out_as_promised(make, store):
    """The product after the transposition reads by the promised strides."""
    columns = TensorSpec("float32", (6, 6), (1, 6))
    steps = (
        Call("aten::relu", (Slot(0),), {}, (1,), specs=(columns,)),
        Alloc(2, spec(6, 6)),
        Call("aten::mm.out", (Slot(1), Slot(1)), {"out": Slot(2)}),
    )
    plan = Plan("promise", 3, (TensorInput(0, spec(6, 6)),), (SlotOutput(1), SlotOutput(2)), steps)
    x = torch.randn(6, 6)
    relu, product_ = make(plan, [], store)(x)
    assert relu.stride() == (1, 6) and torch.equal(relu, x.relu())
    torch.testing.assert_close(product_, x.relu() @ x.relu())


@pytest.mark.parametrize("make", [bind, bind_reference])
@pytest.mark.parametrize("promised", [TensorSpec("float32", (6, 5), (5, 1)), TensorSpec("float64", (6, 6), (6, 1))])
def test_a_result_of_another_size_or_type_than_promised_is_an_error(make, promised, store):
    plan = Plan(
        "promise", 2, (TensorInput(0, spec(6, 6)),), (SlotOutput(1),), (Call("aten::relu", (Slot(0),), {}, (1,), specs=(promised,)),)
    )
    run = make(plan, [], store)
    for _ in range(2):
        with pytest.raises(PlanInputError, match="RC056"):
            run(torch.randn(6, 6))


@pytest.mark.parametrize("make", [bind, bind_reference])
def test_a_written_input_must_not_share_memory_with_another(make, store):
    steps = (Call("aten::add_.Scalar", (Slot(0), Literal(1.0)), {}, (None,)), Call("aten::mul.Scalar", (Slot(1), Literal(2.0)), {}, (2,)))
    plan = Plan(
        "alias", 3, tuple(TensorInput(i, TensorSpec("float32", (4,), (1,))) for i in range(2)), (SlotOutput(2),), steps, exclusive=(0,)
    )
    run = make(plan, [], store)
    block = torch.ones(8)
    assert torch.equal(run(block[:4], block[4:])[0], torch.full((4,), 2.0))
    for a, b in [(block[:4], block[1:5]), (block[2:6], block[:4]), (block[:4], block[:4])]:
        before = block.clone()
        with pytest.raises(PlanInputError, match="RC057"):
            run(a, b)
        assert torch.equal(block, before)


@given(st.data())
def test_memory_that_inputs_share_is_found_as_by_looking_at_each_pair(store, data):
    """``any two share an element and one of them is written`` is what is refused, however many inputs there are and in whatever order they
    lie."""
    count = data.draw(st.integers(2, 6))
    written = data.draw(st.sets(st.integers(0, count - 1), max_size=count))
    starts = data.draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    inputs = tuple(TensorInput(i, TensorSpec("float32", (n,), (1,))) for i, n in enumerate(lengths))
    plan = Plan(
        "alias",
        count + 1,
        inputs,
        (SlotOutput(count),),
        (Call("aten::mul.Scalar", (Slot(0), Literal(2.0)), {}, (count,)),),
        exclusive=tuple(sorted(written)),
    )
    block = torch.arange(50.0)
    covered = [set(range(a, a + n)) for a, n in zip(starts, lengths, strict=True)]
    refused = any(covered[a] & covered[b] for a in written for b in range(count) if a != b)
    for make in (bind, bind_reference):
        try:
            make(plan, [], store)(*(block[a : a + n] for a, n in zip(starts, lengths, strict=True)))
            assert not refused
        except PlanInputError as error:
            assert refused and "RC057" in str(error)
