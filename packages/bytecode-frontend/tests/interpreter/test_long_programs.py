"""Programs that are long: work grows as they do, and past a limit the loop is named."""

from __future__ import annotations

import contextlib
import sys
import warnings

import pytest
import torch

from opmill_bytecode_frontend import CaptureOptions, Unsupported, capture


def calls_of(function):
    """How many functions of Python a call of ``function`` calls."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def loop(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


def all_together(*tensors):
    total = 0
    for tensor in tensors:
        total = total + tensor
    return total


def many_results(*tensors):
    return [tensor * 2 for tensor in tensors]


@pytest.mark.parametrize("function", [all_together, many_results])
def test_work_grows_as_the_number_of_arguments(function):
    tensors = [torch.full((2,), float(k)) for k in range(400)]
    capture(function)(*tensors[:50])
    one, two = (calls_of(lambda n=n: capture(function)(*tensors[:n])) for n in (200, 400))
    assert two < 2.2 * one


def test_work_grows_as_the_number_of_turns():
    capture(loop)(torch.ones(2), 50)
    one, two = (calls_of(lambda n=n: capture(loop)(torch.ones(2), n)) for n in (300, 600))
    assert two < 2.2 * one


def test_a_graph_that_grows_too_long_is_refused_and_names_the_loop():
    line = loop.__code__.co_firstlineno + 1
    compiled = capture(loop, options=CaptureOptions(graph_limit=500), fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2), 5), loop(torch.zeros(2), 5))
    with pytest.raises(
        Unsupported, match=rf"FE093: a graph that grows too long in the loop at .*test_long_programs.py:{line} \(\d+ turns\)"
    ) as caught:
        compiled(torch.zeros(2), 500)
    assert caught.value.code == "FE093" and "graph_limit" in str(caught.value)


def test_a_graph_that_grows_too_long_runs_eagerly_with_a_warning():
    graphs, broken = [], []
    compiled = capture(
        loop,
        options=CaptureOptions(graph_limit=500),
        on_translation=lambda t: graphs.append(t.gm),
        on_break=lambda e: broken.append(e.code),
    )
    with pytest.warns(UserWarning, match="FE093: a graph that grows too long in the loop at"):
        assert torch.equal(compiled(torch.zeros(2), 600), loop(torch.zeros(2), 600))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(torch.zeros(2), 601), loop(torch.zeros(2), 601))
    assert graphs == [] and broken == ["FE093"]


def turns(n):
    total = 0
    while total < n:
        total += 1
    return total


def test_a_call_that_computes_long_without_tensors_runs_natively():
    def f(x):
        y = x + 1
        return y * turns(2000)

    broken, graphs = [], []
    compiled = capture(
        f,
        options=CaptureOptions(max_idle=3000),
        on_translation=lambda t: graphs.append(t.gm),
        on_break=lambda e: broken.append((e.code, e.what)),
    )
    assert compiled(torch.ones(2)).tolist() == [4000.0, 4000.0]
    line = turns.__code__.co_firstlineno + 2
    assert broken[0][0] == "FE094" and f":{line} (" in broken[0][1]
    assert graphs[0] is not None
    assert compiled(torch.ones(2)).tolist() == [4000.0, 4000.0]
    assert capture(f, options=CaptureOptions(max_idle=3000), fullgraph=True)(torch.ones(2)).tolist() == [4000.0, 4000.0]


def test_a_function_that_computes_long_without_tensors_itself_runs_as_it_is():
    def f(x, n):
        total = 0
        for i in range(n):
            total += i
        return x + total

    broken = []
    compiled = capture(f, options=CaptureOptions(max_idle=3000), on_break=lambda e: broken.append(e.code))
    assert compiled(torch.ones(1), 5000).item() == 1 + sum(range(5000)) and broken == ["FE065"]


@pytest.mark.parametrize("what", ["sorted", "max", "equal", "contained"])
def test_a_builtin_that_compares_many_things_runs_natively(what):
    def compare(pairs, others):
        if what == "sorted":
            return sorted(pairs)[0][0]
        if what == "max":
            return max(pairs)[0]
        return pairs == others if what == "equal" else others[-1] in pairs

    def inside(x, pairs, others):
        return (x + 1) * compare(pairs, others)

    def itself(x, pairs):
        return (x + 1) * sorted(pairs)[0][0]

    pairs = [(i * 7 % 10, i * 911 % 3000) for i in range(3000)]
    for f, given in [(inside, (pairs, [(*pair,) for pair in pairs])), (itself, (pairs,))]:
        broken = []
        compiled = capture(f, options=CaptureOptions(max_idle=900), on_break=lambda e: broken.append((e.code, e.what)))
        assert torch.equal(compiled(torch.ones(2), *given), f(torch.ones(2), *given))
        assert broken and broken[0][0] == "FE094", broken


def test_a_loop_in_a_key_function_is_no_longer_than_others():
    def endless(item):
        while True:
            item += 1
            if item > 10**6:
                return -item

    def f(x):
        return x + sorted([2, 1], key=endless)[0]

    compiled = capture(f, options=CaptureOptions(max_idle=3000, max_steps=10_000))
    assert torch.equal(compiled(torch.ones(1)), f(torch.ones(1)))


def test_whoever_watches_is_told_what_grows():
    told, inside = [], []

    @contextlib.contextmanager
    def watched_by(come_to):
        told.append(come_to)
        inside.append(come_to())
        yield
        inside.append(come_to())

    class Stop(Exception):
        pass

    def backend(gm, inputs):
        inside.append(told[0]())
        return gm.forward

    capture(loop, backend, watched_by=watched_by)(torch.ones(2), 20)
    line = loop.__code__.co_firstlineno + 1
    assert inside[0] == "loop" and inside[2] == "loop"
    assert inside[1].startswith("loop: 40 operations, ")
    assert told and f":{line} (" not in inside[0]
