"""What a call leaves behind that raises because of data: what eager leaves in arguments, objects, parameters, gradients and the random state.
A program writes, then an operator may raise, and its caller, or the program itself, catches that and looks."""

from __future__ import annotations

import itertools
import random
import types
from typing import Any

import pytest
import torch

import opmill

F = torch.nn.functional
RAISING = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i),
    "embedding": lambda x, i: F.embedding(i, x[:, None]),
    "item": lambda x, i: [0, 1, 2, 3][i.max().item()],
    "inverse": lambda x, i: torch.linalg.inv(torch.eye(2) * (9 - i.max()).clamp(0, 1)),
    "assert": lambda x, i: torch._assert_async(i.max() < 4),
    "check": lambda x, i: torch._check(i.max().item() < 4, lambda: "large"),
    "bincount": lambda x, i: torch.bincount(2 - i),
    "loss": lambda x, i: F.nll_loss(torch.ones(i.shape[0], 4), i),
    "division": lambda x, i: torch.tensor(5) // (9 - i.max()),
    "power": lambda x, i: torch.pow(i, (3 - i).min().item()),
    "view": lambda x, i: x.view(i.max().item(), -1),
    "split": lambda x, i: x.split([i.max().item(), x.shape[0] - i.max().item()]),
    "put": lambda x, i: x.index_put_((i,), x.new_ones(())),
    "item of": lambda x, i: x.__setitem__(i, 7.0),
    "scattered": lambda x, i: x.scatter_add_(0, i, torch.ones(i.shape)),
    "added": lambda x, i: x.index_add_(0, i, torch.ones(i.shape)),
    "filled": lambda x, i: x.index_fill_(0, i, 7.0),
    "put at": lambda x, i: x.put_(i, torch.ones(i.shape)),
    "narrow": lambda x, i: x.narrow(0, i.max().item(), 1),
}


def to_parameter(x: torch.Tensor, h: Any) -> None:
    with torch.no_grad():
        h.weight.mul_(2)
    h.count += 1


def to_containers(x: torch.Tensor, h: Any) -> None:
    h.items.append(x * 2)
    h.table["key"] = h.count
    del h.table["old"]
    h.count += 1


def to_statistics(x: torch.Tensor, h: Any) -> None:
    F.batch_norm(torch.stack([x, x * 2]), h.mean, h.var, training=True)
    h.count += 1


WRITING = {
    "argument": lambda x, h: x.add_(1),
    "parts": lambda x, h: (x.add_(1), x[0].mul_(2), x[1:].mul_(2)),
    "data": lambda x, h: x.data.add_(1),
    "drawn": lambda x, h: x.add_(torch.rand(4)),
    "gradient": lambda x, h: (h.weight * x).sum().backward(),
    "parameter": to_parameter,
    "containers": to_containers,
    "statistics": to_statistics,
}


def before(x: torch.Tensor, i: torch.Tensor, h: Any, write: Any, act: Any) -> Any:
    write(x, h)
    result = act(x, i)
    h.count += 10
    return result


def caught(x: torch.Tensor, i: torch.Tensor, h: Any, write: Any, act: Any) -> Any:
    write(x, h)
    try:
        result = act(x, i)
    except Exception as error:
        h.items.append(type(error).__name__)
        result = x * 1
    h.count += 10
    return result


def at_last(x: torch.Tensor, i: torch.Tensor, h: Any, write: Any, act: Any) -> Any:
    y = x + 1
    try:
        act(x, i)
    finally:
        write(x, h)
    return y


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    return [shown(each) for each in value] if isinstance(value, (list, tuple)) else value


def outcomes(call: Any, write: Any, act: Any) -> Any:
    for k, positions in enumerate(([0, 1], [1, 2], [0, 9], [2, 3], [9, 1], [1, 1])):
        parts = {"weight": torch.nn.Parameter(torch.ones(4)), "mean": torch.zeros(4), "var": torch.ones(4)}
        h = types.SimpleNamespace(count=1, items=[], table={"old": 1}, **parts)
        x, i = torch.arange(1.0, 5.0), torch.tensor(positions)
        torch.manual_seed(k)
        try:
            result = shown(call(x, i, h, write, act))
        except Exception as error:
            result = type(error), str(error)
        states = [(t.tolist(), t._version) for t in (x, i, *parts.values())]
        yield result, states, shown(parts["weight"].grad), h.count, shown(h.items), h.table, torch.rand(1).item()


CASES = random.Random(5).sample(list(itertools.product(RAISING, WRITING, (before, caught, at_last))), 56)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "opmill"])
@pytest.mark.parametrize(("act", "write", "program"), CASES, ids=lambda x: getattr(x, "__name__", x))
def test_what_is_left_behind(act, write, program, backend):
    if backend == "opmill":
        pytest.importorskip("opmill_kernel_gen_cpp")
    compiled = opmill.compile(program, **({"backend": "eager"} if backend == "eager" else {}))
    given = WRITING[write], RAISING[act]
    assert list(outcomes(compiled, *given)) == list(outcomes(program, *given))


POWERS = {
    "of a tensor": lambda x, n: n**x,
    "of a number": lambda x, n: x + (-2) ** n,
    "of what data tell": lambda x, n: x ** (9 - x.max().item()),
    "zero": lambda x, n: (-0.0) ** x,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "opmill"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("power", POWERS.values(), ids=POWERS)
def test_powers_of_negative_numbers(power, dynamic, backend):
    if backend == "opmill":
        pytest.importorskip("opmill_kernel_gen_cpp")
    compiled = opmill.compile(power, dynamic=dynamic, **({"backend": "eager"} if backend == "eager" else {}))
    for items, n in (([1, 2], 2), ([2, 3], 3), ([1, 4], -1), ([0, 9], -2), ([3, 10], 4)):
        told = []
        for call in (power, compiled):
            try:
                told.append(call(torch.tensor(items), n).tolist())
            except (RuntimeError, ZeroDivisionError) as error:
                told.append(str(error))
        assert told[0] == told[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", ["mul_", "index_put_", "data"])
def test_writes_to_expanded_tensors_raise_where_the_program_handles_it(write: str) -> None:
    """Torch refuses most of them, and would refuse to put back what the tensor held."""

    def program(x: torch.Tensor) -> object:
        y = x + 1
        try:
            if write == "mul_":
                x.mul_(2)
            elif write == "index_put_":
                x.index_put_((torch.tensor([0]),), torch.ones(3))
            else:
                x.data.add_(1)
        except RuntimeError as error:
            return y, str(error)
        return y

    given = [torch.ones(3).expand(2, 3) for _ in range(2)]
    plain, compiled = program(given[0]), opmill.compile(program)(given[1])
    assert type(plain) is type(compiled)
    assert repr(plain) == repr(compiled)
