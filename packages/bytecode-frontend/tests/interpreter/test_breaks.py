"""Graph breaks, differential: wherever a function is cut, its result, its changes and its exceptions are those of the plain call."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import traceback
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import CaptureOptions, capture


def number(t):
    return t.sum().tolist()


def over_range(a, log):
    for i in range(5):
        a = a + number(a) / 100
        log.append(i)
    return a * 2


def over_growing_list(a, log):
    todo = [1, 2]
    for n in todo:
        if number(a) > 0 and len(todo) < 6:
            todo.append(n + 1)
        a = a.abs() + n
        log.append(len(todo))
    return a


def over_argument(a, log):
    for item in log:
        a = a * (1 + number(a) / 1000)
        if len(log) < 4:
            log.append(item)
    return a, len(log)


def over_composed(a, log):
    for i, (x, y) in enumerate(zip([1, 2, 3], "abc"), 5):
        a = a + x + number(a) / 10
        log.append((i, y))
    for z in map(lambda v: v * 2, filter(None, [0, 1, 2])):
        log.append(number(a) > z)
    for z in reversed([1, 2]):
        log.append(number(a) * z)
    return a


def over_dict(a, log):
    for key, value in {"x": 1, "y": 2}.items():
        a = a + value
        log.append((key, number(a)))
    return a


def over_endless(a, log):
    for i in itertools.count(3):
        a = a.abs() + i
        if number(a) > 300:
            break
        log.append(i)
    return a


def over_generator(a, log):
    def numbers(n):
        for i in range(n):
            log.append(-i)
            yield a * i
            log.append(number(a))

    for t in numbers(3):
        a = a + t
        log.append(number(a) > 0)
    return a


def over_running_generator(a, log):
    def numbers():
        k = 0
        while True:
            k += 1
            log.append(k)
            yield k

    source = numbers()
    first = next(source)
    a = a * 2 + first
    for k in source:
        if number(a) * 0 + k > 4:
            break
        a = a + k
    return a, next(source)


def loop_else(a, log):
    for i in range(3):
        if number(a) > 1e9:
            break
    else:
        log.append("else")
    return a


def nested_loops(a, log):
    for i in range(3):
        for j in range(i):
            a = a + number(a) / 50
            if j == 1:
                continue
            log.append((i, j))
        if i == 1:
            log.append(number(a) > 0)
    return a


def many_turns(a, log):
    n = 0
    while number(a) < 1e9 and n < 3000:
        n += 1
        a = a + 1
    return n


def in_handler(a, log):
    try:
        raise ValueError("first")
    except ValueError as e:
        c = a * number(a)
        log.append((str(e), type(sys.exc_info()[1]).__name__))
    log.append(sys.exc_info()[1])
    return c + 1


def in_nested_handlers(a, log):
    try:
        try:
            raise KeyError("k")
        except KeyError as inner:
            a = a + number(a)
            raise RuntimeError("outer") from inner
    except RuntimeError as e:
        log.append((str(e), repr(e.__cause__), number(a)))
    return a


def raises_in_handler(a, log):
    try:
        raise KeyError("k")
    except KeyError:
        a = a + number(a)
        raise


def in_finally(a, log):
    try:
        a = a + number(a)
        raise IndexError("i")
    finally:
        log.append(number(a))
        a.add_(1)


def under_contexts(a, log):
    with torch.no_grad(), contextlib.suppress(ZeroDivisionError):
        c = a * number(a)
        log.append(torch.is_grad_enabled())
        c = c / (1 // int(number(c) * 0))
    log.append(torch.is_grad_enabled())
    return a + 1


def under_autocast(a, log):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = a @ a
        log.append((number(c) > 0, torch.is_autocast_enabled("cpu")))
        d = c @ a
    log.append(torch.is_autocast_enabled("cpu"))
    return c, d, a @ a


def own_context(a, log):
    class Noting:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, kind, value, tb):
            log.append((kind.__name__ if kind else None, str(value)))
            return True

    with Noting():
        a = a + number(a)
        log.append(1 / 0)
    return a


@contextlib.contextmanager
def noting(log):
    log.append("enter")
    try:
        yield log
    finally:
        log.append("leave")


def generator_context(a, log):
    with noting(log) as seen:
        a = a + number(a)
        seen.append(number(a))
    return a


def returns_in_loop_in_try(a, log):
    for i in range(4):
        try:
            if number(a) + i > 1e6:
                return a
            if i == 2:
                return a * i
        finally:
            log.append(i)


def comprehension(a, log):
    return [a * i + number(a) for i in range(3)], {k: number(a + k) for k in range(2)}


def chained(a, log):
    return a + 1 if 0 < abs(number(a)) < 1e9 and number(a) != 0.5 or log else a - 1


def unpacked(a, log):
    first, *rest = [number(a), a, 3]
    x, y = a.tolist()[:2]
    return first, rest, x, y


def deep(a, log):
    def one(t):
        log.append("one")
        t = t * 2
        return two(t) + 1

    def two(t):
        t = t + number(t)
        for _ in range(2):
            t = t - number(t) / 3
        return t

    return one(a) * one(a + 1)


def stored(a, log):
    box = {"a": a}
    box["n"] = number(a)
    box["l"] = [a, box["n"]]
    box["l"][0] = a * 2
    log.append(box["n"])
    a[0] = number(a)
    return box


FUNCTIONS = [
    over_range, over_growing_list, over_argument, over_composed, over_dict, over_endless, over_generator, over_running_generator, loop_else,
    nested_loops, many_turns, in_handler, in_nested_handlers, raises_in_handler, in_finally, under_contexts, under_autocast, own_context,
    generator_context, returns_in_loop_in_try, comprehension, chained, unpacked, deep, stored,
]  # fmt: skip


def outcome(fn):
    a = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    log: list[Any] = [1, 2]
    try:
        result = fn(a, log)
    except Exception as exc:
        return (type(exc), exc.args, type(exc.__context__)), a, log
    return result, a, log


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_broken_functions_behave_as_plain_ones(fn):
    translations: list[Any] = []
    breaks: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append, on_break=breaks.append)
    want = outcome(fn)
    for _ in range(3):
        got = outcome(compiled)
        assert same(got, want), (got, want)
    assert breaks
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


@pytest.mark.parametrize(
    "fn", [over_range, over_composed, nested_loops, in_handler, under_autocast, own_context, deep], ids=lambda f: f.__name__
)
def test_graphs_are_found_on_both_sides_of_a_break(fn):
    translations: list[Any] = []
    capture(fn, "eager", on_translation=translations.append)(torch.randn(4, 4), [1])
    assert sum(t.gm is not None for t in translations) >= 2


def test_turns_of_a_loop_share_their_entries():
    translations: list[Any] = []
    compiled = capture(many_turns, "eager", on_translation=translations.append)
    assert compiled(torch.zeros(4), []) == 3000
    assert len(translations) < 40
    before = len(translations)
    compiled(torch.zeros(4), [])
    assert len(translations) == before


def failing(a):
    b = a + 1
    c = b * int(number(b) * 0) + [][int(number(b) * 0)]
    return c


def test_tracebacks_show_the_lines_of_the_user():
    def lines(fn):
        with pytest.raises(IndexError) as caught:
            fn(torch.ones(3))
        return [
            (f.name, f.lineno) for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__ and f.name == "failing"
        ]

    assert lines(failing)[-1:] == lines(capture(failing, "eager"))[-1:]


def test_no_trace_of_autocast_after_a_refusal():
    def fn(a):
        with torch.autocast("cpu"):
            return number(a @ a)

    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    with pytest.raises(Exception, match="FE"):
        capture(fn, "eager", fullgraph=True)(torch.ones(2, 2))
    assert torch.autocast_increment_nesting() == nesting
    torch.autocast_decrement_nesting()
    assert copy.copy(torch.is_autocast_enabled("cpu")) is False


def step(x, i):
    return torch.relu(x) * 1.5 - 0.25


def long_loop(x):
    for i in range(40):
        x = step(x, i)
    return x


def test_what_a_given_up_function_calls_is_captured():
    translations: list[Any] = []
    compiled = capture(long_loop, "eager", options=CaptureOptions(max_steps=60), on_translation=translations.append)
    x = torch.randn(4)
    for _ in range(3):
        assert torch.equal(compiled(x), long_loop(x))
    assert len(translations) == 1 and translations[0].gm is not None


def asks(x):
    return x + (1 if torch.compiler.is_compiling() else 2)


def marked(x):
    return asks(x) * 2


marked._torchdynamo_disable = True


@pytest.mark.parametrize("steps", [1000, 20], ids=["broken", "given up"])
def test_disabled_functions_are_called_as_they_are(steps):
    def fn(x):
        for _ in range(3):
            x = marked(x * 2) + 1
        return x

    x = torch.ones(2)
    assert torch.equal(capture(fn, "eager", options=CaptureOptions(max_steps=steps))(x), fn(x))
    with pytest.raises(Exception, match="FE069"):
        capture(fn, "eager", fullgraph=True)(x)
