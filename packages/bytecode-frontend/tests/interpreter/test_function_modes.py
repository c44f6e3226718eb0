"""Torch function modes that captured code enters are told what eager tells them, and their answers are part of the graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from conftest import same
from opmill_bytecode_frontend import capture

TOLD_OF = """
x + y
x + 1
1 + x
x - 1
1 - x
x * y
2 * x
x / 2
2 / x
x // 2
2 // x
x % 2
2 % x
x ** 2
2 ** x
x @ y.T
-x
+x
abs(x)
~(x > 0)
x == y
x != 1
x < y
1 < x
x >= 0
(x > 0) & (y > 0)
(x > 0) | True
True ^ (x > 0)
x[0]
x[:, 1]
x[None]
x[torch.tensor([0, 1])]
len(x)
[r for r in x]
x.shape
x.shape[0]
x.size()
x.size(0)
x.ndim
x.dtype
x.device
x.dim()
x.numel()
x.T
x.mT
x.H
x.data
x.grad
x.requires_grad
x.is_leaf
x.is_cuda
x.layout
x.itemsize
x.nbytes
x.real
x.is_floating_point()
torch.is_floating_point(x)
torch.is_tensor(x)
isinstance(x, torch.Tensor)
x.sin()
torch.sin(x)
torch.sin(input=x)
x.sum(dim=0)
x.sum(0, keepdim=True)
x.mean()
x.max(dim=1).values
x.max(1)[0]
x.sort()[0]
x.reshape(-1)
x.view(-1)
x.view(2, -1)
x.transpose(0, 1)
x.permute(1, 0)
x.to(torch.float64)
x.to(y)
x.double()
x.float()
x.type(torch.float64)
x.type()
x.contiguous()
x.clone()
x.detach()
x.split(1)
x.split(1, dim=1)
torch.split(x, 1)
x.chunk(2)
x.unbind(0)
x.norm()
torch.norm(x)
x.unique().shape[:0]
x.softmax(0)
F.softmax(x, dim=0)
F.relu(x)
F.gelu(x)
F.dropout(x, 0.0)
F.layer_norm(x, (3,))
F.linear(x, y)
F.cross_entropy(x, torch.tensor([0, 1]))
F.mse_loss(x, y)
F.normalize(x)
F.pad(x, (1, 1))
F.one_hot(torch.tensor([0, 1]), 3)
F.max_pool1d(x[None], 1)
F.interpolate(x[None, None], scale_factor=2)
F.embedding(torch.tensor([0, 1]), x)
F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None])
F.silu(x)
F.leaky_relu(x, 0.1)
F.cosine_similarity(x, y)
F.conv1d(x[None], torch.ones(2, 2, 1))
torch.cat([x, y])
torch.cat((x, y), dim=1)
torch.stack([x, y])
torch.where(x > 0, x, y)
torch.einsum('ij,kj->ik', x, y)
torch.matmul(x, y.T)
torch.ones(2, 3)
torch.zeros_like(x)
torch.full((2,), 1.0)
torch.arange(3)
torch.tensor([1.0, 2.0])
torch.as_tensor(x)
torch.linspace(0, 1, 3)
torch.eye(2)
torch.empty(0)
x.new_zeros(2)
x.new_tensor([1.0])
x.masked_fill(x > 0, 1.0)
x.clamp(min=0)
torch.clamp(x, 0, 1)
torch.linalg.norm(x)
torch.linalg.vector_norm(x)
torch.fft.fft(x).real
torch.special.expit(x)
torch.tril(x)
torch.topk(x, 1)
torch.meshgrid(x[0], y[0], indexing='ij')
torch.broadcast_tensors(x, y)
torch.atleast_2d(x)
torch.cdist(x, y)
torch.tensordot(x, y, dims=2)
torch.ops.aten.add(x, y)
torch.ops.aten.add.Tensor(x, y)
x.add_(1)
x.mul_(y)
x.zero_()
x.fill_(2.0)
x.copy_(y)
torch.add(x, y, out=torch.empty(2, 3))
sum([x, y])
torch.nn.functional.hardtanh(x)
x.expand(2, 3)
x.expand_as(y)
x.repeat(2, 1)
x.index_select(0, torch.tensor([0]))
x.gather(0, torch.zeros(1, 3, dtype=torch.long))
x.scatter(0, torch.zeros(1, 3, dtype=torch.long), 1.0)
x.flatten()
x.squeeze()
x.unsqueeze(0)
x.is_contiguous()
x.stride()
x.element_size()
x.storage_offset()
x.new_ones((2,), dtype=torch.int64)
torch.numel(x)
x.all()
x.any()
bool(x.dim())
x.type_as(y)
x.is_complex()
torch.is_grad_enabled()
torch.get_default_dtype()
torch.finfo(x.dtype).eps
x.bool().int().long().half().bfloat16().float()
x.cpu()
x.__class__
type(x)
x.cumsum(0)
x.argmax()
x.var(0)
x.std()
x.logsumexp(0)
p * x
p.data + 1
p + p
lin(x)
bn(x)
act(x)
"""
"""Expressions of two tensors, a parameter and three modules."""

linear, norm, act = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.ReLU()
p = torch.nn.Parameter(torch.ones(3))


class Log(TorchFunctionMode):
    """Keeps all that it is told but the values."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, types, len(args), sorted(kwargs or {}), kwargs is None))
        return func(*args, **(kwargs or {}))


def given():
    return torch.arange(6.0).reshape(2, 3) / 7 + 0.5, torch.arange(6.0).flip(0).reshape(2, 3) / 5 + 0.5


@pytest.mark.parametrize("expression", TOLD_OF.strip().splitlines())
def test_what_a_mode_is_told(expression):
    names = {"torch": torch, "F": F, "Log": Log, "lin": linear, "bn": norm, "act": act, "p": p}
    text = f"def program(x, y):\n    with Log() as log:\n        result = {expression}\n    return result, log.calls\n"
    exec(compile(text, "<program>", "exec"), names)
    found = capture(names["program"], fullgraph=True)
    for _ in range(2):
        mine, calls = found(*given())
        want, expected = names["program"](*given())
        assert same(mine, want)
        assert calls == expected


class Swap(TorchFunctionMode):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a, b

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (self.b if func is self.a else func)(*args, **(kwargs or {}))


class Twice(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, torch.Tensor) else result


class Entering(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        with Twice():
            return func(*args, **(kwargs or {}))


class Silent(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented


class Raising(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            raise ValueError("no sine")
        return func(*args, **(kwargs or {}))


class Counted(Twice):
    entered = 0

    def __enter__(self):
        self.entered += 1
        return super().__enter__()

    def __exit__(self, *error):
        self.entered += 10
        return super().__exit__(*error)


def two_at_once(x):
    with Swap(torch.add, torch.mul), Twice():
        return torch.add(x, x) + x


def one_in_the_other(x):
    with Twice():
        with Swap(torch.sin, torch.cos):
            y = torch.sin(x)
        z = torch.sin(x)
    return y, z, torch.sin(x)


def entered_by_the_answer(x):
    with Entering():
        return torch.sin(x) + 1


def raises_in_the_block(x):
    try:
        with Raising():
            y = torch.sin(x)
    except ValueError as error:
        return x + 1, str(error)
    return y


def with_blocks_of_its_own(x):
    mode = Counted()
    with mode:
        y = torch.sin(x)
    with mode:
        y = y + torch.cos(x)
    return y, mode.entered


def that_does_nothing(x):
    with BaseTorchFunctionMode():
        return F.relu(x) + x.abs().sum()


def of_a_module(x):
    with Twice():
        return linear(x)


def in_a_loop(x):
    for i in range(3):
        with Swap(torch.add, torch.sub):
            x = torch.add(x, i)
    return x


def in_a_generator(x):
    def rows():
        with Twice():
            yield torch.sin(x)
            yield torch.cos(x)

    return [row + x for row in rows()]


def differentiated(x):
    x = x.clone().requires_grad_()
    with Twice():
        y = (torch.sin(x) * x).sum()
    y.backward()
    return x.grad


def entered_by_name(x):
    mode = Twice()
    mode.__enter__()
    y = torch.sin(x)
    mode.__exit__(None, None, None)
    return y


def under_vmap(x):
    with Twice():
        return torch.vmap(torch.sin)(x)


def writing(x):
    x = x.clone()
    with Twice():
        x += 1
        x[0] = 5
        x.mul_(2)
    return x


KEPT = Swap(torch.add, torch.mul)


def of_before(x):
    with KEPT:
        return torch.add(x, 3)


WHOLE = [
    two_at_once,
    one_in_the_other,
    entered_by_the_answer,
    raises_in_the_block,
    with_blocks_of_its_own,
    that_does_nothing,
    of_a_module,
    in_a_loop,
    in_a_generator,
    differentiated,
    entered_by_name,
    under_vmap,
    writing,
    of_before,
]


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_a_mode_is_part_of_the_graph(program):
    found = capture(program, fullgraph=True)
    for k in range(3):
        x = torch.linspace(-1, 1, 3) + k
        assert same(found(x), program(x))


def that_breaks(x):
    y = x.sin()
    with Twice():
        z = y.cos()
        torch._dynamo.graph_break()
        w = z.exp()
    return w + 1


def that_decides_by_data(x):
    with Twice():
        return x + 1 if x.sum() > 0 else x - 1


def with_a_device(x):
    with Twice():
        with torch.device("cpu"):
            return x + torch.ones(3)


def with_a_checkpoint(x):
    with Twice():
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)


def that_looks_at_modes(x):
    with Twice() as mode:
        return x + 1, torch.overrides._get_current_function_mode() is mode


def that_assigns(x):
    with Twice():
        x.grad = torch.ones(3)
    return x.grad


def that_is_not_left(x):
    mode = Log()
    mode.__enter__()
    y = x + 1
    leave(mode)
    return y, len(mode.calls)


def leave(mode):
    torch._dynamo.graph_break()
    mode.__exit__(None, None, None)


@pytest.mark.parametrize(
    "program",
    [that_breaks, that_decides_by_data, with_a_device, with_a_checkpoint, that_looks_at_modes, that_assigns, that_is_not_left],
    ids=lambda program: program.__name__,
)
def test_a_graph_ends_before_the_block(program):
    found = capture(program)
    for k in range(3):
        mine, other = (torch.linspace(-1, 1, 3) + k for _ in range(2))
        assert same(found(mine), program(other))
        assert not torch._C._len_torch_function_stack()


def test_a_mode_that_does_not_answer():
    def program(x):
        with Silent():
            return torch.sin(x)

    with pytest.raises(TypeError, match="returned NotImplemented"):
        capture(program)(torch.ones(2))


def test_under_a_mode_of_outside_all_runs_as_it_is():
    found = capture(lambda x: torch.add(x, 3))
    x = torch.ones(2)
    assert found(x).tolist() == [4, 4]
    with KEPT:
        assert found(x).tolist() == [3, 3]
    assert found(x).tolist() == [4, 4]
