"""What ends a graph has its number, and the program still does what it does plainly."""

import copy
import functools
import inspect
import math
import operator
import types

import pytest
import torch
import torch.distributed as dist

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported
from opmill_bytecode_frontend.interpretation.opcodes.registry import HANDLERS

X = torch.linspace(-2, 2, 4)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    return type(a) is type(b)


def outcome(fn, *args):
    """What a call gives: its items, or the exception."""
    try:
        result = fn(*args)
    except Exception as error:
        return [type(error), str(error)]
    return [*result] if isinstance(result, tuple) else [result]


only_typed = types.FunctionType(compile("7", "typed", "single"), {})
"""Shows what its statement gives, as the interactive interpreter does."""


def shows_what_it_gives(x):
    return x + 1, only_typed()


def the_number_of_a_character_that_is_a_tensor(x):
    return x + ord(x)


def the_signature_of_a_function_that_is_made(x):
    def made(a, b=x):
        return a

    return x + len(inspect.signature(made).parameters)


def a_deep_copy_with_a_memo(x):
    return copy.deepcopy([x, 1], {})[0] + 1


def more_items_than_are_known_one_by_one(x):
    return x + len(list(range(10**6)))


def a_slice_by_a_function(x):
    return x + len([1, 2, 3][lambda: 0 :])


class GivesNothing:
    def __getitem__(self, key):
        return NotImplemented


def a_subscript_that_is_not_implemented(x):
    return x + 1, GivesNothing()[0]


def a_key_that_is_made(x):
    return x + {1: 2}[object()]


def identity_of_strings(x, a="".join(["ab", "cd"]), b="".join(["abc", "d"])):
    return x + (a is b)


def how_often_it_was_written(x):
    return x + x._version


def a_capsule(x):
    return x + 1, torch.Tensor.__dlpack__(x * 2)


def a_field_that_the_class_works_out(x):
    try:
        raise OSError(x, "no")
    except OSError as error:
        return x + error.errno


class SetBySomethingElse:
    __setattr__ = len


def an_assignment_by_no_function(x):
    SetBySomethingElse().a = 1
    return x


def a_class_of_torch_is_changed(x):
    torch.nn.Identity.of_the_test = 1
    y = x + torch.nn.Identity.of_the_test
    del torch.nn.Identity.of_the_test
    return y


def a_class_of_a_tensor(x):
    return x + 1, list[x]


def the_line_of_a_traceback(x):
    try:
        raise ValueError
    except ValueError as error:
        return x + (error.__traceback__.tb_lineno > 0)


class Group(ExceptionGroup):
    pass


def a_group_that_splits_itself(x):
    try:
        raise Group("two", [ValueError(), TypeError()])
    except* ValueError:
        x = x + 1
    except* TypeError:
        x = x + 2
    return x


def deeper(x, n):
    return x if n == 0 else deeper(x + 1, n - 1)


def more_calls_than_are_followed(x):
    return deeper(x, 300)


def a_proxy_leaves(x):
    return types.MappingProxyType({"a": x + 1})


def a_suspended_method_of_a_class_that_is_made(x):
    class Made:
        def items(self, y):
            super().__init__()
            yield y + 1
            yield y + 2

    items = Made().items(x)
    return next(items), items


CASES = {
    "FE060": shows_what_it_gives,
    "FE011": the_number_of_a_character_that_is_a_tensor,
    "FE014": the_signature_of_a_function_that_is_made,
    "FE017": a_deep_copy_with_a_memo,
    "FE023": more_items_than_are_known_one_by_one,
    "FE026": a_slice_by_a_function,
    "FE026 ": a_subscript_that_is_not_implemented,
    "FE027": a_key_that_is_made,
    "FE028": identity_of_strings,
    "FE031": how_often_it_was_written,
    "FE035": a_capsule,
    "FE040": a_field_that_the_class_works_out,
    "FE041": an_assignment_by_no_function,
    "FE042": a_class_of_torch_is_changed,
    "FE043": a_class_of_a_tensor,
    "FE044": the_line_of_a_traceback,
    "FE062": a_group_that_splits_itself,
    "FE064": more_calls_than_are_followed,
    "FE070": a_proxy_leaves,
    "FE075": a_suspended_method_of_a_class_that_is_made,
}


def number_of(fn, *args):
    with pytest.raises(Unsupported) as caught:
        capture(fn, "eager", fullgraph=True)(*args)
    return caught.value.code


def test_an_instruction_that_nothing_interprets_ends_the_graph(monkeypatch):
    monkeypatch.delitem(HANDLERS, "MAKE_FUNCTION")

    def program(x):
        return (lambda: x + 1)()

    assert number_of(program, X.clone()) == "FE001"


@pytest.mark.parametrize("code", CASES)
def test_what_ends_a_graph_has_its_number(code):
    fn = CASES[code]
    assert number_of(fn, X.clone()) == code.strip()
    ours, theirs = outcome(capture(fn, "eager"), X.clone()), outcome(fn, X.clone())
    assert len(ours) == len(theirs) and all(map(same, ours, theirs)), (ours, theirs)
    if fn is a_suspended_method_of_a_class_that_is_made:
        assert all(map(same, ours[1], theirs[1]))


@pytest.fixture
def alone():
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_modules_that_exchange_gradients_end_the_graph(alone):
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))

    def call(x):
        return module(x) * 2

    assert number_of(call, X.reshape(1, 4)) == "FE080"
    assert torch.equal(capture(call, "eager")(X.reshape(1, 4)), call(X.reshape(1, 4)))


def test_a_kernel_that_is_only_prepared_ends_the_graph():
    triton = pytest.importorskip("triton", reason="needs Triton")

    @functools.partial(triton.jit)
    def nothing(pointer):
        pass

    def prepares(x):
        nothing.run(x, grid=(1,), warmup=True)
        return x + 1

    assert number_of(prepares, X.clone()) == "FE081"


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 10**400, 1j])
@pytest.mark.parametrize("op", [operator.lt, operator.ge, operator.eq, operator.ne, operator.add, operator.mul, max, min])
@pytest.mark.parametrize("first", [True, False])
def test_floats_that_change_beside_numbers_that_no_guard_writes_down(op, number, first):
    def said(x, k):
        k = math.sqrt(k)
        try:
            return repr(op(number, k) if first else op(k, number)), x * k
        except (TypeError, OverflowError) as error:
            return type(error).__name__, str(error), x * k

    compiled = capture(said, "eager")
    for k in (1.0, 2.0, 3.5, 4.0, 2.0):
        got, want = compiled(torch.ones(2), k), said(torch.ones(2), k)
        assert got[:-1] == want[:-1] and torch.equal(got[-1], want[-1])


@pytest.mark.parametrize(
    "op",
    [
        operator.lt,
        operator.eq,
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        operator.pow,
        max,
        min,
        divmod,
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_floats_that_change_beside_sizes_that_do(op, first):
    def said(x, k):
        n, k = x.shape[0], math.sqrt(k)
        return repr(op(k, n) if first else op(n, k)), x * 1

    compiled = capture(said, "eager", dynamic=True)
    for i, k in enumerate((1.0, 2.0, 3.5, 5.0, 7.25, 2.0)):
        got, want = compiled(torch.ones(3 + i), k), said(torch.ones(3 + i), k)
        assert got[0] == want[0] and torch.equal(got[1], want[1])
