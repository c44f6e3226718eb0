"""Plans from outside: none of their texts becomes code, whichever executor takes them."""

import pytest
import torch

from opmill_runtime_cache.errors import BindError, PlanError, RuntimeCacheError
from opmill_runtime_cache.executor import bind, bind_reference
from opmill_runtime_cache.executor.names import exception_of, named, operator_of
from opmill_runtime_cache.plan import decode, encode
from opmill_runtime_cache.plan.model import (
    Call,
    ComplexArg,
    Expr,
    ListArg,
    Literal,
    Named,
    Plan,
    SizeInput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
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
