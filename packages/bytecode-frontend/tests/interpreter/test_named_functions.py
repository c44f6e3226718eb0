"""Rules for functions that are known by their names: each has the name that the function says itself, by which it is looked for."""

from __future__ import annotations

import importlib
import types

import pytest

import opmill_bytecode_frontend  # noqa: F401  registers them
from opmill_bytecode_frontend.library.registry import NAMED, NAMED_WITH_FUNCTION

NAMES = sorted(name for name in {*NAMED, *NAMED_WITH_FUNCTION} if name.startswith("torch.") and "<locals>" not in name)


def found(name: str) -> object:
    """What a path leads to; None where this version of torch has nothing there."""
    parts = name.split(".")
    for k in range(len(parts) - 1, 0, -1):
        try:
            owner: object = importlib.import_module(".".join(parts[:k]))
        except ImportError:
            continue
        for part in parts[k:]:
            owner = vars(owner).get(part) if isinstance(owner, type) else getattr(owner, part, None)  # what it inherits is another's
        return getattr(owner, "__func__", owner)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_has_the_name_that_its_function_says(name: str) -> None:
    function = found(name)
    if isinstance(function, types.FunctionType):
        assert f"{function.__module__}.{function.__qualname__}" == name
