"""What results of compiled code have to do with the wrappers that they are views of, against eager: memory, counts of writes, history; and
what is said of wrappers that captured code makes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import opmill
from opmill.compile import record_of

pytestmark = [pytest.mark.filterwarnings("ignore")]
F = torch.nn.functional
WRITES: dict[str, Callable[[Any], Any]] = {
    "once": lambda x: x.add_(1),
    "twice": lambda x: x.add_(1).mul_(2),
    "a part": lambda x: x[1:].zero_(),
    "a view": lambda x: x.view(-1).add_(1),
    "itself and a part": lambda x: (x.add_(1), x[0].mul_(2)),
    "a transpose": lambda x: x.t().add_(1),
    "detached": lambda x: x.detach().add_(1),
    "what is inside": lambda x: x.a.add_(1),
    "in place": lambda x: F.relu(x, inplace=True),
    "nothing": lambda x: x + 1,
}


def pair(*sizes: int, grad: bool = False) -> Any:
    noise = torch.Generator().manual_seed(0)
    made = TwoTensor(*(torch.randn(sizes, generator=noise, dtype=torch.float64) for _ in range(2)))  # type: ignore[no-untyped-call]
    return made.requires_grad_(grad)


def inside(x: Any) -> list[Any]:
    return [x.a.tolist(), x.b.tolist()]


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_counted(name: str) -> None:
    def counts(call: Callable[[Any], Any]) -> list[Any]:
        x, found = pair(2, 2), []
        for _ in range(3):
            call(x)
            found.append((x._version, inside(x)))
        return found

    assert counts(opmill.compile(WRITES[name])) == counts(WRITES[name])


@pytest.mark.parametrize("name", WRITES)
def test_what_was_saved_before_a_write_is_missed(name: str) -> None:
    def outcome(call: Callable[[Any], Any]) -> Any:
        x, w = pair(2, 2), pair(2, 2, grad=True)
        y = x * w
        call(x)
        try:
            y.backward(torch.ones_like(y))
        except RuntimeError as error:
            return str(error)[:60]
        return inside(w.grad)

    assert outcome(opmill.compile(WRITES[name])) == outcome(WRITES[name])


@pytest.mark.parametrize("name", WRITES)
def test_writes_in_inference_mode(name: str) -> None:
    compiled = opmill.compile(WRITES[name])
    for n in (2, 3, 4):
        with torch.inference_mode():
            x, y = pair(n, 2), pair(n, 2)
            compiled(x)
            WRITES[name](y)
            assert inside(x) == inside(y)
    record = record_of(compiled)
    assert record is not None and len(record[1].graphs) == 2


VIEWS: dict[str, Callable[[Any], Any]] = {
    "of an input": lambda x: (x * 2, x[1:]),
    "of an input that is returned": lambda x: (x, x[1:].t()),
    "detached": lambda x: (x, x.detach()),
    "of what is computed": lambda x: (y := x * 2, y[1:]),
    "before what they are of": lambda x: ((y := x + 2)[:2], y),
    "two of what nobody sees": lambda x: ((y := x + 2)[:2], y[1:]),
    "three of two": lambda x: ((y := x + 2)[:2], y[1:], (z := x * 3).t(), z[0]),
    "parts": lambda x: (x + 1).chunk(2),
    "by a size": lambda x: (y := x + 1, y.view(x.shape[0] * 2, -1)),
}
WRITTEN: dict[str, Callable[[Any], Any]] = {
    "an input": lambda x: (x.add_(1), x[1:]),
    "a view": lambda x: (x, x[1:].zero_()),
    "before the view": lambda x: (x.mul_(3) * 1, x.t()),
    "behind the view": lambda x: (x.t(), x.mul_(3))[::-1],
    "what the view was copied from": lambda x: (x * 1, x.t().reshape(-1), x.add_(1))[:2],
    "without recording": torch.no_grad()(lambda x: (x.add_(1) * 2, x[1:])),
}


def later(call: Callable[[Any], Any], grad: bool, sizes: tuple[int, int]) -> list[Any]:
    """What a later write to the second result does to all others."""
    x = pair(*sizes, grad=grad)
    outputs = call(x)
    w = torch.full((), 3.0, dtype=torch.float64, requires_grad=True)
    everything = [x, *outputs]
    found = [[(inside(t), t._version, t._base is not None, t.is_leaf) for t in everything]]
    try:
        outputs[1].mul_(w)
    except RuntimeError as error:
        return [*found, type(error).__name__, str(error)[:60]]
    found.append([(inside(t), t._version, t.requires_grad) for t in everything])
    leaf = x if grad else None
    for t in outputs:
        if t.requires_grad:
            t.backward(torch.ones_like(t), retain_graph=True)
    return [*found, w.grad is not None and float(w.grad.sum()), leaf is not None and leaf.grad is not None and inside(leaf.grad)]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_are_of_what_they_are_of_in_eager(name: str, grad: bool) -> None:
    program = VIEWS[name]
    compiled = opmill.compile(program)
    for sizes in ((4, 4), (6, 4), (8, 4)):
        assert str(later(compiled, grad, sizes)) == str(later(program, grad, sizes))
    record = record_of(compiled)
    assert record is not None and not [g.fallback for g in record[1].graphs if g.fallback] and not record[1].breaks


@pytest.mark.parametrize("name", WRITTEN)
def test_views_of_what_the_graph_writes(name: str) -> None:
    program = WRITTEN[name]
    compiled = opmill.compile(program)
    for sizes in ((4, 4), (6, 4), (8, 4)):
        assert str(later(compiled, False, sizes)) == str(later(program, False, sizes))


def test_copies_are_what_they_were_written_to() -> None:
    def program(x: Any) -> Any:
        y, z = x.t().reshape(-1), x[1:].clone()
        return y.add_(1), z.mul_(2), x.add_(5)

    compiled = opmill.compile(program)
    for n in (4, 6, 8):
        assert [inside(t) for t in compiled(pair(n, 4))] == [inside(t) for t in program(pair(n, 4))]


class Kind(str, enum.Enum):  # noqa: UP042 - as programs have them
    ONE = "one"


class Number(enum.IntEnum):
    THREE = 3


class Marks(enum.IntFlag):
    A = 1
    B = 2


class Plain(enum.Enum):
    X = 1


class Said(TwoTensor):
    """A pair that something is said of."""

    said: Any = None

    @staticmethod
    def made(a: Any, b: Any, said: Any) -> Said:
        return Said(a, b, said)

    @staticmethod
    def __new__(cls, a: Any, b: Any, said: Any = None) -> Any:
        return TwoTensor.__new__(cls, a, b)  # type: ignore[no-untyped-call]

    def __init__(self, a: Any, b: Any, said: Any = None) -> None:
        super().__init__(a, b)  # type: ignore[no-untyped-call]
        self.said = said

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], self.said

    @staticmethod
    def __tensor_unflatten__(inner: Any, said: Any, size: Any, stride: Any) -> Any:
        return Said(inner["a"], inner["b"], said)


THINGS = [
    Kind.ONE, Number.THREE, Marks.A, Marks.A | Marks.B, Plain.X, True, 2, 2.5, "text", None, (Kind.ONE, 2), [Kind.ONE, [1]], {"a": Kind.ONE},
    {"a": [1, {"b": 2}]}, torch.float32, torch.device("cpu"), slice(1, 2),
]  # fmt: skip


def kinds(value: Any) -> Any:
    """The class of a value and of all that is in it."""
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(item) for item in value]
    return (type(value), [kinds(item) for item in value.values()]) if isinstance(value, dict) else type(value)


@pytest.mark.parametrize("number", range(len(THINGS)))
def test_what_is_said_of_a_wrapper_stays_what_it_is(number: int) -> None:
    said = THINGS[number]

    def program(x: Any) -> Any:
        return Said(x.sin(), x * 2, said), x

    compiled = opmill.compile(program)
    for n in (2, 3, 4):
        found = compiled(torch.ones(n))[0]
        assert type(found) is Said and found.said == said and kinds(found.said) == kinds(said)
        assert inside(found) == inside(program(torch.ones(n))[0])
