"""What an array says of whose memory it has: nobody's but its own, that of the first array of those that it was taken of, or a tensor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy")
GIVEN: dict[str, Callable[[], Any]] = {
    "own": lambda: np.arange(12.0),
    "slice": lambda: np.arange(20.0)[:12],
    "slice of a slice": lambda: np.arange(20.0)[1:][:12],
    "turned": lambda: np.arange(12.0).reshape(3, 4).T.reshape(-1),
    "integers": lambda: np.arange(12),
    "of a tensor": lambda: torch.arange(12.0).numpy(),
    "of bytes": lambda: np.frombuffer(bytearray(range(12)), dtype=np.uint8),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda a: a[:4],
    "steps": lambda a: a[::2],
    "turned": lambda a: a.reshape(3, 4).T,
    "reshape": lambda a: a.reshape(3, 4),
    "slice of a slice": lambda a: a[2:][1:3],
    "new axis": lambda a: a[None, :],
    "ravel": lambda a: a.ravel(),
    "backwards": lambda a: a[::-1],
    "the same": lambda a: np.asarray(a),
    "transpose": lambda a: np.transpose(a.reshape(2, 6)),
    "squeeze": lambda a: np.squeeze(a[None]),
}
MADE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda a: a + 1,
    "copy": lambda a: a.copy(),
    "picked": lambda a: a[[0, 2, 5]],
    "zeros": lambda a: np.zeros(12),
    "concatenate": lambda a: np.concatenate([a, a]),
    "where": lambda a: np.where(a > 3, a, 0),
    "cast": lambda a: a.astype("int16"),
    "constant": lambda a: np.arange(12.0),
    "flatten": lambda a: a.flatten(),
    "product": lambda a: a.reshape(3, 4) @ a.reshape(4, 3),
}
TWELVE = ("sum", "copy", "zeros", "where", "cast", "constant", "flatten")
"""Which of them have as many items as what is given."""


def pruned(a: Any) -> Any:
    """As scipy does."""
    return a.copy() if a.base is not None and a.size < a.base.size // 2 else a


def said(a: Any) -> Any:
    base = a.base
    if base is None:
        return None
    kind = type(base).__name__
    return (kind, base.dtype, tuple(base.shape), base is a, a.base is base) if kind in ("ndarray", "Tensor") else kind


def outcomes(function: Callable[..., Any], make: Callable[[], Any]) -> None:
    captured = capture(function, "eager")
    for _ in range(2):
        expected, found = function(make()), captured(make())
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("given", GIVEN)
def test_of_what_is_given(given: str) -> None:
    outcomes(said, GIVEN[given])
    if given not in ("of a tensor", "of bytes"):
        outcomes(pruned, GIVEN[given])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("given", ["own", "slice", "slice of a slice", "integers", "of a tensor"])
def test_of_views(given: str, view: str) -> None:
    def views(a: Any) -> Any:
        b = VIEWS[view](a)
        return said(b), b.base is a, a.base is b.base, said(b[:1]), b[:1].base is b, said(b[:1][:1]), b[:1].base is b.base

    outcomes(views, GIVEN[given])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("made", MADE)
def test_of_what_is_made(made: str, view: str) -> None:
    def makes(a: Any) -> Any:
        b = MADE[made](a)
        c = VIEWS[view](b) if made in TWELVE else b[:1]
        return said(b), said(c), c.base is b, b.base is c.base, pruned(b[:2]).base is None, c

    outcomes(makes, GIVEN["own"])


def test_of_what_a_mask_picks() -> None:
    def picks(a: Any) -> Any:
        b = a[a > 3]
        return b.base is None, b[:1].base is b, b

    outcomes(picks, GIVEN["own"])


@pytest.mark.parametrize("given", ["own", "slice"])
def test_what_is_written_to_a_base_is_seen(given: str) -> None:
    def writes(a: Any) -> Any:
        b = (a * 2)[1:5]
        b.base[2] = 7
        c = a[3:]
        (c.base if c.base is not None else c)[-1] = 9
        return a, b, c

    outcomes(writes, GIVEN[given])


def test_another_kind_of_base_is_another_program() -> None:
    captured = capture(said, "eager")
    for make in (*GIVEN.values(), *GIVEN.values()):
        a = make()
        assert repr(captured(a)) == repr(said(a))


def test_what_other_code_is_given_has_an_array_for_a_base() -> None:
    """Where a graph ends, the memory of arrays is torch's: who asks for it finds an array all the same."""
    hidden = torch.compiler.disable(pruned)

    def program(a: Any) -> Any:
        return hidden(a + 1), hidden((a * 2)[:3]), hidden(a[:2])

    outcomes(program, GIVEN["own"])
    result = capture(lambda a: a + 1, "eager")(np.arange(3.0))
    assert result.base is None or isinstance(result.base, np.ndarray)


def test_a_tensor_that_an_array_is_of() -> None:
    def program(x: torch.Tensor) -> Any:
        a = x.numpy()
        a.base[0] = 5
        b = a[:2]
        return type(a.base).__name__, a.base.sum(), b.base is a, b.base.size, a, x + 1

    captured = capture(program, "eager")
    for _ in range(2):
        assert repr(captured(torch.arange(3.0))) == repr(program(torch.arange(3.0)))
