"""Generators that captured code begins: handed over half-way to what comes after a break, and dropped half-way."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def graph_break() -> None:
    """Runs natively."""


graph_break._torchdynamo_disable = True  # type: ignore[attr-defined]


def pulling(x: Any, n: int, log: list[Any]) -> Any:
    turns = 0
    try:
        for i in range(n):
            x = x * 2 + i
            log.append(i)
            got = yield x - 1
            turns += 1
            if got:
                log.append(got)
    except KeyError as exc:
        log.append(repr(exc))
        yield x * 0
    finally:
        log.append(("end", turns))
    return "done"


def delegating(x: Any, log: list[Any]) -> Any:
    log.append((yield from pulling(x, 3, log)))
    yield x


def handling(x: Any, log: list[Any]) -> Any:
    try:
        raise ValueError(1)
    except ValueError as exc:
        yield x
        log.append(repr(exc))
    yield x + 1


def broken_loop(x: Any, log: list[Any]) -> Any:
    for q in pulling(x, 3, log):
        x = x + q
        log.append(x.sum().tolist())
    return x


def left_in_the_loop(x: Any, log: list[Any]) -> Any:
    for q in pulling(x, 3, log):
        x = x + q
        if x.sum().tolist() > 3:
            break
    return x


def returned(x: Any, log: list[Any]) -> Any:
    g = pulling(x, 3, log)
    return next(g) + x, [*g], log


def sent_and_thrown(x: Any, log: list[Any]) -> Any:
    g = delegating(x, log)
    y = next(g)
    x.sum().tolist()
    y = y + g.send(5)
    y = y + g.throw(KeyError(3))
    return y, [*g]


def closed(x: Any, log: list[Any]) -> Any:
    g = pulling(x, 3, log)
    y = next(g)
    x.sum().tolist()
    g.close()
    log.append("closed")
    return y


def expression(x: Any, log: list[Any]) -> Any:
    g = (x * i + len(log) for i in range(4) if not log.append(i))
    y = next(g)
    x.sum().tolist()
    return y + sum(g)


def finished(x: Any, log: list[Any]) -> Any:
    g = pulling(x, 1, log)
    y = [*g]
    x.sum().tolist()
    return y, next(g, 7)


def in_a_handler(x: Any, log: list[Any]) -> Any:
    g = handling(x, log)
    y = next(g)
    x.sum().tolist()
    return y + next(g)


def dropped_at_the_end(x: Any, log: list[Any]) -> Any:
    g = pulling(x, 3, log)
    y = next(g) + 1
    log.append("body")
    return y


def dropped_at_once(x: Any, log: list[Any]) -> Any:
    y = next(pulling(x, 3, log))
    log.append("body")
    return y + 1


def dropped_inside(x: Any, log: list[Any]) -> Any:
    y = dropped_at_the_end(x, log)
    log.append("outside")
    return y + 1


def dropped_after_a_break(x: Any, log: list[Any]) -> Any:
    g = pulling(x, 3, log)
    y = next(g)
    x.sum().tolist()
    log.append("body")
    return y + 1


FUNCTIONS = [
    broken_loop, left_in_the_loop, returned, sent_and_thrown, closed, expression, finished, in_a_handler, dropped_at_the_end, dropped_at_once,
    dropped_inside, dropped_after_a_break,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_generators_do_what_they_do_in_the_plain_function(fn: Any) -> None:
    def outcome(how: Any) -> str:
        log: list[Any] = []
        result = how(torch.tensor([1.0, 2.0]), log)
        return repr((result, log))

    compiled = capture(fn, "eager")
    assert [outcome(fn)] * 3 == [outcome(fn), outcome(compiled), outcome(compiled)]


def test_a_generator_leaves_as_a_generator() -> None:
    def begun(x: Any) -> Any:
        log: list[Any] = []
        g = pulling(x, 2, log)
        next(g)
        return g, log

    g, log = capture(begun, "eager", fullgraph=True)(torch.ones(2))
    assert (g.__name__, g.__qualname__, log) == ("pulling", "pulling", [0])
    assert g.send("sent").tolist() == [4.0, 4.0] and log == [0, "sent", 1]
    del g
    assert log[-1] == ("end", 1)


def test_a_loop_over_a_generator_is_captured_around_its_break() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    capture(broken_loop, backend)(torch.ones(2), [])
    assert "mul" in graphs[0].code and len(graphs) <= 3  # the first turn, generator and body; the body of all others


def test_a_capture_keeps_nothing_of_its_call() -> None:
    class Thing:
        def __init__(self, x: Any) -> None:
            self.x = x

    def broken(x: Any, thing: Any) -> Any:
        y = x + 1
        y.sum().tolist()
        return y + thing.x

    enabled = gc.isenabled()
    gc.disable()
    try:
        for fn in (lambda x, thing: x + thing.x, broken):
            reasons: list[Any] = []
            x = torch.ones(2)
            thing = Thing(x)
            capture(fn, "eager", on_break=reasons.append)(x, thing)
            held = weakref.ref(x), weakref.ref(thing)
            del x, thing
            assert [r() for r in held] == [None, None]
    finally:
        if enabled:
            gc.enable()


def freed(x: Any, deleted: bool, late: bool) -> Any:
    """Functions and generators made in captured code go on behind breaks with variables of others, one of which may be gone."""
    word, other, found = "a", "b", list[Any]()

    def generator(p: Any) -> Any:
        got = yield p, other
        graph_break()
        yield word
        yield sorted(locals()), got

    def plain(p: Any, other: Any = None) -> Any:
        graph_break()
        inner = lambda: (word, p)  # noqa: E731
        graph_break()
        found.append(p)
        return word, inner()

    iterator = generator(1)
    found.append(next(iterator))
    if not late:
        graph_break()
    if deleted:
        del word
    graph_break()
    for step in (lambda: iterator.send(5), lambda: next(iterator), lambda: plain(x[0].item()), lambda: plain(2)):
        try:
            found.append(step())
        except (NameError, StopIteration) as error:
            found.append((type(error), str(error), getattr(error, "name", None)))
    return x + 1, found


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_free_variables_behind_breaks_are_free_ones(deleted: bool, late: bool) -> None:
    compiled = capture(freed)
    for _ in range(3):
        x = torch.ones(2)
        got, want = compiled(x, deleted, late), freed(x, deleted, late)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]
