"""What classes of wrappers read of themselves and of their module when operators run is assumed, unless they change it themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

FACTOR = 2.0
TABLE: dict[Any, Any] = {}
SEEN: list[Any] = []


class Setting:
    """Read by name."""

    shift = 0.0
    turned = False


def shifted(x: torch.Tensor) -> torch.Tensor:
    return turned(x + Setting.shift)


def turned(x: torch.Tensor) -> torch.Tensor:
    return -x if Setting.turned else x


class Scaled(torch.Tensor):
    """What operators give is scaled."""

    inner: Any
    scale = 1.0
    calls = 0

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Scaled(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        cls.calls += 1
        SEEN.append(func)
        if func in TABLE:
            return cls(TABLE[func](args[0].inner))
        return cls(shifted(func(*(a.inner if isinstance(a, Scaled) else a for a in args), **(kwargs or {}))) * cls.scale * FACTOR)


def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return Scaled(func(args[0].inner) + 100)


CHANGES: dict[str, tuple[Any, str, Any]] = {
    "an attribute of the class": (Scaled, "scale", 5.0),
    "its method": (Scaled, "__torch_dispatch__", classmethod(dispatch)),
    "a global": (globals(), "FACTOR", 3.0),
    "an attribute of another class": (Setting, "shift", 7.0),
    "one that another function reads": (Setting, "turned", True),
    "a table": (TABLE, torch.ops.aten.sin.default, lambda x: x * 100),  # type: ignore[dict-item]
    "a function": (globals(), "shifted", lambda x: x - 1),
}


def swap(owner: Any, name: Any, value: Any) -> Callable[[], None]:
    """Sets what is there under the name; gives what sets it back."""
    table = owner if isinstance(owner, dict) else vars(owner)
    before = table.get(name)
    put = owner.__setitem__ if isinstance(owner, dict) else lambda k, v: setattr(owner, k, v)
    put(name, value)
    return lambda: TABLE.clear() if owner is TABLE else put(name, before)


@pytest.mark.parametrize("made", [False, True], ids=["an argument", "made by the call"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_read_is_seen_when_it_changes(name: str, made: bool) -> None:
    def function(x: Any) -> Any:
        return (Scaled(x) if made else x).sin().inner

    x = torch.arange(3.0)
    given: Any = x if made else Scaled(x)
    call = capture(function, backend="eager", fullgraph=True)
    before = function(given)
    torch.testing.assert_close(call(given), before)
    back = swap(*CHANGES[name])
    try:
        expected, got = function(given), call(given)
    finally:
        back()
    assert not torch.equal(expected, before)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(call(given), before)


def test_what_the_class_changes_itself_is_not_assumed() -> None:
    captured: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        captured.append(gm)
        return gm

    call = capture(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    for _ in range(4):
        call(Scaled(torch.arange(3.0)))
        Scaled(torch.ones(1)).cos()
    assert len(captured) == 1 and Scaled.calls > 4 and len(SEEN) > 4
