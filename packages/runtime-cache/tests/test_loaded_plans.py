"""Plans from outside: none of their texts becomes code, whichever executor takes them."""

import itertools

import pytest
import torch
from runtime_kernels import kernel

from opmill_runtime_cache.errors import BindError, PlanError, PlanInputError, RuntimeCacheError
from opmill_runtime_cache.executor import bind, bind_reference
from opmill_runtime_cache.executor.names import exception_of, named, operator_of
from opmill_runtime_cache.plan import decode, encode
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    ComplexArg,
    Constant,
    Expr,
    Launch,
    ListArg,
    Literal,
    Named,
    Plan,
    SizeInput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)

ROW = TensorSpec("float32", (8,), (1,))
TEXT = "__import__('os').abort()"
BINDERS = {"native": bind, "reference": bind_reference}


@pytest.fixture(params=BINDERS)
def binder(request):
    return BINDERS[request.param]


def call(op: str, *args, sizes=(), **kwargs) -> Plan:
    """A plan of one call, written to bytes and read again. The input is in slot 0, the result in slot 1."""
    inputs = (TensorInput(0, ROW), *map(SizeInput, sizes))
    return decode(encode(Plan("p", 2, inputs, (SlotOutput(1),), (Call(op, args, kwargs, (1,)),))))


@pytest.mark.parametrize(
    "name",
    ["a=1: (yield)", f"x={TEXT}", "a b", "", "dim, *", "1", "\u017felf"],
    ids=["yield", "call", "words", "empty", "star", "number", "letters"],
)
def test_names_of_keywords_are_names(name):
    with pytest.raises(PlanError, match="RC021"):
        call("aten::sum", Slot(0), **{name: Literal(1)})


@pytest.mark.parametrize(
    "arg", [Literal(TEXT), ListArg((Literal(TEXT),)), Named("dtype", TEXT), Named("dtype", "load"), Named("layout", "load"), Named("device", TEXT), Named("what", "load")]
)  # fmt: skip
@pytest.mark.parametrize("where", ["first", "second", "keyword"])
def test_texts_of_arguments_are_values(store, binder, arg, where):
    given = {"first": (arg,), "second": (Slot(0), arg), "keyword": (Slot(0), ListArg((Literal(0),)))}[where]
    made = call("aten::sum.dim_IntList", *given, **({"dtype": arg} if where == "keyword" else {}))
    with pytest.raises((RuntimeCacheError, RuntimeError, TypeError)):
        binder(made, [], store)(torch.ones(8))


def test_names_of_torch_are_constants_of_their_kind():
    assert named("dtype", "float64") is torch.float64 and named("layout", "strided") is torch.strided
    assert named("memory_format", "channels_last") is torch.channels_last and named("device", "cpu") == torch.device("cpu")
    for kind, name in (
        ("dtype", "strided"),
        ("dtype", "nn"),
        ("dtype", "__doc__"),
        ("layout", "float32"),
        ("dtype", "_dynamo"),
        ("other", "load"),
    ):
        with pytest.raises(BindError, match="RC035"):
            named(kind, name)


@pytest.mark.parametrize(
    "name",
    ["aten::unheard_of", "aten", "aten::add.Tensor.x", "aten::__class__", "aten::add.overloads", "__class__::mro", "aten::add.a b", ""],
)
def test_names_that_are_no_operators(name):
    with pytest.raises(BindError, match="RC036"):
        operator_of(name)


def test_names_of_exceptions():
    assert exception_of("ValueError") is ValueError and exception_of("torch.OutOfMemoryError") is torch.OutOfMemoryError
    assert all(exception_of(name) is RuntimeError for name in ("SystemExit", "KeyboardInterrupt", "eval", "torch.load", "", "nn.Module"))


def test_calls_are_given_what_they_name(store, binder):
    """Slots twice, sizes alone and in lists, constants and lists of them, keywords: as a call of torch's own gives."""
    x = torch.arange(8.0)
    for made, want in (
        (call("aten::cat", ListArg((Slot(0), Slot(0), Slot(0)))), torch.cat([x, x, x])),
        (call("aten::view", Slot(0), ListArg((Expr("n"), Literal(-1))), sizes=("n",)), x.view(4, 2)),
        (
            call("aten::new_full", Slot(0), ListArg((Expr("n"), Expr(2))), Expr("n*n"), dtype=Named("dtype", "int64"), sizes=("n",)),
            torch.full((4, 2), 16),
        ),
        (
            call("aten::new_full", Slot(0), ListArg((Literal(2),)), ComplexArg(1.0, -2.0), dtype=Named("dtype", "complex64")),
            torch.full((2,), 1 - 2j),
        ),
    ):
        run = binder(made, [], store)
        numbers = [4] if len(made.inputs) > 1 else []
        for _ in range(2):
            assert torch.equal(run(x, *numbers)[0], want)


def over_one_input(op: str, places: list[int], out: int) -> Plan:
    """A call of an operator whose arguments and ``out`` are matrices in one input of 32 elements, which begin there."""
    views = tuple(View(1 + k, 0, (2, 2), (2, 1), at) for k, at in enumerate([out, *places]))
    step = Call(op, tuple(Slot(2 + k) for k in range(len(places))), {"out": Slot(1)})
    inputs = (TensorInput(0, TensorSpec("float32", (32,), (1,))),)
    return decode(encode(Plan("p", 2 + len(places), inputs, (), (*views, step), exclusive=(0,))))


OVERLAPS = {  # where arguments begin, where `out` does, and whether that is right
    "apart": ("aten::addmm.out", [4, 8, 12], 16, True),
    "added to where it is": ("aten::addmm.out", [4, 8, 12], 4, True),
    "added to, further on": ("aten::addmm.out", [4, 8, 12], 5, False),
    "added to, before it": ("aten::addmm.out", [4, 8, 12], 2, False),
    "added to what is a factor as well": ("aten::addmm.out", [4, 4, 12], 4, False),
    "in place": ("aten::add.out", [4, 8], 4, True),
    "one element further on": ("aten::add.out", [4, 8], 5, False),
    "a product beside its factor": ("aten::mm.out", [4, 8], 5, False),
}


@pytest.mark.parametrize("what", OVERLAPS)
def test_an_operator_does_not_write_over_what_it_still_reads(store, binder, what):
    op, places, out, right = OVERLAPS[what]
    x = torch.arange(32.0) / 7
    if not right:
        with pytest.raises(RuntimeCacheError, match="RC058|RC028"):
            binder(over_one_input(op, places, out), [], store)(x)
        return
    pieces = [x[at : at + 4].view(2, 2).clone() for at in places]
    want = torch.addmm(*pieces) if "addmm" in op else torch.add(*pieces)
    binder(over_one_input(op, places, out), [], store)(x)
    assert torch.allclose(x[out : out + 4].view(2, 2), want)


def test_an_index_that_would_change_under_its_operator(store, binder):
    x = torch.zeros(32, dtype=torch.int64)
    views = (View(1, 0, (8,), (1,), 0), View(2, 0, (8,), (1,), 8), View(3, 0, (8,), (1,), 12))
    step = Call("aten::index_select.out", (Slot(1), Literal(0), Slot(2)), {"out": Slot(3)})
    made = decode(encode(Plan("p", 4, (TensorInput(0, TensorSpec("int64", (32,), (1,))),), (), (*views, step), exclusive=(0,))))
    with pytest.raises(PlanInputError, match="RC058"):
        binder(made, [], store)(x)


@pytest.mark.parametrize(("at", "right"), [(16, True), (8, True), (9, False), (12, False), (15, False), (1, False)])
def test_a_kernel_does_not_write_over_the_indices_that_it_reads(store, binder, at, right):
    """The 8 values, the indices behind them, and where the kernel writes; it may take the place of the indices as a whole."""
    x = torch.cat(
        [torch.arange(100, 108), torch.randperm(8, generator=torch.Generator().manual_seed(0)), torch.zeros(16, dtype=torch.int64)]
    )
    views = tuple(View(1 + k, 0, (8,), (1,), place) for k, place in enumerate((0, 8, at)))
    step = Launch(0, (1, 2, 3), (8,), (2,), (("IndexError", "no such place"),))
    inputs = (TensorInput(0, TensorSpec("int64", (32,), (1,))),)
    made = decode(encode(Plan("p", 4, inputs, (), (*views, step), kernels=(kernel("picked"),), exclusive=(0,))))
    run = binder(made, [], store)
    if not right:
        with pytest.raises(PlanInputError, match="RC058"):
            run(x)
        return
    want = x[:8][x[8:16]]
    run(x)
    assert torch.equal(x[at : at + 8], want)


RANKS = {1: TensorSpec("float32", (4,), (1,)), 2: TensorSpec("float32", (4, 4), (4, 1)), 3: TensorSpec("float32", (4, 4, 4), (16, 4, 1))}


@pytest.mark.parametrize("op", ["aten::mm.out", "aten::bmm.out", "aten::addmm.out", "aten::baddbmm.out"])
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_products_of_tensors_of_any_rank(store, op, rank):
    """Each operand any of three inputs, also one of them twice: what torch refuses is refused, the rest is what torch gives."""
    x = [torch.arange(4**k, dtype=torch.float32).view((4,) * k) / 64 for k in RANKS]
    for slots in itertools.product(range(3), repeat=3 if "add" in op else 2):
        inputs = tuple(TensorInput(k, spec) for k, spec in enumerate(RANKS.values()))
        steps = (Alloc(3, RANKS[rank]), Call(op, tuple(map(Slot, slots)), {"out": Slot(3)}))
        made = decode(encode(Plan("p", 4, inputs, (SlotOutput(3),), steps)))
        outcomes = []
        for binder in BINDERS.values():
            try:
                outcomes.append(binder(made, [], store)(*x)[0])
            except (RuntimeError, IndexError):  # of torch's, in its words
                outcomes.append(None)
        native, reference = outcomes
        if native is None and reference is not None and reference.dim() != rank:  # torch gave `out` another size, and more memory
            continue
        assert (native is None) == (reference is None), slots
        assert native is None or torch.allclose(native, reference), slots


NOWHERE = TensorSpec("float32", (8,), (1,), "elsewhere")
PLACES = {
    "an input": Plan("p", 1, (TensorInput(0, NOWHERE),), (), ()),
    "a tensor that is made": Plan("p", 1, (), (SlotOutput(0),), (Alloc(0, NOWHERE),)),
    "a constant": Plan("p", 1, (), (), (), constants=(Constant(0, NOWHERE, bytes(32)),)),
    "a result": Plan("p", 2, (TensorInput(0, ROW),), (SlotOutput(1),), (Call("aten::sin", (Slot(0),), {}, (1,), specs=(NOWHERE,)),)),
    "the arena": Plan("p", 1, (TensorInput(0, ROW),), (SlotOutput(0),), (), device="elsewhere"),
    "an argument": Plan(
        "p", 2, (TensorInput(0, ROW),), (SlotOutput(1),), (Call("aten::rand_like", (Slot(0),), {"device": Named("device", "elsewhere")}, (1,)),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", PLACES)
def test_devices_that_nobody_knows(store, where):
    with pytest.raises((PlanError, BindError), match="RC046|RC035"):
        bind(decode(encode(PLACES[where])), [], store)
