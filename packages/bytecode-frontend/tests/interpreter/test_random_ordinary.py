"""Ordinary programs over several calls with arguments that change: results, errors and all state as in plain calls."""

from __future__ import annotations

import collections
import enum
import itertools
import random
import sys
import types
import warnings
from typing import Any

import pytest
import torch
from random_ordinary import WIDTH, call, program

from opmill_bytecode_frontend import capture

CALLS = 8


def seen(value: Any, depth: int = 0) -> Any:
    """What can be compared of a value, tensors as lists."""
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.dtype, value.requires_grad, value.detach().double().tolist()
    if isinstance(value, (int, float, str, type(None), enum.Enum)):
        return type(value).__name__, repr(value)
    if isinstance(value, dict):
        return type(value).__name__, [(repr(k) if not hasattr(k, "shape") else "", seen(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return type(value).__name__, [seen(v, depth + 1) for v in value]
    if isinstance(value, itertools.cycle):
        return "cycle"
    if callable(value) and not isinstance(value, torch.nn.Module) and not hasattr(value, "events"):
        return type(value).__name__
    return (type(value).__name__, seen(vars(value), depth + 1)) if hasattr(value, "__dict__") and depth < 12 else type(value).__name__


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-5 * max(1.0, abs(a), abs(b)) or (a != a and b != b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == b)


def outcome(run: Any, x: torch.Tensor, given: dict[str, Any], seed: int) -> Any:
    torch.manual_seed(seed)
    try:
        return run(x, **given)
    except Exception as error:
        return type(error).__name__, str(error)


def made_of(text: str, name: str) -> Any:
    """A model of the program; data classes look their module up while they are made."""
    module = sys.modules[name] = types.ModuleType(name)
    try:
        exec(compile(text, f"<{name[:-2]}>", "exec"), vars(module))
    finally:
        del sys.modules[name]
    return module.Model(module.Config())  # type: ignore[attr-defined]


def check(seed: int) -> int:
    """Runs one program; gives the number of its graphs."""
    text = program(seed)
    made: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        made.append(gm)
        return gm.forward

    plain, model = (made_of(text, f"ordinary_{seed}_{side}") for side in "ab")
    captured = capture(type(model).forward, backend)
    rng = random.Random(seed)
    for n in range(CALLS):
        brought = call(rng)
        x = torch.randn(brought["rows"], WIDTH, generator=torch.Generator().manual_seed(seed + n))
        x = x.double() if brought["double"] else x
        if n == CALLS // 2:
            plain.eval(), model.eval()
        with torch.set_grad_enabled(rng.random() < 0.5):
            want = outcome(plain.forward, x.clone(), brought["given"], n)
            got = outcome(lambda x, **given: captured(model, x, **given), x.clone(), brought["given"], n)
        about = f"call {n} of seed {seed}, {brought}:\n{text.partition('class Model')[2]}"
        assert close(seen(want), seen(got)), f"results of {about}\n{want}\n{got}"
        assert close(seen(vars(plain)), seen(vars(model))), f"state after {about}\n{seen(vars(plain))}\n{seen(vars(model))}"
    return len(made)


@pytest.mark.parametrize("seed", range(40))
def test_ordinary_programs(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(seed)
