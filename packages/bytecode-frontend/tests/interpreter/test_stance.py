"""``torch.compiler.set_stance``, and programs that somebody else writes down while they run."""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager

import pytest
import torch
from torch.overrides import TorchFunctionMode

from opmill_bytecode_frontend import capture


@contextmanager
def stance(name):
    """As ``torch.compiler.set_stance`` leaves it, which imports torch's own compiler."""
    known = sys.modules.get("torch._dynamo.eval_frame")
    module = known or types.ModuleType("torch._dynamo.eval_frame")
    before = getattr(module, "_stance", None)
    module._stance = types.SimpleNamespace(stance=name, skip_guard_eval_unsafe=False, backend=None)
    sys.modules["torch._dynamo.eval_frame"] = module
    try:
        yield
    finally:
        module._stance = before
        if known is None:
            del sys.modules["torch._dynamo.eval_frame"]


class Counted:
    """A captured function, how often it was compiled, and how often a graph ran."""

    def __init__(self) -> None:
        self.compiles = self.runs = 0

        def f(x, k):
            return x * k + 1

        self.f = capture(f, self.backend)

    def backend(self, gm, example_inputs):
        self.compiles += 1

        def run(*inputs):
            self.runs += 1
            return gm.forward(*inputs)

        return run

    def __call__(self, size, k=2):
        x = torch.arange(float(size))
        assert torch.equal(self.f(x, k), x * k + 1)
        return self.compiles, self.runs


def test_force_eager_does_not_use_what_is_there():
    call = Counted()
    with stance("force_eager"):
        assert call(3) == (0, 0)
    assert call(3) == (1, 1)
    with stance("force_eager"):
        assert call(3) == (1, 1)
    assert call(3) == (1, 2)


def test_eager_on_recompile_uses_what_is_there():
    call = Counted()
    with stance("eager_on_recompile"):
        assert call(3) == (0, 0)
    assert call(3) == (1, 1)
    with stance("eager_on_recompile"):
        assert call(3) == (1, 2)
        assert call(3, "no" == "yes") == (1, 2)


def test_fail_on_recompile():
    call = Counted()
    with stance("fail_on_recompile"), pytest.raises(RuntimeError, match="FE092"):
        call(3)
    assert call(3) == (1, 1)
    with stance("fail_on_recompile"):
        assert call(3) == (1, 2)
        with pytest.raises(RuntimeError, match="fail_on_recompile(.|\n)*k: expected 2, found 0"):
            call(3, 0)


@pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_runs_as_it_is(name):
    call = Counted()
    with stance(name):
        assert call(3) == (0, 0)
        assert call(3) == (1, 1)
        assert call(3) == (1, 2)


def test_traces_see_the_operators():
    call = Counted()
    call(3)
    traced = torch.jit.trace(lambda x: call.f(x, 2), (torch.ones(3),), check_trace=False)
    assert torch.equal(traced(torch.arange(3.0)), torch.arange(3.0) * 2 + 1) and (call.compiles, call.runs) == (1, 1)
    graph = torch.fx.symbolic_trace(lambda x: call.f(x, 2)).graph
    assert [str(node.op) for node in graph.nodes] == ["placeholder", "call_function", "call_function", "output"]


def test_function_modes_see_the_operations_of_the_program_alone():
    class Telling(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def outside(x):
        return torch.sin(x) + 1

    def inside(x, mode):
        with mode:
            y = torch.sin(x) + 1
        return y * 2

    call = Counted()
    for call_it in (lambda f, mode: f(torch.ones(3), mode), lambda f, mode: capture(f)(torch.ones(3), mode)):
        mode = Telling()
        call_it(inside, mode)
        assert mode.seen == ["sin", "add"]
    x = torch.ones(3)
    for f in (outside, capture(outside)):
        with Telling() as mode:
            f(x)
        assert mode.seen == ["sin", "add"]
    with torch.device("cpu"):
        assert call(3) == (1, 1)
