"""Blocks compiled apart that write to what the block before them gave: compiled, and as in eager."""

import warnings

import pytest
import torch

import opmill


class _Activated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = torch.nn.ReLU(inplace=True)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.linear(self.relu(x))


class _Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x += self.linear(x + 1).tanh()
        return x


class _Counting(torch.nn.Module):
    """Its buffer requires grad from the first call on."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x):
        y = self.linear(x)
        self.last.mul_(0.5).add_(y.mean(0))
        return y * 2


def _stack(kind):
    torch.manual_seed(2)
    return torch.nn.ModuleList([kind() for _ in range(3)])


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("kind", [_Activated, _Residual, _Counting])
@pytest.mark.parametrize("dynamic", [None, True])
def test_blocks_apart(kind, dynamic):
    blocks, own = (_stack(kind) for _ in range(2))
    results = []
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*torch's own operators")
        for stack, calls in ((blocks, list(blocks)), (own, [opmill.compile(block, fullgraph=True, dynamic=dynamic) for block in own])):
            leaf = torch.randn(2, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
            for _ in range(2):
                x = leaf * 2
                seen = [x]
                for call in calls:
                    x = call(x)
                    seen.append(x)
            (x.sin().sum() + sum(buffer.sum() for buffer in stack.buffers())).backward()
            results.append([*(t._version for t in (*seen, *stack.buffers())), *(t.detach() for t in seen), leaf.grad])
            results[-1] += [p.grad for p in stack.parameters()] + [b.detach() for b in stack.buffers()]
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_a_second_derivative_of_what_begins_to_require_grad():
    def program(buffer, w):
        buffer.mul_(w)
        return buffer * w

    found = []
    for call in (program, opmill.compile(program, dynamic=True)):
        w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        [first] = torch.autograd.grad(call(torch.full((3,), 2.0), w).sin().sum(), w, create_graph=True)
        found.append(torch.autograd.grad(first.sum(), w)[0])
    torch.testing.assert_close(*found)
