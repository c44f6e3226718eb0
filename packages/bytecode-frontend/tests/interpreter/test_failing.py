"""Graphs that fail when they run: the call does what the plain call does, and leaves what that leaves."""

from __future__ import annotations

import logging

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.graph import undoing


def no_kernel(a, log):
    log.append(1)
    with torch.no_grad():
        b = a & 3  # floats have no bits, which only the kernel says
    log.append(2)
    return b


def in_a_transform(a, log):
    log.append(1)
    return torch.vmap(lambda x: x & 3)(a)


def out_of_bounds(a, log, *rest, k=2, **more):
    log.append(k)
    return a[torch.tensor([9])] + len(more)


def after_a_break(a, log):
    b = a + 1
    if b.sum().item() > 0:
        log.append(1)
    c = b * 2
    log.append(3)
    return c & 3


def caught(a, log):
    log.append(1)
    try:
        a & 3
    except NotImplementedError as exc:
        log.append(str(exc))
    return a + 1


class Steps:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return self

    def __next__(self):
        if self.x.sum().item() > 50:
            raise StopIteration
        self.x = self.x * 2
        return self.x

    def __getattr__(self, name):
        if self.x.sum().item() > 50:
            raise AttributeError(name)
        return 3


def expected(a, log):
    """What somebody waits for is no demand on the data."""
    steps = Steps(a)
    for x in steps:
        a = a + x
    return a + getattr(steps, "missing", 1) + hasattr(steps, "other")


def outcome(fn, **kwargs):
    a, log = torch.ones(3), []
    try:
        result = fn(a, log, **kwargs).tolist()
    except Exception as exc:
        result = type(exc), str(exc), exc.__context__
    return result, a.tolist(), log, torch.is_grad_enabled(), torch._C._functorch.get_dynamic_layer_stack_depth()


@pytest.mark.parametrize("fn", [no_kernel, in_a_transform, out_of_bounds, after_a_break, caught, expected])
def test_the_call_does_what_the_function_does(fn):
    compiled = capture(fn)
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)


def test_other_arguments_are_handed_on():
    assert outcome(capture(out_of_bounds), k=5, z=1) == outcome(out_of_bounds, k=5, z=1)


def test_a_graph_that_wrote_something_does_not_run_again():
    def fn(a, log):
        a.add_(1)
        with torch.no_grad():
            return a & 3

    result, a, _, grad, _ = outcome(capture(fn))
    assert result[0] is NotImplementedError and a == [2.0] * 3 and grad


def test_a_backend_that_fails_is_told_once(caplog):
    def backend(gm, example_inputs):
        def run(*inputs):
            raise RuntimeError("no such kernel")

        return run

    def fn(a, log):
        return a + 1

    compiled = capture(fn, backend)
    with caplog.at_level(logging.WARNING):
        assert [outcome(compiled)[0] for _ in range(2)] == [[2.0] * 3] * 2
    assert len(caplog.records) == 1 and "no such kernel" in caplog.text
    with pytest.raises(RuntimeError, match="no such kernel"):
        capture(fn, backend, fullgraph=True)(torch.ones(3), [])


BUFFER = torch.zeros(3)


def own_memory(a, log):
    b = (a * 2).view(-1)
    b.add_(1)
    b[0] = 5
    b += 1
    torch.relu_(b)


WRITES = {
    "own": own_memory,
    "argument": lambda a, log: a.add_(1),
    "view": lambda a, log: a[1:].mul_(2),
    "chunk": lambda a, log: a.chunk(3)[1].__setitem__(0, 9),
    "detached": lambda a, log: a.detach().add_(1),
    "data": lambda a, log: a.data.add_(1),
    "own data": lambda a, log: (a * 2).data.add_(1),
    "outside": lambda a, log: BUFFER.add_(1),
    "view of a sum": lambda a, log: (a + 1).t().add_(a),
    "in a list": lambda a, log: [a, BUFFER][1].view(3, 1).sub_(1),
    "drawn": lambda a, log: (a * 2).normal_(),
    "out": lambda a, log: torch.add(a, 1, out=BUFFER),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_before_a_check_is_written_once(write):
    """And an exception keeps its text: NaN checks with a text of their own, after a step in place."""

    def fn(a, log):
        WRITES[write](a, log)
        if a.sum() > -100:
            raise ValueError(f"a sum of {a.dim()} dimensions", 2)
        return a

    def state(f):
        BUFFER.zero_()
        torch.manual_seed(0)
        a = torch.ones(3)
        with pytest.raises(ValueError) as caught:
            f(a, [])
        return a.tolist(), BUFFER.tolist(), torch.rand(2).tolist(), caught.value.args

    compiled = capture(fn)
    for _ in range(2):
        got, want = state(compiled), state(fn)
        assert got == want


class Cache:
    """A buffer of so many rows, what was put where, and steps of the program around them."""

    def __init__(self, rows: int) -> None:
        self.buffer = torch.zeros(rows, 64)
        self.log: list[object] = []

    def put(self, at: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        self.buffer[at] = 1.0
        return self.buffer.sum()


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return True


def two(cache, first, second):
    cache.put(first)
    return cache.put(second)


def in_try(cache, first, second):
    try:
        return two(cache, first, second)
    except IndexError as error:
        cache.log.append(str(error))
    return cache.buffer.sum()


def in_try_and_block(cache, first, second):
    try:
        with torch.no_grad():
            return two(cache, first, second)
    except (KeyError, RuntimeError, IndexError):
        cache.log.append("caught")


def in_second_clause(cache, first, second):
    try:
        return two(cache, first, second)
    except TypeError:
        cache.log.append("wrong")
    except torch.OutOfMemoryError:
        cache.log.append("wrong")
    except Exception as error:
        cache.log.append(type(error))


def in_bare_clause(cache, first, second):
    try:
        return two(cache, first, second)
    except:  # noqa: E722
        cache.log.append("bare")


def swallowed(cache, first, second):
    with Swallowing():
        return two(cache, first, second)


def in_finally(cache, first, second):
    try:
        return two(cache, first, second)
    finally:
        cache.log.append("finally")


def in_others(cache, first, second):
    try:
        with torch.no_grad():
            return two(cache, first, second)
    except TypeError:
        cache.log.append("wrong")
    except (KeyError, AttributeError) as error:
        cache.log.append(error)


CAUGHT = {in_try: True, in_try_and_block: True, in_second_clause: True, in_bare_clause: True, swallowed: True}
CAUGHT |= {two: False, in_finally: False, in_others: False}
INSIDE, OUTSIDE = torch.tensor([1]), torch.tensor([99999])


@pytest.mark.parametrize("fn", CAUGHT, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("rows", [8, 8192])
def test_what_a_backend_wrote_is_undone_where_that_is_seen(fn, rows, monkeypatch):
    """Large tensors are copied only where the program handles the exception; nothing is where it is not large, or nothing was written."""
    copied = []

    class Counted(undoing.Copy):
        def __init__(self, tensor, whole, parts):
            copied.append(whole)
            super().__init__(tensor, whole, parts)

    monkeypatch.setattr(undoing, "Copy", Counted)
    compiled = capture(fn, lambda gm, example_inputs: gm.forward)

    def left(call, *given):
        cache = Cache(rows)
        try:
            result = call(cache, *given)
        except Exception as error:
            result = type(error), str(error)
        return str(result), cache.buffer.sum().item(), cache.log

    whole = CAUGHT[fn] or rows == 8
    for given in ((INSIDE, INSIDE), (OUTSIDE, INSIDE), (INSIDE, OUTSIDE), (INSIDE, INSIDE)):
        want, got = left(fn, *given), left(compiled, *given)
        assert got == want if whole or given[1] is INSIDE else got[:2] == want[:2]
    assert copied and set(copied) == {whole}
