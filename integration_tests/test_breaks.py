"""Code that cannot be captured: with fullgraph=True one numbered error, otherwise a graph break and the right answer."""

import contextlib
import re
import threading

import pytest
import torch

import opmill

X = torch.linspace(-1.5, 2, 12).reshape(3, 4)  # no sum below is near zero, where two right orders of addition would take two branches


def branch(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def loop_with_item(x):
    total = x
    for k in range(3):
        total = total + k
        if total.max().item() > 2:
            total = total * 0.5
    return total


def inside_with(x):
    seen = []
    with contextlib.ExitStack() as stack:
        stack.callback(seen.append, "left")
        y = x.exp()
        if y.mean() > 1:
            y = y.log()
        y = y * 3
    return y, seen


def inside_try(x):
    try:
        y = x + 1
        if y.max() > 2:
            raise ValueError("too large")
    except ValueError as error:
        return x - 1, str(error)
    return y, ""


def printing(x):
    y = x * 2
    print("largest", float(y.max()))
    return y.relu()


def same(found, expected):
    """Tensors close, everything else equal, in the same containers."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected):
            same(ours, theirs)
    else:
        assert found == expected


@pytest.mark.parametrize("function", [branch, loop_with_item, inside_with, inside_try, printing])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_break_gives_the_right_answer(function, sign, capsys):
    compiled = opmill.compile(function)
    for scale in (1.0, 0.1, 1.0):
        expected = function(X * sign * scale)
        said = capsys.readouterr().out
        found = compiled(X * sign * scale)
        assert capsys.readouterr().out == said
        same(found, expected)


def test_full_graphs_say_number_line_reason_and_hint():
    with pytest.raises(Exception) as raised:  # noqa: PT011
        opmill.compile(branch, fullgraph=True)(X)
    text = str(raised.value)
    line = branch.__code__.co_firstlineno + 2
    assert re.search(r"\bFE\d{3}\b", text) and f"test_breaks.py:{line}" in text and "why" in text and "hint" in text


def test_effects_before_and_after_a_break_happen_once():
    log, state = [], {"calls": 0}

    def function(x):
        log.append("before")
        state["calls"] += 1
        y = x + 1
        if y.sum() > 0:
            log.append("positive")
        log.append("after")
        return y

    compiled = opmill.compile(function)
    compiled(X + 1)
    compiled(X - 9)
    assert log == ["before", "positive", "after", "before", "after"] and state == {"calls": 2}


def test_exceptions_are_the_users_own():
    def function(x, fail):
        y = x * 2
        if fail:
            raise KeyError("mine")
        return y @ y

    compiled = opmill.compile(function)
    with pytest.raises(KeyError, match="mine"):
        compiled(X, True)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        compiled(X, False)


def test_the_recompile_limit_warns_once_and_runs_on():
    def function(x, n):
        return x + n

    compiled = opmill.compile(function, options={"recompile_limit": 3}, dynamic=False)
    with pytest.warns(opmill.OpmillWarning) as warned:
        for n in range(8):
            assert torch.equal(compiled(X, n), X + n)
    [said] = [str(w.message) for w in warned]
    assert "compiled 3 times" in said and "function" in said and "expected 2, found 3" in said and "recompile_limit" in said


def test_threads_compile_and_call_at_once():
    compiled = opmill.compile(branch)
    wrong = []

    def work(seed):
        for k in range(20):
            x = X * (seed + k % 3 - 1)
            if not torch.allclose(compiled(x), branch(x)):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
