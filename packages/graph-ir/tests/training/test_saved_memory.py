"""What is held between forward and backward: at most what eager holds."""

import copy
import math
import operator

import pytest
import torch
from training_cases import CASES, Of

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.options import GraphOptions

F = torch.nn.functional


class Block(torch.nn.Module):
    """A transformer's layer."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        qkv = self.qkv(self.norms[0](x)).view(2, 8, 3, self.heads, 4)
        q, k, v = (qkv[:, :, n].transpose(1, 2) for n in range(3))
        p = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        x = x + self.out((p @ v).transpose(1, 2).reshape(2, 8, 16))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def saved_bytes(call, module, inputs):
    """Bytes of the memories that the backward holds and that are neither parameters nor inputs."""
    known = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers(), *inputs)}
    found = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = t, storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call(*inputs)
    return [sum(n for _, n in found.values()), out][:1]


MODULES = {
    "block": (Block, torch.randn(2, 8, 16)),
    "mask and scale": (lambda: Of(lambda m, x: F.relu(x @ m.w) * 3 + torch.where(x > 0, x, m.b)), torch.randn(3, 4)),
    **{name: CASES[name] for name in ("mlp", "conv and batch norm", "dropout", "mixed", "tied", "loss inside", "view of a computed value")},
}


@pytest.mark.parametrize("name", MODULES)
def test_at_most_eagers(name, twins):
    make, *inputs = MODULES[name]
    [want], [got] = twins(make(), *inputs).run(saved_bytes, *inputs)
    assert got <= want
    assert got or not want


def test_what_two_saved_values_come_from_is_saved_instead(twins):
    module = Of(lambda m, x: [t.exp() * t.tanh() for t in [x @ m.w]][0])
    [want], [got] = twins(module, torch.randn(64, 4)).run(saved_bytes, torch.randn(64, 4))
    assert got == 64 * 4 * 4 < want  # the product, not both of its functions


def gradients_of(call, module, inputs):
    out = call(*inputs)
    return [out, *torch.autograd.grad(out.float().square().sum(), list(module.parameters()))]


def normed(norm, shape, dtype, own):
    """A product or a convolution, a norm with parameters of type ``own``, and what reads its result twice; with an input."""
    by_rows = len(shape) < 3 or norm is torch.nn.LayerNorm
    width = shape[-1] if by_rows else shape[1]
    before = (torch.nn.Linear(width, width) if by_rows else torch.nn.Conv2d(width, width, 1)).to(dtype)
    made = norm(2, width) if norm is torch.nn.GroupNorm else norm(width)
    return torch.nn.Sequential(before, made.to(own), torch.nn.ReLU(), copy.deepcopy(before)), torch.randn(shape, dtype=dtype)


def large_saved(module, x, **how):
    """Values as large as ``x`` that the forward computes for the backward."""
    halves = partition(capture_joint(torch.fx.symbolic_trace(module), [x]), **how)
    outside = {*halves.forward.inputs, *halves.forward.held}
    return [n for n in halves.saved if n not in outside and math.prod(halves.forward.metas[n].sizes) == x.numel()]


NORMS = {
    "batch of rows": (torch.nn.BatchNorm1d, (32, 8)),
    "batch of images": (torch.nn.BatchNorm2d, (2, 8, 6, 6)),
    "rows": (torch.nn.LayerNorm, (4, 6, 8)),
    "groups": (torch.nn.GroupNorm, (2, 8, 6, 6)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", NORMS)
def test_what_a_norm_returns_is_not_kept_beside_its_input(name, dtype, twins):
    own = torch.float32 if dtype == torch.bfloat16 else dtype  # a mixed norm, whose statistics are not rounded
    module, x = normed(*NORMS[name], dtype, own)
    assert len(large_saved(module, x)) == 1
    twins(module, x).same(gradients_of, x)


@pytest.mark.parametrize("name", NORMS)
def test_rounded_statistics_do_not_tell_what_a_norm_returned(name):
    assert len(large_saved(*normed(*NORMS[name], torch.bfloat16, torch.bfloat16))) == 2


@pytest.mark.parametrize("name", NORMS)
def test_where_results_are_eagers_to_the_last_bit_norms_keep_theirs(name):
    assert len(large_saved(*normed(*NORMS[name], torch.float32, torch.float32), exact=True)) == 2


def test_what_a_norm_returns_is_kept_where_another_reads_it_anyway(twins):
    class Shown(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1)

        def forward(self, x):
            y = self.norm(self.conv(x))
            return y, self.conv(y)

    module, x = Shown(), torch.randn(2, 4, 5, 5)
    halves = partition(capture_joint(torch.fx.symbolic_trace(module), [x]))
    assert halves.forward.outputs[0].value in halves.saved
    twins(module, x).same(lambda call, module, inputs: gradients_of(lambda *a: sum(o.sum() for o in call(*a)), module, inputs), x)


def test_random_numbers_are_not_drawn_again(twins):
    pair = twins(Of(lambda m, x: F.dropout(x * m.b, 0.5) * m.s), torch.ones(64, 4))

    def use(call, module, inputs):
        out = call(*inputs)
        out.sum().backward()
        return [out, module.b.grad]

    pair.same(use, torch.ones(64, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_random_masks_are_kept_as_truths(twins, dtype):
    module = Of(lambda m, x: F.dropout(x * m.b, 0.3)).to(dtype)
    x = torch.ones(64, 4, dtype=dtype)
    pair = twins(module, x)
    [want], [got] = pair.run(saved_bytes, x)
    assert got == 64 * 4 < want  # and what is saved of the input is there anyway
    pair.same(lambda call, module, inputs: [call(*inputs), *torch.autograd.grad(call(*inputs).float().square().sum(), [module.b])], x)
    drawn = twins(Of(lambda m, x: [t * m.b for t in [torch.bernoulli(x * 0 + 0.5)]][0]), torch.ones(64, 4))
    drawn.same(lambda call, module, inputs: [call(*inputs), *torch.autograd.grad(call(*inputs).sum(), [module.b])], torch.ones(64, 4))


def test_what_is_computed_again_is_so_right_before_its_reader():
    class Chain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(5))

        def forward(self, x):
            for layer in self.layers:
                x = F.gelu(layer(x))
            return x

    module = Chain()
    halves = partition(capture_joint(torch.fx.symbolic_trace(module), [torch.randn(3, 4)]))
    order = [n.func._schema.name.removeprefix("aten::") for n in halves.backward.nodes]
    places = [k for k, name in enumerate(order) if name == "gelu"]
    assert len(places) == 4  # the last one is the output
    grads = [k for k, name in enumerate(order) if name == "gelu_backward"]
    assert all(before < again < after for before, again, after in zip(grads, places, grads[1:], strict=False))


@pytest.mark.parametrize("retain", [False, True])
def test_what_is_saved_belongs_to_the_backward_that_runs_last(twins, retain):
    pair = twins(Of(lambda m, x: torch.tanh(torch.exp(x @ m.w) @ m.w) * m.b), torch.randn(3, 4))
    graph, holders = pair.compiled.executable, []

    class Watched:
        def __init__(self, backward):
            self.backward = backward

        def take(self, given):
            holders.append([t._use_count() for t in given[1:] if not t.requires_grad])
            return self.backward.take(given)

    [behind] = graph.behind
    behind.backward = Watched(behind.backward)
    out = pair.call(torch.randn(3, 4))
    out.sum().backward(retain_graph=retain)
    [counts] = holders
    assert len(counts) >= 2 and all((count > 1) == retain for count in counts)


def checkpointed(region, x, w):
    """A graph that runs ``region(x, w)`` twice, each time as an activation checkpoint, and sums it."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder("x"), graph.placeholder("w")]
    value = inputs[0]
    for _ in range(2):
        held = graph.get_attr("region")
        called = graph.call_function(torch.ops.higher_order.tag_activation_checkpoint, (held, value, inputs[1]), {"use_reentrant": False})
        value = graph.call_function(operator.getitem, (called, 0))
    graph.output((graph.call_method("sum", (value,)),))
    return torch.fx.GraphModule({"region": torch.fx.symbolic_trace(region)}, graph)


def test_checkpoints_keep_what_they_return_alone():
    def region(x, w):
        for _ in range(4):
            x = torch.softmax(F.layer_norm(torch.tanh(x @ w), (16,)) @ w.t(), -1)
        return (x,)

    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    with torch.enable_grad():
        halves = partition(capture_joint(checkpointed(region, x, w), [x, w]))
        twice = region(region(x, w)[0], w)
    own = [name for name in halves.saved if name not in halves.forward.inputs]
    assert [halves.forward.metas[name].sizes for name in own] == [(8, 16)] * 2  # what the two return
    compiled = compile_graph(checkpointed(region, x, w), [x, w], options=GraphOptions(cache=False), generators=())
    want = torch.autograd.grad(twice[0].sum(), [x, w])
    got = torch.autograd.grad(compiled(x, w)[0], [x, w])
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("what", ["a buffer", "an input", "a view of a buffer", "little computed of a buffer", "its own way"])
def test_a_copy_is_kept_in_place_of_what_it_is_of(what, twins):
    """Keys of a queue that a step ends with writing to: eager saves the copy that the program made; so it does what it has computed."""
    programs = {
        "a buffer": lambda m, x: x @ m.w * m.s.clone().exp(),
        "an input": lambda m, x: x.detach().clone() @ m.w,
        "little computed of a buffer": lambda m, x: torch.tanh(x @ m.w) * torch.sigmoid(m.s),
        "its own way": lambda m, x: (x @ m.w) * (m.s * 2 + 1).exp().clone().detach(),
        "a view of a buffer": lambda m, x: (x @ m.w) * m.s[1:].clone().detach().sum().exp(),
    }

    def use(call, module, inputs):
        out = call(*inputs)
        with torch.no_grad():
            inputs[0].mul_(2) if what == "an input" else module.s.add_(1)
        out.sum().backward()
        return [out, module.w.grad]

    x = torch.randn(3, 4)
    twins(Of(programs[what]), x).same(use, x)
