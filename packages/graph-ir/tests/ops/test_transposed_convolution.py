"""Transposed convolutions as convolutions: which are, and that results are torch's whatever steps, windows and borders they have."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.ops.transposed_convolution import Direction, direction


def _calls(fn, *inputs) -> list[str]:
    with torch.no_grad():
        program = lower(functionalize(torch.fx.symbolic_trace(fn), list(inputs)))
    return [node.op for node in program.nodes if isinstance(node, Extern)]


@pytest.mark.parametrize(
    ("stride", "padding", "kernel"), [c for c in itertools.product(range(1, 5), range(4), range(1, 7)) if c[0] <= c[2]]
)
def test_a_direction_reads_all_places_that_taps_reach(stride: int, padding: int, kernel: int) -> None:
    """By the definition: place ``i`` of an image goes to ``s i - p + k`` of the result for each tap ``k``."""
    found = direction(stride, padding, kernel)
    assert (found.stride, found.padding, found.kernel) == (stride, padding, kernel)
    read: dict[int, set[int]] = {a: set() for a in range(stride)}
    for i, tap in itertools.product(range(-9, 10), range(kernel)):
        at = stride * i - padding + tap
        if at // stride == 0:
            read[at % stride].add(i)
    every = set().union(*read.values())
    assert set(range(-found.pad, found.taps - found.pad)) == every
    assert found.alike == all(places == every for places in read.values())


def test_windows_side_by_side_are_a_product_for_each_place() -> None:
    assert direction(2, 0, 2) == Direction(2, 0, 2, 0, 1, True)


_EVERY = [
    (1, 8, (2, 2), (0, 0), (2, 2), (0, 0), True),
    (2, 5, (3, 2), (0, 0), (3, 2), (0, 0), False),
    (2, 6, (2, 2), (2, 0), (4, 2), (1, 0), True),
    (3, 4, (1, 1), (1, 1), (3, 3), (0, 0), True),
    (1, 9, (1, 1), (0, 2), (3, 5), (0, 0), False),
    (2, 3, (2, 2), (1, 1), (4, 4), (0, 0), True),
    (2, 2, (2, 3), (1, 1), (3, 5), (1, 0), True),
    (1, 1, (3, 3), (2, 1), (5, 4), (0, 1), False),
    (2, 4, (2, 1), (0, 1), (3, 3), (0, 0), True),
]


@pytest.mark.parametrize(("images", "channels", "steps", "padding", "kernel", "more", "bias"), _EVERY)
def test_results_are_torchs(images: int, channels: int, steps, padding, kernel, more, bias: bool) -> None:
    x, w = torch.randn(images, 7, 16, 16), torch.randn(7, channels, *kernel)
    b = torch.randn(channels) if bias else None

    def fn(x, w, *b):
        return (torch.relu(F.conv_transpose2d(x, w, b[0] if b else None, steps, padding, more)),)

    given = [x, w] if b is None else [x, w, b]
    module = torch.fx.symbolic_trace((lambda x, w, b: fn(x, w, b)) if bias else (lambda x, w: fn(x, w)))
    assert _calls(module, *given) == [], "a row of loops"
    with torch.no_grad():
        got = compile_graph(module, given, options=GraphOptions(cache=False))(*given)[0]
        want, exact = fn(*given)[0], fn(*(t.double() for t in given))[0]
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.double(), exact, atol=1e-5, rtol=1e-5)


def test_along_one_dimension() -> None:
    x, w = torch.randn(2, 6, 20), torch.randn(6, 8, 4)
    with torch.no_grad():
        module = torch.fx.symbolic_trace(lambda x, w: (F.conv_transpose1d(x, w, stride=4),))
        got = compile_graph(module, [x, w], options=GraphOptions(cache=False))(x, w)[0]
        torch.testing.assert_close(got, F.conv_transpose1d(x, w, stride=4), atol=1e-5, rtol=1e-5)
    assert _calls(module, x, w) == []


@pytest.mark.parametrize("bias", [False, True])
def test_images_of_one_place_are_a_product_of_matrices(bias: bool) -> None:
    given = [torch.randn(5, 6, 1, 1), torch.randn(6, 3, 4, 4), torch.randn(3)][: 2 + bias]
    module = torch.fx.symbolic_trace(
        (lambda x, w, b: (F.conv_transpose2d(x, w, b),)) if bias else (lambda x, w: (F.conv_transpose2d(x, w),))
    )
    assert _calls(module, *given) == ["aten::mm"]
    with torch.no_grad():
        got = compile_graph(module, given, options=GraphOptions(cache=False))(*given)[0]
        torch.testing.assert_close(got, module(*given)[0], atol=1e-5, rtol=1e-5)


def test_gradients_are_torchs() -> None:
    given = [torch.randn(2, 6, 8, 8, requires_grad=True), torch.randn(6, 4, 2, 2, requires_grad=True)]
    module = torch.fx.symbolic_trace(lambda x, w: (torch.sigmoid(F.conv_transpose2d(x, w, stride=2)),))
    wanted = torch.autograd.grad(module(*given)[0].square().sum(), given)
    found = torch.autograd.grad(compile_graph(module, given, options=GraphOptions(cache=False))(*given)[0].square().sum(), given)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


X, W = torch.randn(2, 8, 16, 16), torch.randn(8, 8, 4, 4)
LEFT_TO_TORCH = {
    "phases that read different places": (X, W, {"stride": 2, "padding": 1}),
    "phases without taps": (X, W[:, :, :1, :1].clone(), {"stride": 2}),
    "groups": (X, W, {"stride": 4, "groups": 2}),
    "dilation": (X, W, {"dilation": 2}),
    "float64": (X.double(), W.double(), {"stride": 4}),
    "channels last": (X.contiguous(memory_format=torch.channels_last), W, {"stride": 4}),
    "few places": (X[:, :, :3, :3].clone(), W, {"stride": 4}),
}


@pytest.mark.parametrize("name", LEFT_TO_TORCH)
def test_left_to_torch(name: str) -> None:
    x, w, how = LEFT_TO_TORCH[name]
    assert _calls(lambda x, w: (F.conv_transpose2d(x, w, **how),), x, w) == ["aten::convolution"]
