"""Checks in loops that are written several times over: each copy checks what it reads itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import compile_graph
from opmill_kernel_gen_cpp.generator import CppKernelGenerator

ROWS = 41


def classified(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, ignore_index=1, reduction="none")


def divided(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (target // (target - 7)) * x.softmax(1).amax(1)


def looked_up(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    table = x.flatten()[:3]
    return x.softmax(1).amax(1) + table[target]


def compiled(run: Callable[..., Any], inputs: list[torch.Tensor], store: Any) -> Any:
    return compile_graph(torch.fx.symbolic_trace(run), inputs, store=store, generators=[CppKernelGenerator()])


@pytest.mark.parametrize(("run", "wrong"), [(classified, 3), (divided, 7), (looked_up, 3)], ids=lambda v: getattr(v, "__name__", ""))
def test_each_row_is_checked(run, wrong, store):
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(ROWS, 3, generator=generator), torch.randint(0, 3, (ROWS,), generator=generator)
    call = compiled(run, [x, target], store)
    torch.testing.assert_close(call(x, target)[0], run(x, target))
    for row in range(0, ROWS, 3):
        spoilt = target.clone()
        spoilt[row] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            call(x, spoilt)
