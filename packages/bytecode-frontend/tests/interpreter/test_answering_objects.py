"""Objects that are no tensors and whose class has a ``__torch_function__`` (dictionaries of tensors, say): what torch's functions mean for
them, against eager."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.overrides

from opmill_bytecode_frontend import capture


class Rows:
    """Tensors by name, that have a first dimension in common."""

    def __init__(self, **parts: torch.Tensor) -> None:
        self.parts = parts

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.stack, torch.cat):
            return {name: func([rows.parts[name] for rows in args[0]], *args[1:], **(kwargs or {})) for name in args[0][0].parts}
        if func in (torch.relu, F.relu, torch.Tensor.add):
            return [part * 2 for part in next(a for a in args if isinstance(a, Rows)).parts.values()], kwargs
        return NotImplemented


class Named(Rows):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if func is torch.cat else (func.__name__, [t.__name__ for t in types], kwargs)


class Bound:
    """Says what it was told."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        told = [a.tensor if isinstance(a, Bound) else a for a in args]
        return func.__name__, len(types), kwargs if kwargs is None else list(kwargs), told


class Old:
    """Which torch warns of."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func.__name__


def without(x: torch.Tensor) -> Any:
    with torch._C.DisableTorchFunctionSubclass():  # type: ignore[no-untyped-call]
        with contextlib.suppress(TypeError):
            return torch.relu(Bound(x))  # type: ignore[arg-type]
    return "refused"


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a function of C": lambda x: torch.relu(Rows(a=x, b=x + 1)),  # type: ignore[arg-type]
    "a function in Python": lambda x: F.relu(Rows(a=x, b=x + 1)),  # type: ignore[arg-type]
    "in a list": lambda x: torch.stack([Rows(a=x), Rows(a=x * 2)], 1),  # type: ignore[arg-type, list-item]
    "by name": lambda x: torch.mul(input=x, other=Bound(x)),  # type: ignore[arg-type]
    "with names": lambda x: torch.add(Bound(x), x, alpha=2),  # type: ignore[arg-type]
    "a tensor before it": lambda x: torch.where(x > 0, x, Bound(x)),  # type: ignore[arg-type]
    "a method of a tensor": lambda x: x.add(Bound(x)),
    "the derived class first": lambda x: torch.stack([Rows(a=x), Named(a=x)]),  # type: ignore[arg-type, list-item]
    "the next class": lambda x: torch.cat([Named(a=x), Rows(a=x)]),  # type: ignore[arg-type, list-item]
    "a plain method": lambda x: torch.relu(Old()),  # type: ignore[arg-type]
    "no class": lambda x: torch.sort(Rows(a=x)),  # type: ignore[arg-type]
    "whether it answers": lambda x: (torch.overrides.has_torch_function((Bound(x),)), torch.is_tensor(Bound(x)), x),
    "nobody is asked": without,
}


def result(function: Callable[[Any], Any], x: torch.Tensor) -> str:
    try:
        return repr(function(x))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:40]}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    function = PROGRAMS[name]
    compiled = capture(function, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (torch.arange(-2.0, 2.0), torch.ones(3)):
            assert result(compiled, x) == result(function, x)


WHOLE = [name for name in PROGRAMS if name not in ("no class", "nobody is asked", "a plain method", "a method of a tensor")]


@pytest.mark.parametrize("name", WHOLE)
def test_no_graph_ends(name: str) -> None:
    breaks: list[Any] = []
    capture(PROGRAMS[name], backend="eager", on_break=breaks.append)(torch.ones(3))
    assert not breaks


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "told", func.__name__


@pytest.mark.parametrize("block", [torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction, contextlib.nullcontext])
def test_where_classes_are_not_asked_is_seen_at_each_call(block: Any) -> None:
    x = torch.ones(2).as_subclass(Told)

    def function(x: Any) -> Any:
        return type(torch.relu(x)).__name__

    def broken(x: Any) -> Any:
        with block():
            print(end="")
            return function(x)

    for program in (function, broken):
        compiled = capture(program, backend="eager")
        for _ in range(2):
            assert compiled(x) == program(x)
            with block():
                assert compiled(x) == program(x)
