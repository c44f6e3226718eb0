"""Hooks on gradients of what compiled code computes see the gradients of all its uses, whether they are parts of graphs or end them."""

from __future__ import annotations

import pytest
import torch

import opmill

SEEN: list[torch.Tensor] = []


def a_part_of_the_graph(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z = y * 2
    y.register_hook(lambda g: g * 3 + 1)
    return (y * z).exp()


def ends_the_graph(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z = y * 2
    y.register_hook(lambda g: SEEN.append(g.clone()))
    return (y * z).exp()


def reads_what_comes_later(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z = y * 2
    k = z.detach().exp()
    y.register_hook(lambda g: g * k)
    return (y * z).exp()


def gradient_kept(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.sin()
    z = y * 2
    y.retain_grad()
    return (y * z).exp(), y


def of_an_argument(x: torch.Tensor) -> torch.Tensor:
    x.register_hook(lambda g: g * 3)
    x.register_post_accumulate_grad_hook(lambda p: SEEN.append(p.grad.clone()))
    return x.sin()


@pytest.mark.parametrize(
    "fn", [a_part_of_the_graph, ends_the_graph, reads_what_comes_later, gradient_kept, of_an_argument], ids=lambda fn: fn.__name__
)
def test_hooks(fn):
    def played(call):
        SEEN.clear()
        x = torch.linspace(-1, 1, 7, requires_grad=True)
        out = call(x)
        out, *rest = out if isinstance(out, tuple) else (out,)
        out.sum().backward()
        return [out.detach(), x.grad, *SEEN, *(r.grad for r in rest)]

    compiled = opmill.compile(fn)
    want = played(fn)
    for _ in range(2):
        got = played(compiled)
        assert len(got) == len(want) and all(torch.allclose(a, b) for a, b in zip(want, got, strict=True))
