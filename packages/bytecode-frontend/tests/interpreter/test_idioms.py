"""Ways in which compiled functions are used: as methods, recursively, inside each other, by threads, with generators, copied."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import CaptureOptions, capture


class Scaled:
    def __init__(self, k):
        self.k = k
        self.calls = 0

    def run(self, x):
        self.calls += 1
        return x * self.k

    compiled = capture(run, "eager", fullgraph=True)


def test_methods_of_several_instances():
    first, second = Scaled(2), Scaled(2)
    x = torch.ones(3)
    assert torch.equal(first.compiled(x), x * 2)
    assert torch.equal(second.compiled(x), x * 2)
    assert torch.equal(Scaled(5).compiled(x), x * 5)
    assert (first.calls, second.calls) == (1, 1)


def count_down(x, n):
    return x if n == 0 else compiled_count_down(x + n, n - 1)


compiled_count_down = capture(count_down, "eager", fullgraph=True)


def test_a_recursive_function():
    assert torch.equal(compiled_count_down(torch.zeros(2), 5), torch.full((2,), 15.0))


def test_compiled_inside_compiled_is_one_graph():
    inner = capture(lambda x: torch.relu(x) + 1, "eager")
    graphs: list[Any] = []
    outer = capture(lambda x: inner(x * 2) * 3, "eager", fullgraph=True, on_translation=lambda t: graphs.append(t.gm))
    x = torch.randn(4)
    assert torch.equal(outer(x), (torch.relu(x * 2) + 1) * 3)
    assert len(graphs) == 1 and len(inner.entries) == 0


def broken(x):
    y = x * 2
    for _ in range(3):
        y = y + y.sum().tolist()
    return y


def test_threads_compile_and_call_one_function():
    compiled = capture(broken, "eager")
    inputs = [torch.randn(n % 3 + 1, generator=torch.Generator().manual_seed(n)) for n in range(12)]
    wrong: list[Any] = []

    def work(part):
        for x in part:
            for _ in range(3):
                try:
                    if not torch.equal(compiled(x), broken(x)):
                        wrong.append(x)
                except Exception as exc:
                    wrong.append(exc)

    threads = [threading.Thread(target=work, args=(inputs[i::2],)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_generators_passed_in_are_taken_from_once():
    def fn(items, x):
        total = x
        for item in items:
            total = total + item
        return total, next(items, None)

    compiled = capture(fn, "eager")
    for n in (3, 3, 5):
        x = torch.ones(2)
        got = compiled((torch.full((2,), float(i)) for i in range(n)), x)
        assert torch.equal(got[0], x + sum(range(n))) and got[1] is None


def test_copies_of_compiled_functions():
    compiled = capture(broken, "eager")
    x = torch.ones(2)
    assert torch.equal(copy.deepcopy(compiled)(x), broken(x))
    assert torch.equal(copy.copy(compiled)(x), broken(x))


def test_the_limit_of_entries_warns_once_and_runs_on():
    def fn(x, key):
        return x * len(key)

    compiled = capture(fn, "eager", options=CaptureOptions(recompile_limit=3))
    x = torch.ones(2)
    for key in ((1,), (1, 1), (1, 1, 1)):  # of another length each: learnt as nothing that could be an input
        assert torch.equal(compiled(x, key), fn(x, key))
    with pytest.warns(UserWarning, match="FE090.*fn was compiled 3 times"):
        assert torch.equal(compiled(x, (1,) * 4), fn(x, (1,) * 4))
    assert torch.equal(compiled(x, (1,) * 5), fn(x, (1,) * 5))
    assert torch.equal(compiled(x, (1,)), fn(x, (1,)))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_changed_sizes_and_numbers_with_every_setting_of_dynamic(dynamic):
    def fn(x, n):
        return x.reshape(-1)[: x.numel() // 2] * n

    compiled = capture(fn, "eager", dynamic=dynamic)
    for size in (2, 4, 6):
        for n in (1, 2.5):
            x = torch.arange(float(size))
            assert torch.equal(compiled(x, n), fn(x, n))


def test_exceptions_of_the_program_keep_their_type_and_message():
    def fn(x, kind):
        y = x + 1
        if kind == "index":
            return y[10]
        if kind == "key":
            return {"a": y}["b"]
        if kind == "shape":
            return y @ torch.ones(7, 7)
        if kind == "own":
            raise ArithmeticError("own", y.shape[0])
        return y.missing

    compiled = capture(fn, "eager")
    for kind in ("index", "key", "shape", "own", "attribute"):
        for _ in range(2):
            with pytest.raises(Exception) as want:
                fn(torch.ones(3), kind)
            with pytest.raises(type(want.value)) as got:
                compiled(torch.ones(3), kind)
            assert str(got.value) == str(want.value) and type(got.value) is type(want.value)
            assert got.traceback[-1].lineno == want.traceback[-1].lineno
