"""Whatever scheduling does to a program, the results stay those of the program as lowered."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_lowered import Maker, laid_out, run_schedule

from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule


def _check(seed: int, count: int, fusion: bool, sorts: bool = False) -> None:
    lowered = Maker(random.Random(seed), sorts=sorts).lowered(count)
    torch.manual_seed(seed)
    inputs = {n: laid_out(lowered.buffers[n]) for n in lowered.inputs}
    want = run_lowered(lowered, [inputs[n] for n in lowered.inputs])
    made = schedule(lowered, fusion=fusion)
    for kernel in made.kernels():
        verify_kernel(kernel)
    memory = plan_memory(made)
    got = run_schedule(made, memory, inputs)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w.as_subclass(torch.Tensor), rtol=1e-4, atol=1e-4, equal_nan=True)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 14))
def test_fused_program_computes_the_same(seed, count):
    _check(seed, count, fusion=True)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 14))
def test_fused_program_with_rows_in_order_computes_the_same(seed, count):
    _check(seed, count, fusion=True, sorts=True)


@pytest.mark.parametrize("seed", range(20))
def test_unfused_program_computes_the_same(seed):
    _check(seed, 8, fusion=False)
