"""Convolutions as loops: which are, that what follows them is fused, and that weights are read at each call."""

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.loop import program_of
from opmill_graph_ir.schedule.product import is_product
from opmill_graph_ir.schedule.steps import ExternStep, schedule


def _program(fn, *inputs):
    with torch.no_grad():
        return schedule(lower(functionalize(torch.fx.symbolic_trace(fn), list(inputs))))


def _calls(fn, *inputs) -> list[str]:
    return [s.node.op for s in _program(fn, *inputs).steps if isinstance(s, ExternStep)]


X, W = torch.randn(2, 8, 12, 12), torch.randn(8, 8, 3, 3)
LEFT_TO_TORCH = {
    "groups": lambda: _calls(lambda x, w: (F.conv2d(x, w, groups=2),), X, torch.randn(8, 4, 3, 3)),
    "three dimensions": lambda: _calls(lambda x, w: (F.conv3d(x, w),), torch.randn(1, 4, 6, 6, 6), torch.randn(4, 4, 3, 3, 3)),
    "float64": lambda: _calls(lambda x, w: (F.conv2d(x, w),), X.double(), W.double()),
    "channels last": lambda: _calls(lambda x, w: (F.conv2d(x, w),), X.contiguous(memory_format=torch.channels_last), W),
    "few points": lambda: _calls(lambda x, w: (F.conv2d(x, w),), X[:, :, :4, :4].clone(), W),
    "few rows": lambda: _calls(lambda x, w: (F.conv2d(x, w),), X, W[:3]),
}


@pytest.mark.parametrize("name", LEFT_TO_TORCH)
def test_left_to_torch(name: str) -> None:
    assert LEFT_TO_TORCH[name]() == ["aten::convolution"]


def test_lowered() -> None:
    assert _calls(lambda x, w: (F.conv2d(x, w, padding=1),), X, W) == []
    assert _calls(lambda x, w: (F.conv1d(x, w, stride=2),), torch.randn(2, 8, 40), torch.randn(8, 8, 5)) == []


@pytest.mark.parametrize(
    ("image", "weight", "stride", "loops"),
    [
        ((1, 64, 56, 56), (64, 64, 3, 3), 1, False),
        ((1, 16, 112, 112), (16, 16, 3, 3), 1, False),
        ((2, 3, 112, 112), (64, 3, 7, 7), 2, False),
        ((1, 64, 56, 56), (64, 64, 1, 1), 1, True),
        ((1, 256, 14, 14), (256, 256, 3, 3), 1, True),
        ((1, 3, 112, 112), (32, 3, 3, 3), 2, True),
        ((4, 64, 512), (64, 64, 3), 1, True),
    ],
)
def test_large_images_are_left_where_laying_them_out_pays(image, weight, stride: int, loops: bool) -> None:
    conv = F.conv1d if len(image) == 3 else F.conv2d
    called = _calls(lambda x, w: (conv(x, w, stride=stride, padding=w.shape[-1] // 2),), torch.randn(image), torch.randn(weight))
    assert called == ([] if loops else ["aten::convolution"])


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "loops"), [(4, 3, 64, False), (4, 1, 256, False), (4, 1, 32, True), (8, 3, 64, True)]
)
def test_images_of_one_vector_are_left_where_weights_are_many(size: int, kernel: int, channels: int, loops: bool) -> None:
    x, w = torch.randn(2, channels, size, size), torch.randn(channels, channels, kernel, kernel)
    called = _calls(lambda x, w: (F.conv2d(x, w, padding=kernel // 2),), x, w)
    assert called == ([] if loops else ["aten::convolution"])


def test_each_channel_alone() -> None:
    assert _calls(lambda x, w: (F.conv2d(x, w, groups=8),), X, torch.randn(8, 1, 3, 3)) == []

    def block(x, w, other):
        return (torch.relu(F.conv2d(torch.sigmoid(x), w, padding=1, groups=8)) + other,)

    program = _program(block, X, torch.randn(8, 1, 3, 3), X)
    assert [[len(n.phases) for n in k.nests] for k in program.kernels()] == [[1], [2]], "what comes before is stored, what follows is fused"


def test_tensors_in_between_are_laid_out_for_it() -> None:
    """A norm over channels leaves them last; the convolution has the norm write them first. What leaves the graph is as eager has it."""
    w = torch.randn(8, 8, 1, 1)

    def block(x, w):
        return (F.conv2d(F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2), w),)

    program = _program(block, X, w)
    product = next(s for s in program.steps if "convolution" in s.origin)
    [read] = [
        a
        for a, b in zip(product.arguments, product.kernel.buffers, strict=True)
        if b.role == "in" and program.buffers[a].role == "temporary"
    ]
    assert [s.constant for s in program.buffers[read].strides] == [8 * 144, 12, 1, 144]
    with torch.no_grad():
        got = compile_graph(torch.fx.symbolic_trace(block), [X, w], options=GraphOptions(cache=False))(X, w)[0]
        want = block(X, w)[0]
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


def test_a_part_of_a_tensor_in_between_is_not_laid_out_as_all_of_it() -> None:
    w = torch.randn(4, 1, 3, 3)

    def fn(x):
        whole = torch.sigmoid(x)
        return F.conv2d(whole.chunk(2, 1)[0], w, padding=1, groups=4), F.conv2d(whole[:2], torch.cat([w, w]), groups=8)

    x = torch.randn(4, 8, 12, 12)
    assert _calls(fn, x) == ["aten::convolution"] * 2, "neither part is all of the tensor"
    with torch.no_grad():
        compiled = compile_graph(torch.fx.symbolic_trace(fn), [x], options=GraphOptions(cache=False))
        for found, wanted in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_what_follows_joins_and_what_comes_before_is_stored() -> None:
    def block(x, w, scale, other):
        y = torch.relu(x * 2 + 1)
        return (torch.relu(F.conv2d(y, w, padding=1) * scale[:, None, None] + other),)

    before, product = _program(block, X, W, torch.randn(8), torch.randn(2, 8, 12, 12)).steps
    assert [len(n.phases) for n in product.kernel.nests] == [2]
    assert len(before.kernel.nests[0].phases) == 1 and product.kernel.buffers[1].name != before.kernel.buffers[0].name


def test_a_pool_reads_what_the_product_finished() -> None:
    """An activation is not done anew for each window of a pool where the convolution before can do it."""

    def stem(x, w):
        return (F.max_pool2d(torch.relu(F.conv2d(x, w, padding=1) + 1), 3, 2, 1),)

    product, pool = _program(stem, X, W).steps
    assert "max" in product.kernel.name and product.kernel.name.startswith("sum")
    assert len(pool.kernel.nests[0].phases[0].reductions) == 1 and "add" not in pool.kernel.name


def test_products_stay_alone() -> None:
    """Two convolutions of one input are two nests, and reductions over a result do not join its nest."""

    def two(x, v, w):
        a, b = F.conv2d(x, v, padding=1), F.conv2d(x, w, padding=1)
        return a + b, a.mean((2, 3)), b.sum(1)

    for kernel in _program(two, X, W, W.clone()).kernels():
        for nest in kernel.nests:
            sums = [r for p in nest.phases for r in p.reductions if p.axes and "mul" in str(r.value)]
            assert len(sums) <= 1 and not (sums and sum(len(p.reductions) for p in nest.phases) > 1)


def test_products_are_told_from_other_sums() -> None:
    def loops(fn, *inputs):
        return [
            s for s in program_of(lower(functionalize(torch.fx.symbolic_trace(fn), list(inputs)))).statements if not isinstance(s, Extern)
        ]

    assert [is_product(s) for s in loops(lambda x, w: (F.conv2d(x, w),), X, W)] == [True]
    assert not any(is_product(s) for s in loops(lambda x: ((x * x).sum(-1),), X))
    assert not any(is_product(s) for s in loops(lambda x, w: (F.avg_pool2d(x, 3),), X, W))


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16)

    def forward(self, x):
        return (torch.relu(self.norm(self.conv(x))),)


def _in_numpy(m):
    m.conv.weight.detach().numpy()[3] = 0.5


CHANGES = {
    "in place": lambda m: m.conv.weight.mul_(2),
    "data": lambda m: m.conv.weight.data.add_(1),
    "view": lambda m: m.conv.weight[2:4].view(-1).zero_(),
    "numpy": _in_numpy,
    "bias": lambda m: m.conv.bias.data.fill_(3),
    "running mean": lambda m: m.norm.running_mean.data.fill_(0.7),
    "running variance": lambda m: m.norm.running_var.copy_(torch.rand(16) + 1),
    "state": lambda m: m.load_state_dict(_Net().state_dict()),
    "storage": lambda m: m.conv.weight.data.set_(torch.randn(16, 8, 3, 3)),
}


def test_weights_changed_in_any_way_are_seen_by_the_next_call(tmp_path) -> None:
    from opmill_runtime_cache.store import Store

    torch.manual_seed(3)
    module = _Net().eval()
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(module), [X], options=GraphOptions(), store=Store(tmp_path))
        for name, change in CHANGES.items():
            if name == "numpy" and not _has_numpy():
                continue
            change(module)
            torch.testing.assert_close(run(X)[0], module(X)[0], rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"after {name}: {text}")


def _has_numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True
