"""What functions of packages do that is no part of a graph: they run as they are, from where the program called them. Who holds a lock does so
while the program runs."""

from __future__ import annotations

import threading
import types

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture

PACKAGE = """
import gc, threading

LOCK, AGAIN, DONE = threading.Lock(), threading.RLock(), []


def once(name):
    if name in DONE:
        return len(DONE)
    with LOCK, AGAIN:
        assert LOCK.locked()
        for k in range(3):
            DONE.append(f"{name}{k}" if k else name)
    return len(DONE)


def acquired(name):
    LOCK.acquire()
    try:
        DONE.append(name)
    finally:
        LOCK.release()
    return len(DONE)


def collected(name):
    with LOCK:
        DONE.append(name)
        gc.collect()
        DONE.append(name)
    return len(DONE)


def through(name):
    return once(name) + 1


def raises(name):
    with LOCK:
        raise KeyError(name)


def freeze(module, flag):
    for part in module.children():
        for parameter in part.parameters():
            parameter.requires_grad_(flag)


def activate(module, name):
    for key, part in module.named_children():
        freeze_one(part, key == name)
    return name


def freeze_one(part, flag):
    for parameter in part.parameters():
        parameter.requires_grad = flag
"""
LOCK = threading.Lock()


@pytest.fixture
def package():
    made = types.ModuleType("package")
    exec(compile(PACKAGE, "/somewhere/site-packages/package.py", "exec"), vars(made))
    return made


def caught(call, name):
    try:
        return call(name)
    except KeyError as error:
        return str(error)


@pytest.mark.parametrize("name", ["once", "acquired", "through", "raises", "collected"])
def test_a_function_of_a_package_that_takes_one_runs_as_it_is_unless_all_of_it_is_captured(package, name):
    def f(x):
        y = x.sin()
        told = caught(getattr(package, name), "a")
        return y * 2, told, list(package.DONE)

    x = torch.ones(3)
    want = [f(x) for _ in range(3)]
    package.DONE.clear()
    breaks: list = []
    compiled = capture(f, "eager", on_break=breaks.append)
    assert same(want, [compiled(x) for _ in range(3)])
    assert len(breaks) <= 3 if name == "collected" else not breaks  # one at a call
    assert not package.LOCK.locked()

    package.DONE.clear()
    alone = capture(getattr(package, name), "eager")
    assert [caught(alone, "a") for _ in range(3)] == [told for _, told, _ in want]


def test_where_no_graph_can_end_inside_the_one_before_stays(package):
    graphs = []

    def f(x):
        y = x.sin()
        return y, [package.once(name) for name in map(str, sorted([3, 1], key=lambda k: -k))], sum(package.acquired("a") for _ in range(2))

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.ones(3)
    want = f(x)
    package.DONE.clear()
    assert same(want, capture(f, backend)(x)) and len(graphs) == 1


def test_a_program_holds_its_own_around_its_operators():
    held = []

    def f(x):
        y = x.sin()
        with LOCK:
            y = y * 2
            held.append(LOCK.locked())
        return y + 1, LOCK.locked()

    x, graphs = torch.ones(3), []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    want, got = f(x), capture(f, backend)(x)
    assert same(want, got) and held == [True, True] and len(graphs) == 1


@pytest.mark.parametrize("change", ["freeze", "activate", "of torch"])
def test_a_package_that_changes_what_requires_grad_does_so_at_once(package, change):
    def outcome(call):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        told = []
        for given in (True, False, True) if change != "activate" else ("0", "2", "0"):
            model.zero_grad()
            x = torch.ones(2, 3, requires_grad=True)
            y = call(model, x, given)
            y.sum().backward()
            told.append((y.detach(), x.grad, [p.requires_grad for p in model.parameters()]))
            told.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        return told

    def f(model, x, given):
        model.requires_grad_(given) if change == "of torch" else getattr(package, change)(model, given)
        return model(x).sin()

    breaks: list = []
    assert str(outcome(f)) == str(outcome(capture(f, "eager", on_break=breaks.append)))
    assert {error.code for error in breaks} == {"FE032"}
