"""Products and attention on a GPU that are started from recordings, or several as one: the same values wherever memory lies, in any
stream."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opmill

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
HALF = torch.bfloat16


class Grouped(nn.Module):
    """Several layers of one input."""

    def __init__(self, count: int, bias: bool, size: int = 256) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size, bias=bias) for _ in range(count))
        self.last = nn.Linear(size, size)

    def forward(self, x):
        first, *others = (layer(x) for layer in self.layers)
        for other in others:
            first = first * other.sigmoid()
        return self.last(first.relu())


class Attention(nn.Module):
    def __init__(self, heads: int, depth: int, causal: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(heads * depth, 3 * heads * depth), nn.Linear(heads * depth, heads * depth)
        self.heads, self.causal = heads, causal

    def forward(self, x, mask=None):
        rows, length, size = x.shape
        q, k, v = self.inner(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return x + self.outer(y.transpose(1, 2).reshape(rows, length, size))


def agrees(ours: torch.Tensor, model: nn.Module, *inputs) -> None:
    """At most three times eager's distance to float64."""
    exact = model.double()(*(t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in inputs))
    eager = model.to(HALF)(*inputs)
    allowed = 3 * float((eager.double() - exact).abs().max()) + 1e-3 * float(exact.abs().max())
    off = (ours.double() - exact).abs()
    wrong = (off > allowed).nonzero()
    assert not len(wrong), (
        f"{float(off.max())} > {allowed} at {len(wrong)} of {off.numel()} places, from {wrong[0].tolist()} to {wrong[-1].tolist()}"
    )


def kernels(call) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum("nvjet" in e.name or "gemm" in e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA)


@pytest.mark.parametrize(("count", "bias"), [(2, True), (2, False), (3, True), (3, False), (5, True)])
@torch.no_grad()
def test_layers_of_one_input(count, bias):
    torch.manual_seed(0)
    model = Grouped(count, bias).cuda().to(HALF)
    compiled = opmill.compile(model)
    for rows in (64, 64, 64, 64, 128):
        x = torch.randn(rows, 256, device="cuda", dtype=HALF)
        agrees(compiled(x), model, x)


@pytest.mark.parametrize("count", [2, 3, 4])
@torch.no_grad()
def test_layers_of_one_input_at_equal_distances_are_one_product(count):
    model = Grouped(count, True).cuda().to(HALF)
    weights, biases = torch.randn(count, 256, 256, device="cuda", dtype=HALF) / 16, torch.randn(count, 256, device="cuda", dtype=HALF)
    for layer, weight, bias in zip(model.layers, weights, biases, strict=True):
        layer.weight.data, layer.bias.data = weight, bias
    compiled = opmill.compile(model)
    x = torch.randn(64, 256, device="cuda", dtype=HALF)
    for _ in range(4):
        compiled(x)
    assert kernels(lambda: compiled(x)) == 2  # all of them, and the last
    torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.05)


@torch.no_grad()
def test_weights_that_change_and_move():
    torch.manual_seed(1)
    model = Grouped(3, True).cuda().to(HALF)
    compiled = opmill.compile(model)
    x = torch.randn(64, 256, device="cuda", dtype=HALF)
    for turn in range(8):
        for _ in range(3):
            agrees(compiled(x), model, x)  # ours first: casting the model moves its parameters, too
        layer = model.layers[turn % 3]
        if turn % 2:
            layer.weight.neg_()
        else:
            layer.weight.data = torch.randn(256, 256, device="cuda", dtype=HALF) / 16
    model.layers[1] = model.layers[0]
    agrees(compiled(x), model, x)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("length", [64, 300])
@torch.no_grad()
def test_attention(masked, length):
    torch.manual_seed(2)
    model = nn.ModuleList(Attention(4, 64, causal=not masked) for _ in range(3)).cuda().to(HALF)
    mask = None
    if masked:
        mask = torch.zeros(2, 1, length, length, device="cuda", dtype=HALF)
        mask[1:, :, :, length // 2 :] = -1e9

    def stacked(x):
        for layer in model:
            x = layer(x, mask)
        return x

    compiled = opmill.compile(stacked)
    kept = []
    for _ in range(10):
        x = torch.randn(2, length, 256, device="cuda", dtype=HALF)
        kept.append((compiled(x), stacked(x)))
    for ours, eager in kept:  # nothing that left is written by later calls
        torch.testing.assert_close(ours, eager, rtol=0.02, atol=0.05)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            there = compiled(x)
    stream.synchronize()
    torch.testing.assert_close(there, kept[-1][1], rtol=0.02, atol=0.05)


@torch.no_grad()
def test_graphs_of_the_program_outlive_recordings():
    """A CUDA graph that the program records must hold nothing that a recording owns."""
    torch.manual_seed(3)
    model = Attention(4, 64, causal=True).cuda().to(HALF)
    compiled = opmill.compile(model)
    x = torch.randn(2, 64, 256, device="cuda", dtype=HALF)
    for _ in range(6):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    opmill.reset()
    del compiled
    torch.cuda.empty_cache()
    used = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(8)]  # what was freed is somebody else's now
    x.normal_()
    graph.replay()
    torch.testing.assert_close(y, model(x), rtol=0.02, atol=0.05)
    assert all(bool((t == 7).all()) for t in used)


def test_gradients_after_calls_without():
    """The results of attention are saved for the backward: a recording must not keep those."""
    torch.manual_seed(4)
    model = Attention(4, 64, causal=True).cuda().to(HALF)
    compiled = opmill.compile(model)
    x = torch.randn(2, 64, 256, device="cuda", dtype=HALF)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
    losses = [compiled(x + k).float().square().mean() for k in range(3)]
    for k, loss in enumerate(losses):
        model.zero_grad()
        loss.backward()
        ours = model.inner.weight.grad.clone()
        model.zero_grad()
        model(x + k).float().square().mean().backward()
        torch.testing.assert_close(ours, model.inner.weight.grad, rtol=0.05, atol=1e-3)


def test_two_threads():
    torch.manual_seed(5)
    model = nn.Sequential(Attention(4, 64, causal=True), Attention(4, 64, causal=True)).cuda().to(HALF)
    compiled = opmill.compile(model)
    inputs = [torch.randn(2, 64, 256, device="cuda", dtype=HALF) for _ in range(2)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        compiled(inputs[0])
    torch.cuda.synchronize()
    wrong: list[int] = []

    def run(k: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                y = compiled(inputs[k])
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(y.float(), wanted[k].float(), rtol=0.02, atol=0.05):
                    wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_recording_that_fails_leaves_random_numbers_as_they_were():
    """An operator that waits for the device cannot be in a CUDA graph: the program goes on as if nobody had tried, its draws of random
    numbers too, which torch refuses for good after a capture that ended in an error."""
    library = torch.library.Library("test_gpu_recordings", "FRAGMENT")
    library.define("waits(Tensor x) -> Tensor")
    library.impl("waits", lambda x: x * float(x.abs().max().item()), "CUDA")
    library.impl("waits", lambda x: torch.empty_like(x), "Meta")

    def program(x):
        return torch.ops.test_gpu_recordings.waits(x + 1).sin()

    compiled = opmill.compile(program, mode="reduce-overhead")
    x = torch.randn(64, device="cuda")
    torch.cuda.manual_seed(5)
    wanted = [torch.rand(8, device="cuda") for _ in range(6)]
    torch.cuda.manual_seed(5)
    with pytest.warns(UserWarning, match="RC071") as told:
        for expected in wanted:
            torch.testing.assert_close(compiled(x), program(x))
            assert torch.equal(torch.rand(8, device="cuda"), expected)
    assert sum("RC071" in str(each.message) for each in told) == 1
    torch.cuda.manual_seed(6)
    assert torch.randn(4, device="cuda").isfinite().all()
