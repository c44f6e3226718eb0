"""What was compiled goes when the program lets go of it, with its weights: a service that loads model after model does not grow."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import opmill


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 4))


def called(compiled: Any, sizes: tuple[int, ...], training: bool) -> None:
    with torch.set_grad_enabled(training):
        for size in sizes:
            result = compiled.train(training)(torch.ones(size, 4))
            if training:
                result.sum().backward()


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("sizes", [(3,), (3, 4, 5)], ids=["fixed", "moving"])
@pytest.mark.parametrize("times", [1, 2], ids=["cold", "warm"])
def test_a_compiled_module_goes_with_its_weights(sizes: tuple[int, ...], training: bool, times: int) -> None:
    def make() -> list[weakref.ref[Any]]:
        module = model()
        compiled = opmill.compile(module)
        called(compiled, sizes, training)
        return [weakref.ref(each) for each in (compiled, module, module[0].weight)]

    for _ in range(times):
        made = make()
        gc.collect()
        assert [each() for each in made] == [None] * len(made)


def test_a_function_with_a_branch_on_data_goes_too() -> None:
    def make() -> list[weakref.ref[Any]]:
        def fn(x: torch.Tensor) -> torch.Tensor:
            views = x[1:].t() * x.shape[0]
            return views.relu() if views.sum() > 0 else torch.cond(x.sum() > 1, lambda y: y.sin(), lambda y: y.cos(), (x,))

        compiled = opmill.compile(fn)
        for size in (3, 4, 5):
            compiled(torch.ones(size, 4))
            compiled(-torch.ones(size, 4))
        return [weakref.ref(fn), weakref.ref(compiled)]

    made = make()
    gc.collect()
    assert [each() for each in made] == [None, None]
