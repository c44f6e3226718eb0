"""Many threads and one compiled function: one capture for each case, nobody waits who need not, nobody waits for ever."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.entry.capture import Capture, forget

BOUND_S = 60
THREADS = 8


def together(jobs: list[Callable[[], Any]]) -> list[Any]:
    """What the jobs give, each in a thread of its own, begun at the same time; the exception of one that raised."""
    barrier, results = threading.Barrier(len(jobs)), [None] * len(jobs)

    def run(number: int) -> None:
        barrier.wait(BOUND_S)
        try:
            results[number] = jobs[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert not any(thread.is_alive() for thread in threads), "waits for ever"
    return results


class Gate:
    """A backend that goes on once ``wanted`` threads have met a call that no entry fits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
        self.graphs: list[Any] = []
        self.missed, self.everybody, original = itertools.count(1), threading.Event(), Capture._target

        def target(capture: Capture, *args: Any) -> Any:
            if next(self.missed) == wanted:
                self.everybody.set()
            return original(capture, *args)

        monkeypatch.setattr(Capture, "_target", target)

    def again(self) -> None:
        self.missed = itertools.count(1)
        self.everybody.clear()

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        assert self.everybody.wait(BOUND_S)
        self.graphs.append(gm)
        return gm.forward


def test_one_compile_for_all_threads_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    backend = Gate(monkeypatch, THREADS)
    compiled = capture(f, backend, dynamic=False)
    for round_, size in enumerate((3, 5, 7, 9, 11), start=1):
        backend.again()
        inputs = [torch.full((size,), float(number)) for number in range(THREADS)]
        results = together([lambda x=x: compiled(x) for x in inputs])
        assert all(torch.equal(found, f(x)) for found, x in zip(results, inputs, strict=True))
        assert len(backend.graphs) == len(compiled.entries) == round_
    assert [entry.hits for entry in compiled.entries] == [THREADS - 1] * 5


def ends_the_graph() -> None: ...


ends_the_graph._torchdynamo_disable = True  # type: ignore[attr-defined]


def test_one_compile_of_what_comes_after_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        ends_the_graph()
        return y + 1

    backend = Gate(monkeypatch, THREADS)
    compiled = capture(f, backend)
    inputs = [torch.full((3,), float(number)) for number in range(THREADS)]
    results = together([lambda x=x: compiled(x) for x in inputs])
    assert all(torch.equal(found, f(x)) for found, x in zip(results, inputs, strict=True))
    assert len(backend.graphs) == 2


def test_a_failing_capture_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the capture gives up, threads that waited run the function as it is too."""
    tried = []

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    gate = Gate(monkeypatch, THREADS)

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        gate(gm, example_inputs)
        tried.append(gm)
        raise KeyError("a bug")

    compiled = capture(f, backend, dynamic=False)
    results = together([lambda: compiled(torch.ones(3))] * THREADS)
    assert all(torch.equal(found, torch.full((3,), 2.0)) for found in results)
    assert len(tried) <= 2


def test_a_reader_does_not_wait_for_a_compiler() -> None:
    compiling, read = threading.Event(), threading.Event()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        if example_inputs[0].shape[0] == 5:
            compiling.set()
            assert read.wait(BOUND_S), "the reader waits"
        return gm.forward

    compiled = capture(f, backend, dynamic=False)
    compiled(torch.ones(3))

    def reader() -> Any:
        assert compiling.wait(BOUND_S)
        result = compiled(torch.ones(3))
        read.set()
        return result

    five, three = together([lambda: compiled(torch.ones(5)), reader])
    assert five.tolist() == [2.0] * 5
    assert three.tolist() == [2.0] * 3


def test_captures_that_lead_to_each_other_do_not_wait_for_each_other() -> None:
    """f's backend calls g while g's calls f, each in a thread that has its own turn: neither can wait for the other's."""
    both = threading.Barrier(2)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def g(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    def leading_to(name: str) -> Any:
        def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
            both.wait(BOUND_S)
            assert compiled[name](torch.ones(2)).tolist() == [{"f": 2.0, "g": 3.0}[name]] * 2
            both.wait(BOUND_S)
            return gm.forward

        return backend

    compiled = {"f": capture(f, leading_to("g")), "g": capture(g, leading_to("f"))}
    results = together([lambda: compiled["f"](torch.ones(2)), lambda: compiled["g"](torch.ones(2))])
    assert [result.tolist() for result in results] == [[2.0, 2.0], [3.0, 3.0]]
    assert [len(each.entries) for each in compiled.values()] == [1, 1]


def test_forgetting_while_others_compile() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled, stop = capture(f, "eager"), threading.Event()

    def forgetting() -> None:
        for _ in range(20):
            forget(compiled)
        stop.set()

    def calling() -> Any:
        while not stop.is_set():
            assert compiled(torch.ones(3)).tolist() == [3.0] * 3

    assert together([forgetting, calling, calling]) == [None] * 3
