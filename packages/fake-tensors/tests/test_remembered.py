"""What is remembered of a function is what it would have given again."""

import itertools
import operator

import pytest
import torch
from torch.nn import functional as F

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.remembered import FUNCTIONS, Remembered

WEIGHT, BIAS = torch.randn(6, 8), torch.randn(6)
OPERANDS = {
    "plain": lambda: torch.randn(4, 8),
    "transposed": lambda: torch.randn(8, 4).t(),
    "batched": lambda: torch.randn(2, 3, 8),
    "sliced": lambda: torch.randn(4, 16)[:, ::2],
    "double": lambda: torch.randn(4, 8, dtype=torch.float64),
    "half": lambda: torch.randn(4, 8).bfloat16(),
    "whole": lambda: torch.arange(32).view(4, 8),
    "none": lambda: torch.randn(0, 8),
}
UNARY = [F.gelu, F.silu, F.relu, torch.relu, torch.sigmoid, torch.tanh, torch.rsqrt, operator.neg]
BINARY = [torch.add, torch.sub, torch.mul, torch.div, operator.add, operator.sub, operator.mul, operator.truediv]
MORE = {
    "linear": lambda x: (F.linear, [x, WEIGHT.to(x.dtype), BIAS.to(x.dtype)], {}),
    "without bias": lambda x: (F.linear, [x, WEIGHT.to(x.dtype)], {"bias": None}),
    "norm": lambda x: (F.layer_norm, [x, (8,)], {"eps": 1e-5}),
    "softmax": lambda x: (F.softmax, [x], {"dim": -1}),
    "softmax in double": lambda x: (F.softmax, [x], {"dim": 0, "dtype": torch.float64}),
    "log of torch's own": lambda x: (torch.softmax, [x, 1], {}),
    "product": lambda x: (torch.matmul, [x, WEIGHT.to(x.dtype).t()], {}),
    "operator": lambda x: (operator.matmul, [x, WEIGHT.to(x.dtype).t()], {}),
    "number": lambda x: (operator.mul, [x, 2.5], {}),
    "number before": lambda x: (operator.sub, [1, x], {}),
    "scaled": lambda x: (torch.add, [x, x], {"alpha": 2}),
}


def calls(x):
    yield from ((f, [x], {}) for f in UNARY)
    yield from ((f, [x, y], {}) for f in BINARY for y in (x, x[:1], torch.tensor(2.0)))
    yield from (make(x) for make in MORE.values())


def looks(result):
    return result.size(), result.stride(), result.dtype, result.device, result.requires_grad, type(result), result._is_view()


def outcome(run, *args):
    try:
        return looks(run(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", OPERANDS)
def test_the_second_call_gives_what_the_first_gave(name):
    tried = 0
    for function, args, kwargs in calls(OPERANDS[name]()):
        with torch.no_grad(), FakeContext() as context:
            remembered = Remembered(context)
            fakes = [context.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
            want = outcome(lambda: function(*fakes, **kwargs))
            got = [outcome(remembered.call, function, fakes, kwargs) for _ in range(3)]
            assert got == [want] * 3, (function, name)
            tried += len(remembered._known)
    assert tried > 10 or name == "whole"


def test_every_function_is_tried():
    tried = {id(f) for f, _, _ in calls(OPERANDS["plain"]())}
    assert tried == set(FUNCTIONS)


def test_results_are_new_tensors():
    with torch.no_grad(), FakeContext() as context:
        x, remembered = context.from_tensor(torch.randn(3)), Remembered(context)
        a, b, c = (remembered.call(torch.tanh, [x], {}) for _ in range(3))
        assert len({id(t) for t in (a, b, c, x)}) == 4
        assert len({t.meta.untyped_storage()._cdata for t in (a, b, c, x)}) == 4
        b.resize_(5)
        assert (a.shape, c.shape, remembered.call(torch.tanh, [x], {}).shape) == ((3,),) * 3
        assert remembered.call(F.relu, [x], {"inplace": True}) is x
        assert remembered.call(F.relu, [x], {"inplace": True}) is x


def test_switches_tell_calls_apart():
    weight = torch.nn.Parameter(torch.randn(3, 3))
    with FakeContext() as context:
        remembered, p, n = Remembered(context), context.from_tensor(weight), context.from_tensor(torch.arange(3))

        def both(function, args):
            return looks(remembered.call(function, args, {})), looks(function(*args))

        for _, enabled in itertools.product(range(2), (False, True)):
            with torch.set_grad_enabled(enabled):
                assert len(set(both(torch.mul, [p, 2]))) == 1
        with torch.no_grad():
            for dtype in (torch.float32, torch.float64, torch.float32):
                torch.set_default_dtype(dtype)
                try:
                    assert len(set(both(torch.sigmoid, [n]))) == 1
                finally:
                    torch.set_default_dtype(torch.float32)
            for enabled in (False, True, False):
                with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                    assert len(set(both(torch.matmul, [p, p]))) == 1
        with torch.inference_mode():
            assert remembered.call(torch.tanh, [p], {}).is_inference()


def test_known_values_stay_known():
    with torch.no_grad(), FakeContext() as context:
        remembered = Remembered(context)
        tripled = [remembered.call(torch.mul, [torch.tensor(value), 3], {}).constant for value in (1.0, 2.0)]
    assert [t.item() for t in tripled] == [3.0, 6.0]
