"""Functions of ``math`` of numbers that change from call to call: one graph, Python's values, and its errors where they have none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

#: Expressions of n (an int that changes) and r (a float that changes).
PROGRAMS = """
math.cos(math.pi * n / 20)
(1 + math.cos(math.pi * n / 20)) / (1 + math.cos(math.pi * (n - 1) / 20)) * (r - 0.01) + 0.01
0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * (float(n) / float(max(1, 20)))))
math.exp(-n / 3) * r
math.log(n) + math.log2(r) + math.log10(n * r) + math.log1p(r)
math.sin(r) + math.tan(r) - math.sinh(r) * math.cosh(r)
math.tanh(r) + math.atan(n * r) + math.asinh(r) + math.erf(r) + math.fabs(-r) + math.radians(r)
math.sqrt(r) + math.expm1(r) + math.asin(r / 1000) + math.acos(r / 1000)
""".strip().splitlines()


def program(text: str) -> Any:
    namespace: dict[str, Any] = {"math": math}
    exec(f"def f(x, n, r):\n    rate = {text}\n    return x * rate, rate", namespace)
    return namespace["f"]


@pytest.mark.parametrize("text", PROGRAMS)
def test_one_graph_for_all_numbers(text: str) -> None:
    f, graphs = program(text), []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(f, backend, fullgraph=True)
    x = torch.arange(3.0, dtype=torch.float64)
    for n, r in ((3, 0.3), (4, 0.25), (5, 0.2), (9, 0.15), (12, 0.1)):
        got, want = compiled(x, n, r), f(x, n, r)
        assert torch.equal(got[0], want[0])
        assert got[1] == want[1]
    assert len(graphs) <= 3


@pytest.mark.parametrize("text", ["math.log(r - 0.35)", "math.sqrt(r - 0.35)", "math.exp(1 / (r - 0.1499))", "math.acos(n / 10)"])
def test_numbers_that_have_no_value(text: str) -> None:
    f = program(text)
    compiled = capture(f, "eager")
    for n, r in ((3, 0.9), (4, 0.8), (5, 0.7), (20, 0.15), (5, 0.6)):
        try:
            want = f(torch.ones(2), n, r)[1]
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                compiled(torch.ones(2), n, r)
        else:
            assert compiled(torch.ones(2), n, r)[1] == want


SCHEDULERS = {
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "a function": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.5 * (1 + math.cos(math.pi * n / 20))),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_of_schedulers_are_no_graphs_of_their_own(name: str) -> None:
    def trained(wrap: Any) -> tuple[list[float], list[Any]]:
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(4, 2, generator=generator, dtype=torch.float64).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)

        def step(x: Any) -> Any:
            loss = (x @ weight).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            return loss

        step = wrap(step)
        losses = [step(torch.randn(3, 4, generator=generator, dtype=torch.float64)).item() for _ in range(12)]
        return losses, [*scheduler.get_last_lr(), weight.detach()]

    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    want, got = trained(lambda f: f), trained(lambda f: capture(f, backend, fullgraph=True))
    torch.testing.assert_close(got, want)
    assert len(graphs) <= 5  # the first steps, which make states, and what the scheduler's phases are
