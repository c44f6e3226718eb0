"""Random programs whose sizes only data tell, compiled with kernels: one compile each where nothing is decided on them, right for any
data."""

import random
import sys
import warnings
from pathlib import Path

import pytest
import torch

import opmill

sys.path.append(str(Path(__file__).parent.parent / "packages/bytecode-frontend/tests/interpreter"))
from random_counted import arguments, compiled_text, differ, outcome, write_program  # noqa: E402


@pytest.mark.parametrize("first", range(1000, 1024, 6))
def test_random_programs(first):
    for seed in range(first, first + 6):
        rng = random.Random(seed)
        text = write_program(rng, rng.randrange(2, 9))
        fn = compiled_text(text)
        compiled = opmill.compile(fn)
        for _ in range(4):
            args = arguments(rng)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert not differ(outcome(fn, args), outcome(compiled, args), exact=False), f"seed {seed}\n{text}"


class Routed(torch.nn.Module):
    """Rows go to one of two layers each."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = torch.nn.Linear(8, 2), torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])

    def forward(self, x):
        best = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            chosen = (best == k).nonzero()[:, 0]
            out = out.index_add(0, chosen, expert(x[chosen]).relu())
        return out


@pytest.mark.parametrize("layers", [1, 4])
def test_a_mixture_of_experts_is_one_graph_and_trains(layers):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Routed() for _ in range(layers)])
    compiled = opmill.compile(model, fullgraph=True)
    for scale in (1.0, 3.0, 1000.0):
        x = torch.randn(12, 8) * scale
        results = []
        for run in (model, compiled):
            model.zero_grad()
            out = run(x)
            out.sin().sum().backward()
            results.append([out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        assert len(results[0]) == len(results[1])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)
