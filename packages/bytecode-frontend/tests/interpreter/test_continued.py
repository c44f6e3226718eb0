"""Blocks of context managers that are written as generators, which graphs end in: the capture behind runs the rest of the generator."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from alike import near, same

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.resume import STATE
from opmill_bytecode_frontend.values.continued import is_continued, made_of

LOG: list[Any] = []


@contextlib.contextmanager
def noted(name: str, t: torch.Tensor) -> Iterator[torch.Tensor]:
    LOG.append(("in", name))
    twice = t * 2
    try:
        yield twice
    except ValueError as error:
        LOG.append(("caught", str(error)))
    finally:
        LOG.append(("out", name, twice.shape))


@contextlib.contextmanager
def around(t: torch.Tensor) -> Iterator[torch.Tensor]:
    with noted("inner", t) as twice:
        for k in range(1):
            yield twice + k
    LOG.append("after")


@contextlib.contextmanager
def shared(t: torch.Tensor) -> Iterator[Callable[[], int]]:
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return count

    yield more
    LOG.append(("count", count))


@contextlib.contextmanager
def named(t: torch.Tensor) -> Iterator[None]:
    k = 3
    yield
    LOG.append(sorted(locals()))
    LOG.append(k)


def nested(x: torch.Tensor) -> torch.Tensor:
    with around(x * 2) as z:
        y = x + z if x.sum() > 0 else x - z
        y = y * 3
    return y + 1


def raising(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with noted("a", x) as z:
        if y.sum() > 0:
            y = y + z
        else:
            raise ValueError("negative")
    return y + 1


def counting(x: torch.Tensor) -> torch.Tensor:
    with shared(x) as more:
        more()
        if x.sum() > 0:
            more()
        x = x * more()
    return x


def two(x: torch.Tensor) -> torch.Tensor:
    with noted("a", x), named(x):
        if x.sum() > 0:
            x = x * 2
        if x.sum() > 1:
            x = x * 3
    return x


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for k in range(3):
        with noted(str(k), x) as z:
            if x.sum() > k:
                x = x + z
    return x


FUNCTIONS = [nested, raising, counting, two, in_a_loop]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_is_left_of_them_is_as_without_a_capture(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = capture(function, "eager")
    for x in (torch.ones(3), torch.ones(3) * 2, -torch.ones(3), torch.ones(3), -torch.ones(3)):
        LOG.clear()
        found, said = compiled(x), list(LOG)
        LOG.clear()
        assert same(found, function(x), near())
        assert said == LOG


@pytest.mark.parametrize(
    ("function", "most"), [(nested, 2), (raising, 1), (counting, 1), (two, 2)], ids=lambda f: getattr(f, "__name__", "")
)
def test_the_end_of_the_block_ends_no_graph(function: Callable[[torch.Tensor], torch.Tensor], most: int) -> None:
    breaks: list[object] = []
    compiled = capture(function, "eager", on_break=breaks.append)
    compiled(torch.ones(3))
    assert len({str(each) for each in breaks}) <= most, [str(each) for each in breaks]


def test_a_generator_that_nobody_ends_is_let_go_as_one() -> None:
    kept: list[Any] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        manager = noted("kept", x)
        manager.__enter__()
        kept.append(manager)
        return x * 2 if x.sum() > 0 else x

    LOG.clear()
    capture(run, "eager")(torch.ones(2))
    [manager] = kept
    assert LOG == [("in", "kept")]
    if is_continued(manager.gen):
        assert made_of(manager.gen)
    manager.__exit__(None, None, None)
    assert LOG[1:] == [("out", "kept", torch.Size([2]))]
    assert made_of(manager.gen) is None


def test_generators_of_the_program_are_asked_nothing() -> None:
    sent: list[object] = []

    def plain() -> Any:
        while True:
            sent.append((yield 1))

    generator = plain()
    next(generator)
    assert not is_continued(generator) and made_of(generator) is None and not sent and STATE not in generator.gi_code.co_varnames


def test_what_a_block_holds_dies_with_it() -> None:
    class Held:
        pass

    refs: list[Any] = []

    @contextlib.contextmanager
    def holding() -> Iterator[None]:
        held = Held()
        refs.append(weakref.ref(held))
        yield
        del held

    def run(x: torch.Tensor) -> torch.Tensor:
        with holding():
            if x.sum() > 0:
                x = x * 2
        return x + 1

    compiled = capture(run, "eager")
    for _ in range(3):
        compiled(torch.ones(2))
    gc.collect()
    assert sys.gettrace() is not None or all(ref() is None for ref in refs)
