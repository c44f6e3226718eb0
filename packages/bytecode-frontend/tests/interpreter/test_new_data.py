"""``tensor.data = other`` in captured code: the tensor gets its memory when the graph has run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def data_of_average(p: Any, q: Any, x: Any) -> Any:
    q.data = q.data * 0.9 + p.data * 0.1
    return x * p


def data_of_step(p: Any, q: Any, x: Any) -> Any:
    loss = (x * p).sum()
    loss.backward()
    p.data = p.data - 0.1 * p.grad.data
    return loss


def data_swapped(p: Any, q: Any, x: Any) -> Any:
    kept = p.data
    p.data = q.data
    q.data = kept
    return x * 2


def data_twice(p: Any, q: Any, x: Any) -> Any:
    q.data = x + 1
    q.data = x + 2
    return x


def data_used(p: Any, q: Any, x: Any) -> Any:
    p.data = p.data.clamp(-0.5, 0.5)
    return p * x


def data_used_before(p: Any, q: Any, x: Any) -> Any:
    y = p * x * p
    p.data = p.data + 1
    return y


def data_of_another_shape(p: Any, q: Any, x: Any) -> Any:
    q.data = torch.cat([x, x])
    return q.shape, q * 2


def data_written_later(p: Any, q: Any, x: Any) -> Any:
    made = x + 1
    q.data = made
    made.mul_(3)
    return made


DATA = {
    **dict.fromkeys((data_of_average, data_of_step, data_swapped, data_twice), True),
    **dict.fromkeys((data_used, data_used_before, data_of_another_shape, data_written_later), False),
}


@pytest.mark.parametrize("play", DATA)
def test_data_that_is_assigned(play: Any) -> None:
    def outcome(f: Any) -> Any:
        p, q = torch.linspace(-1, 1, 3).requires_grad_(), torch.ones(3)
        told: list[Any] = []
        for k in range(3):
            result = f(p, q, torch.full((3,), k + 1.0))
            if isinstance(result, torch.Tensor) and result.grad_fn is not None and play is not data_of_step:
                result.sum().backward()
            q.add_(1)  # shows who shares memory
            shown = result.detach() if isinstance(result, torch.Tensor) else result
            told.append((p.detach().clone(), q.clone(), None if p.grad is None else p.grad.clone(), shown))
        return told

    assert str(outcome(capture(play, "eager", fullgraph=DATA[play]))) == str(outcome(play))
