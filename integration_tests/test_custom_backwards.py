"""Backwards that a program writes, with kernels."""

import pytest
import torch

import opmill


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g.float() @ w.t(), x.t() @ g.float()


def within(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return Product.apply(x, w)


def without(x, w):
    return Product.apply(x, w).float()


@pytest.mark.parametrize("function", [within, without])
@pytest.mark.parametrize("outside", [False, True])
def test_run_outside_of_the_autocast_of_their_forward(function, outside):
    def gradients(call):
        torch.manual_seed(0)
        x, w = torch.randn(4, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
            y = call(x, w)
        y.sum().backward()
        return y, x.grad, w.grad

    for got, wanted in zip(gradients(opmill.compile(function, fullgraph=True)), gradients(function), strict=True):
        assert got.dtype == wanted.dtype
        assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-5)
