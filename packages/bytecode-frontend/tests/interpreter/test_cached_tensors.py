"""Functions with ``lru_cache`` that make tensors: captured whole, and what the cache holds, counts and gives is what it would be."""

from __future__ import annotations

import dataclasses
import functools
import gc
import weakref
from typing import Any, NamedTuple

import pytest
import torch

from opmill_bytecode_frontend import capture


@functools.lru_cache(maxsize=4)
def table(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = []
    for i in range(3):
        rows.append(torch.arange(n, dtype=dtype) * i)
    return torch.stack(rows).sum(0)


@functools.cache
def anchors(shapes: tuple[tuple[int, int], ...]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    made = [torch.full(shape, float(i)) for i, shape in enumerate(shapes)]
    return torch.cat([each.flatten() for each in made]), made


@dataclasses.dataclass
class Rotation:
    cos: torch.Tensor
    sin: torch.Tensor
    scale: float = 2.0


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@functools.lru_cache
def rotation(n: int) -> Rotation:
    angles = torch.arange(n) / n
    return Rotation(angles.cos(), angles.sin())


@functools.lru_cache
def pair(n: int) -> Pair:
    return Pair(torch.ones(n), torch.zeros(n))


@functools.lru_cache
def by_name(n: int) -> dict[str, torch.Tensor]:
    return {"a": torch.ones(n), "b": torch.arange(n)}


@functools.cache
def trained(n: int) -> torch.Tensor:
    return torch.eye(n, requires_grad=True).view(n, n).contiguous()


SCALE = 2.0


@functools.lru_cache
def scaled(n: int) -> torch.Tensor:
    return torch.ones(n) * SCALE


@functools.lru_cache(maxsize=1)
def only_one(n: int) -> torch.Tensor:
    return torch.ones(2) * n


@functools.lru_cache
def random(n: int) -> torch.Tensor:
    return torch.rand(n)


CACHED = (table, anchors, rotation, pair, by_name, trained, scaled, only_one, random)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))

    @functools.lru_cache  # noqa: B019 -- as models of transformers do
    def linears(self, root: torch.nn.Module) -> list[torch.nn.Module]:
        found = []
        for module in root.modules():
            if isinstance(module, torch.nn.Linear):
                found.append(module)
        return found

    @functools.lru_cache  # noqa: B019
    def positions(self, n: int) -> torch.Tensor:
        return torch.arange(n) + 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.linears(self.net):
            x = layer(x)
        return self.net(x) + self.positions(4)


LAYERS = Layers()


def two_calls(x: torch.Tensor) -> Any:
    return x + table(4) * table(4), table(4) is table(4)


def two_keys(x: torch.Tensor) -> Any:
    return x + table(4) + table(4, torch.float64).float() + table(n=4)


def in_a_loop(x: torch.Tensor) -> Any:
    for n in range(6):  # more keys than the cache keeps
        x = x + table(n).sum()
    return x


def structures(x: torch.Tensor) -> Any:
    flat, made = anchors(((2, 2), (1, 3)))
    turn = rotation(4)
    a, b = pair(4)
    return x * turn.cos + turn.sin * turn.scale + flat.sum(), made[1], len(made), a + b, by_name(3)["b"] + 1


def given_back(x: torch.Tensor) -> Any:
    return table(4), anchors(((2, 2),))


def written_in_place(x: torch.Tensor) -> Any:
    table(4).add_(1)
    return x + table(4)


def put_in(x: torch.Tensor) -> Any:
    made = anchors(((2, 2),))[1]
    made.append(x)
    return len(made), made[-1] + made[0].sum()


def without_grad(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = trained(4)
    return x @ trained(4) + y


def with_grad(x: torch.Tensor) -> Any:
    return (x @ trained(4)).requires_grad


def one_at_a_time(x: torch.Tensor) -> Any:
    return x + only_one(1).sum() + only_one(2).sum() + only_one(1).sum()


def random_numbers(x: torch.Tensor) -> Any:
    torch.manual_seed(3)
    return x + random(4)


def of_modules(x: torch.Tensor) -> Any:
    return LAYERS(x)


def break_between(x: torch.Tensor) -> Any:
    y = x + table(4)
    print(end="")
    return y * table(4)


WHOLE = (two_calls, two_keys, structures, given_back, written_in_place, with_grad, of_modules)
BROKEN = (put_in, in_a_loop, without_grad, one_at_a_time, random_numbers, break_between)


def text(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().tolist(), value.dtype, value.requires_grad
    return [text(v) for v in value] if isinstance(value, (list, tuple)) else value


def run(function: Any, times: int, clear: bool) -> list[Any]:
    torch.manual_seed(0)
    Layers.linears.cache_clear(), Layers.positions.cache_clear()
    for cached in CACHED:
        cached.cache_clear()
    found = []
    for _ in range(times):
        found.append(text(function(torch.ones(4))))
        found.append([tuple(cached.cache_info()) for cached in (*CACHED, Layers.linears, Layers.positions)])
        if clear:
            table.cache_clear(), anchors.cache_clear()
    return found


@pytest.mark.parametrize("clear", [False, True], ids=["kept", "cleared"])
@pytest.mark.parametrize("program", [*WHOLE, *BROKEN], ids=lambda f: f.__name__)
def test_results_and_counts(program: Any, clear: bool) -> None:
    want = run(program, 4, clear)
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(program, backend, fullgraph=program in WHOLE)
    assert run(compiled, 4, clear) == want
    if program in WHOLE:
        assert len(graphs) <= 1


def test_objects_are_those_of_the_cache() -> None:
    compiled = capture(given_back, "eager", fullgraph=True)
    for _ in range(2):
        table.cache_clear(), anchors.cache_clear()
        kept, (flat, made) = compiled(torch.ones(4))
        assert kept is table(4)
        assert flat is anchors(((2, 2),))[0]
        assert made is anchors(((2, 2),))[1]


def test_what_the_cache_holds_is_not_kept_alive() -> None:
    compiled = capture(given_back, "eager", fullgraph=True)
    compiled(torch.ones(4))
    held = weakref.ref(table(4))
    table.cache_clear()
    gc.collect()
    assert held() is None


def test_old_results_stay() -> None:
    """What a cache gives is what it computed once, whatever the program has set since."""
    global SCALE

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + scaled(4)

    compiled = capture(program, "eager", fullgraph=True)
    scaled.cache_clear()
    x = torch.ones(4)
    assert compiled(x).tolist() == [3.0] * 4
    try:
        SCALE = 5.0
        assert compiled(x).tolist() == [3.0] * 4
        scaled.cache_clear()
        assert compiled(x).tolist() == [6.0] * 4
    finally:
        SCALE = 2.0


def test_results_of_another_form_run_the_function() -> None:
    sizes = [4]

    @functools.cache
    def sized() -> torch.Tensor:
        return torch.ones(sizes[0])

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + sized()

    compiled = capture(program, "eager", fullgraph=True)
    x = torch.ones(3)
    assert compiled(x).tolist() == [4.0] * 4
    sizes[0] = 2
    sized.cache_clear()
    assert compiled(x).tolist() == [4.0] * 2
    sizes[0] = 4
    assert compiled(x).tolist() == [4.0] * 2  # guards hold, the cache has what it had


class Settled:
    """Known by its identity: it is hashed."""


@functools.cache
def settled() -> Settled:
    return Settled()


@functools.cache
def lasting() -> type[Settled]:
    return Settled


@functools.cache
def made_function() -> Any:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    return inner


def by_its_identity(x: torch.Tensor) -> Any:
    return x * {settled(): 2.0}[settled()] + (settled() in {settled()})


def by_its_class(x: torch.Tensor) -> Any:
    return x + isinstance(settled(), lasting())


def by_its_code(x: torch.Tensor) -> Any:
    return made_function()(x)


@pytest.mark.parametrize("fullgraph", [False, True], ids=["broken", "whole"])
@pytest.mark.parametrize("program", [by_its_identity, by_its_class, by_its_code])
def test_graphs_run_where_an_object_of_a_cache_is_known_by_identity(program, fullgraph) -> None:
    """What the cache has is another object than that which the capture has seen; a whole graph holds what the cache gave then."""
    ran = []

    def backend(gm, inputs):
        def run(*args: torch.Tensor) -> Any:
            ran.append(gm)
            return gm.forward(*args)

        return run

    for cached in (settled, lasting, made_function):
        cached.cache_clear()
    compiled = capture(program, backend, fullgraph=fullgraph)
    for k in range(3):
        x = torch.arange(3.0) + k
        assert torch.equal(compiled(x), program(x))
        assert len(ran) > k
    for cached in (settled, lasting, made_function):
        cached.cache_clear()
    assert torch.equal(compiled(x), program(x))


def test_an_argument_that_is_what_the_cache_gives() -> None:
    def program(x: torch.Tensor) -> Any:
        kept = table(4)
        x.add_(1)
        return kept * 2, kept is x

    want_other, want_same = [], []
    for function, found in ((program, (want_other, want_same)), (capture(program, "eager"), None)):
        results = []
        for _ in range(2):
            table.cache_clear()
            results.append(text(function(torch.zeros(4))))
            results.append(text(function(table(4))))
        if found is not None:
            want = results
        else:
            assert results == want


def test_gradients_reach_what_the_cache_holds() -> None:
    @functools.cache
    def weights() -> torch.Tensor:
        return torch.ones(4, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * weights()).sum()

    compiled = capture(program, "eager", fullgraph=True)
    for n in (1, 2):
        compiled(torch.arange(4.0)).backward()
        assert weights().grad.tolist() == [0.0, n * 1.0, n * 2.0, n * 3.0]


def test_changing_sizes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + table(x.shape[0])

    compiled = capture(program, "eager")
    for n in (3, 5, 7, 3):
        want = table(n) + 1
        assert torch.equal(compiled(torch.ones(n)), want)
