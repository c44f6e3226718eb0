"""Products in half precision on processors without instructions for it: done in float32, as exact as eager's, laid out as eager's."""

import copy

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.lowered import BufferArg, Extern
from opmill_graph_ir.ops import half_products
from opmill_graph_ir.ops.lower import lower

F = torch.nn.functional


class Attention(torch.nn.Module):
    def forward(self, x):
        q, k, v = x.view(2, 24, 3, 4, 16).unbind(2)
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


class Transposed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 6, 3, 3) / 8)

    def forward(self, x):
        return F.conv_transpose2d(x, self.weight, stride=2)


class Both(torch.nn.Module):
    """Two of one input, the first of which is not done in loops where sizes move."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(8, 12, 3, groups=2), torch.nn.Conv2d(8, 12, 3, padding=1)

    def forward(self, x):
        return self.first(x), self.second(x)


class Batched(torch.nn.Module):
    def forward(self, x):
        return torch.baddbmm(x, x, x.transpose(1, 2) @ x, alpha=0.5)


MODULES = {  # module, sizes of its input
    "linear": (torch.nn.Linear(24, 40), (3, 20, 24)),
    "linear of few rows": (torch.nn.Linear(24, 40), (2, 24)),
    "without bias": (torch.nn.Sequential(torch.nn.Linear(24, 40, bias=False), torch.nn.GELU(), torch.nn.Linear(40, 8)), (20, 24)),
    "batched": (Batched(), (3, 20, 24)),
    "attention": (Attention(), (2, 24, 192)),
    "convolution": (torch.nn.Sequential(torch.nn.Conv2d(8, 12, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(12, 6, 1)), (2, 8, 9, 10)),
    "depthwise": (torch.nn.Conv2d(8, 8, 3, padding=1, stride=2, groups=8), (2, 8, 14, 13)),
    "groups": (torch.nn.Conv2d(8, 12, 3, groups=2), (2, 8, 9, 10)),
    "transposed": (Transposed(), (2, 8, 7, 7)),
    "one dimension": (torch.nn.Conv1d(8, 12, 5, dilation=2), (2, 8, 40)),
}
DTYPES = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def without_instructions(monkeypatch) -> None:
    monkeypatch.setattr(half_products, "_without_halves", lambda: True)


def _built(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module, sizes = MODULES[name]
    return copy.deepcopy(module).to(dtype), torch.randn(sizes).to(dtype)


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients(store, generators, name: str, dtype: torch.dtype) -> None:
    module, x = _built(name, dtype)
    run = compile_graph(
        torch.fx.symbolic_trace(module), [x.clone().requires_grad_()], options=GraphOptions(verify=True), store=store, generators=generators
    )
    exact, found = copy.deepcopy(module).double(), []
    for call, owner in ((lambda t: run(t)[0], module), (module, module), (exact, exact)):
        leaf = x.to(next(iter(owner.parameters()), x).dtype if owner is module else torch.float64).detach().requires_grad_()
        out = call(leaf)
        found.append((out, *torch.autograd.grad(out.float().sigmoid().sum(), [leaf, *owner.parameters()])))
    for ours, theirs, right in zip(*found, strict=True):
        assert ours.dtype == dtype and ours.stride() == theirs.stride()
        errors = [float((t.detach().double() - right.detach()).abs().max() / right.detach().abs().max()) for t in (ours, theirs)]
        assert errors[0] <= 1.5 * errors[1] + torch.finfo(dtype).eps, errors


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"linear of few rows"}))
def test_no_product_is_left_in_half_precision(name: str) -> None:
    module, x = _built(name, torch.bfloat16)
    with torch.no_grad():
        program = lower(functionalize(torch.fx.symbolic_trace(module), [x]))
    halves = [
        n.op
        for n in program.nodes
        if isinstance(n, Extern)
        for a in n.args
        if isinstance(a, BufferArg) and program.buffers[a.buffer].dtype == "bfloat16"
    ]
    assert halves == []


def test_eagers_own_rounding_is_left_to_torch(store, generators) -> None:
    module, x = _built("linear", torch.bfloat16)
    with torch.no_grad():
        run = compile_graph(
            torch.fx.symbolic_trace(module), [x], options=GraphOptions(numerics="eager"), store=store, generators=generators
        )
        assert torch.equal(run(x)[0], module(x))


@pytest.mark.filterwarnings("ignore:GI030")
def test_sizes_that_move(store, generators) -> None:
    """A row that cannot do without numbers takes back what it converted; the next one converts it for itself."""
    torch.manual_seed(0)
    module, x, sizes = Both().bfloat16(), torch.randn(2, 8, 9, 10).bfloat16(), Sizes()
    moving = FakeContext(sizes).from_tensor(x, {0: sizes.new(2), 2: sizes.new(9), 3: sizes.new(10)})
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(module), [moving], store=store, generators=generators)
        for shape in ((2, 8, 9, 10), (3, 8, 20, 7), (5, 8, 4, 30)):
            given = torch.randn(shape).bfloat16()
            for got, want in zip(run(given), module(given), strict=True):
                torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("length, depth, wanted", [(24, 16, "float32"), (256, 64, "float32"), (320, 64, "bfloat16")])
def test_gradients_of_attention_over_little_are_computed_in_float32(monkeypatch, length: int, depth: int, wanted: str) -> None:
    """That kernel takes longer for halves, whatever the processor."""
    monkeypatch.setattr(half_products, "_without_halves", lambda: False)

    class Heads(torch.nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (torch.randn(1, 2, length, depth).bfloat16().requires_grad_() for _ in range(3))
    graphs = partition(capture_joint(torch.fx.symbolic_trace(Heads()), [q, k, v])).graphs
    seen = {}
    for program in map(lower, graphs):
        for n in program.nodes:
            if isinstance(n, Extern) and "attention" in n.op:
                seen[n.op.partition("attention_for_cpu")[2]] = program.buffers[n.args[0].buffer].dtype
    assert seen == {"": "bfloat16", "_backward": wanted}
