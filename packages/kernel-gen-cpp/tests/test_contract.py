"""Convolutions as blocked products: recognised whatever their shape, right at every border, the same for any number of threads."""

import copy
import ctypes
import platform
import random
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, IndexValue, Load, LoopKernel, Nest, Op, Phase, Reduction, Ref
from opmill_graph_ir.loops.ir import Store as IrStore
from opmill_graph_ir.ops import convolution
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import KernelStep, schedule
from opmill_kernel_gen_cpp.contraction.match import contraction_of
from opmill_kernel_gen_cpp.contraction.window import window_of
from opmill_kernel_gen_cpp.debug import Runner
from opmill_kernel_gen_cpp.generator import CppKernelGenerator
from opmill_kernel_gen_cpp.target import AVX2, AVX512, SSE, Target, host
from opmill_runtime_cache.plan.text import render

needs_fma = pytest.mark.skipif(not host().fma, reason="products are written for processors with fused multiply-add")


def _relu_of_sum(y, scale, other):
    return torch.relu(y * scale[:, None, None] + other)


def _twice(y, scale, other):
    return y + scale[:, None, None], torch.sigmoid(y) * other


EPILOGUES = {"none": lambda y, scale, other: y, "residual": _relu_of_sum, "two": _twice}


@dataclass(frozen=True)
class Conv:
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    epilogue: str = "none"
    groups: int = 1

    def window(self) -> tuple[object, ...]:
        return self.stride, self.padding, self.dilation, self.groups

    def __call__(self, x, w, bias, scale, other):
        y = F.conv2d(x, w, bias, *self.window())
        out = EPILOGUES[self.epilogue](y, scale, other)
        return out if isinstance(out, tuple) else (out,)

    def inputs(self, seed: int = 0) -> list[torch.Tensor]:
        g = torch.Generator().manual_seed(seed)
        out = F.conv2d(torch.empty(self.x, device="meta"), torch.empty(self.w, device="meta"), None, *self.window())
        rows = self.w[0]
        return [torch.randn(s, generator=g) for s in (self.x, self.w, (rows,), (rows,), tuple(out.shape))]

    def step(self) -> KernelStep:
        with torch.no_grad():
            program = schedule(lower(functionalize(torch.fx.symbolic_trace(_Module(self)), self.inputs())))
        [step] = program.steps
        assert isinstance(step, KernelStep), "the convolution was left to torch"
        return step


class _Module(torch.nn.Module):
    def __init__(self, conv: Conv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x, w, bias, scale, other):
        return self.conv(x, w, bias, scale, other)


def _random(seed: int) -> Conv:
    r = random.Random(seed)
    taps = r.choice([(1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (7, 7), (2, 2), (1, 3), (5, 1)])
    stride = r.choice([(1, 1), (1, 1), (2, 2), (2, 1), (3, 3)])
    dilation = r.choice([(1, 1), (1, 1), (1, 1), (2, 2), (1, 3)])
    padding = tuple(r.randint(0, t) for t in taps)
    size = [max(r.randint(4, 40), d * (t - 1) + 1) for d, t in zip(dilation, taps, strict=True)]
    if r.random() < 0.2:
        size[1] = r.randint(230, 600)
    points = [(n + 2 * p - d * (t - 1) - 1) // s + 1 for n, p, d, t, s in zip(size, padding, dilation, taps, stride, strict=True)]
    channels, images = r.randint(1, 40), r.choice([1, 1, 2, 3])
    least = -(-(1 << 15) // (channels * taps[0] * taps[1] * points[0] * points[1]))
    rows = max(r.randint(4, 50), least, 4)
    if points[0] * points[1] < 16:
        return _random(seed + 1000)
    if seed % 3 == 0 and taps != (1, 1):
        rows = max(8, -(-(1 << 15) // (taps[0] * taps[1] * points[0] * points[1])))
        return Conv((images, rows, *size), (rows, 1, *taps), stride, padding, dilation, r.choice(list(EPILOGUES)), rows)
    return Conv((images, channels, *size), (rows, channels, *taps), stride, padding, dilation, r.choice(list(EPILOGUES)))


ABREAST = [  # for channels in lanes: more of them than fill vectors, lines of any length, taps far apart or in the padding alone
    Conv((3, 29, 7, 7), (29, 1, 3, 3), padding=(1, 1), groups=29, epilogue="residual"),
    Conv((1, 37, 14, 15), (37, 1, 5, 5), (2, 2), (2, 2), groups=37, epilogue="two"),
    Conv((2, 67, 13, 30), (67, 1, 3, 3), (3, 4), (2, 0), (2, 3), groups=67),
    Conv((1, 24, 6, 9), (24, 1, 5, 3), padding=(9, 8), groups=24),
    Conv((8, 57, 9, 10), (57, 1, 2, 2), (2, 2), groups=57),
    Conv((1, 18, 90, 90), (18, 1, 7, 7), padding=(3, 3), groups=18),
    Conv((1, 17, 40, 201), (17, 1, 7, 3), (3, 1), (0, 1), groups=17),
    Conv((5, 34, 3, 3), (34, 1, 3, 3), (1, 1), (3, 3), (2, 2), groups=34),
    Conv((6, 98, 1, 20), (98, 1, 1, 3), padding=(0, 1), groups=98),
    Conv((5, 39, 1, 90), (39, 1, 1, 4), (1, 2), groups=39, epilogue="two"),
    Conv((3, 35, 30, 4), (35, 1, 3, 1), padding=(1, 0), groups=35),
    Conv((1, 16, 12, 700), (16, 1, 3, 3), padding=(1, 1), groups=16),
]
SHAPES = [
    Conv((1, 64, 14, 14), (64, 64, 3, 3), padding=(1, 1), epilogue="residual"),
    Conv((1, 3, 40, 40), (16, 3, 7, 7), (2, 2), (3, 3)),
    Conv((1, 300, 7, 7), (70, 300, 1, 1), epilogue="residual"),
    Conv((2, 40, 9, 31), (26, 40, 1, 1)),
    Conv((1, 3, 64, 64), (48, 3, 16, 16), (16, 16)),
    Conv((1, 8, 4, 900), (8, 8, 1, 9), padding=(0, 4), epilogue="two"),
    Conv((1, 700, 5, 5), (13, 700, 3, 3), padding=(1, 1)),
    Conv((1, 4, 5, 5), (1200, 4, 3, 3), padding=(1, 1)),
    Conv((1, 40, 56, 56), (40, 1, 7, 7), padding=(3, 3), groups=40, epilogue="residual"),
    Conv((2, 96, 7, 7), (96, 1, 5, 5), padding=(2, 2), groups=96),
    Conv((1, 16, 20, 112), (16, 1, 3, 3), (2, 2), (1, 1), groups=16, epilogue="two"),
    Conv((1, 8, 12, 700), (8, 1, 3, 3), padding=(1, 1), groups=8),
    *(Conv((1, 64, 9, n), (64, 1, 3, 3), padding=(1, 1), groups=64) for n in (17, 25, 40, 41, 47, 66, 90)),
    *(_random(seed) for seed in range(44)),
    *ABREAST,
]


@pytest.fixture(scope="module")
def steps() -> dict[Conv, KernelStep]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "_DEEP", 1 << 60)  # also those that do better as torch's on some processors
        patch.setattr(convolution, "_torch_is_quicker", lambda *sizes: False)
        return {c: c.step() for c in SHAPES}


@pytest.fixture(scope="module")
def runner(steps, store) -> Runner:
    return Runner(list(dict.fromkeys(s.kernel for s in steps.values())), store)


def _run(conv: Conv, step: KernelStep, runner: Runner, inputs: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
    given = dict(zip(("x0", "x1", "x2", "x3", "x4"), inputs or conv.inputs(), strict=True))
    buffers, out = {}, []
    for parameter, argument in zip(step.kernel.buffers, step.arguments, strict=True):
        if argument in given:
            buffers[parameter.name] = given[argument].flatten()
        else:
            buffers[parameter.name] = torch.full((parameter.numel.constant,), float("nan"))
            out.append((argument, buffers[parameter.name]))
    assert runner.run(step.kernel, buffers) == 0
    return [b for _, b in sorted(out)]


@needs_fma
def test_every_shape_is_recognised(steps) -> None:
    missed = [c for c, s in steps.items() if any(contraction_of(n, s.kernel, host()) is None for n in s.kernel.nests)]
    assert missed == []


def _along_lines(images: int) -> KernelStep:
    """A convolution over sequences, and what follows it."""
    module = torch.nn.Sequential(torch.nn.Conv1d(5, 24, 3, padding=1), torch.nn.ReLU())
    with torch.no_grad():
        [step] = schedule(lower(functionalize(torch.fx.symbolic_trace(module), [torch.randn(images, 5, 200)]))).steps
    assert isinstance(step, KernelStep)
    return step


def test_sequences_are_images_and_no_lines_of_one() -> None:
    """Results of a sequence do not follow those of the one before: as lines of one image, each was written an element at a time."""
    for images in (1, 3):
        kernel = _along_lines(images).kernel
        found = contraction_of(kernel.nests[0], kernel, AVX512)
        assert found is not None
        assert found.window.lines.points.constant == 1
        assert found.window.images.constant == images


def test_taps_that_overlap_are_no_channels() -> None:
    """The one channel of a sound: as channels, each tap was laid out by itself, and all that it steps over."""
    with torch.no_grad():
        [step] = schedule(lower(functionalize(torch.fx.symbolic_trace(torch.nn.Conv1d(1, 64, 10, 5)), [torch.randn(2, 1, 2000)]))).steps
    assert isinstance(step, KernelStep)
    found = contraction_of(step.kernel.nests[0], step.kernel, AVX512)
    assert found is not None
    assert (found.window.channels, found.window.columns.taps, found.window.columns.stride) == (1, 10, 5)


@pytest.mark.parametrize("group", range(4))
def test_right_at_every_point(steps, runner, group: int) -> None:
    wrong = []
    for conv in SHAPES[group::4]:
        want = conv(*(t.double() for t in conv.inputs()))
        got = _run(conv, steps[conv], runner)
        values = sorted(float(t.sum()) for t in want)
        assert len(got) == len(values)
        for out in got:
            near = min(want, key=lambda t, out=out: float((t.flatten() - out.double()).abs().nan_to_num(1e9).max()))
            error = (near.flatten() - out.double()).abs().nan_to_num(float("inf")).max() / near.abs().max()
            if error > 2e-6:
                wrong.append((conv, float(error)))
    assert wrong == []


@pytest.mark.parametrize("bits", [128, 512])
def test_right_with_vectors_of_any_width(steps, store, bits: int) -> None:
    """The text for other widths; the compiler takes vectors apart that this processor lacks."""
    target = Target(f"any{bits}", bits, host().flags, fma=True)
    shapes = [SHAPES[k] for k in (0, 1, 2, 3, 5, 8, 9, 10, 14)] + ABREAST
    taken = [c for c in shapes if contraction_of(steps[c].kernel.nests[0], steps[c].kernel, target) is not None]
    wide = Runner([steps[c].kernel for c in taken], store, CppKernelGenerator(target))
    assert len(taken) == len(shapes)
    for conv in taken:
        for out in _run(conv, steps[conv], wide):
            want = conv(*(t.double() for t in conv.inputs()))
            assert min(float((t.flatten() - out.double()).abs().nan_to_num(1e9).max() / t.abs().max()) for t in want) < 2e-6, conv


def test_the_same_for_any_number_of_threads(steps, runner) -> None:
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append([t for c in SHAPES[:8] for t in _run(c, steps[c], runner)])
    finally:
        torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))


def test_infinities_and_nan_stay_in_their_windows(steps, runner) -> None:
    conv = SHAPES[3]
    inputs = conv.inputs()
    inputs[0][1, 5, 3, 7], inputs[0][0, 2, 8, 30] = float("inf"), float("nan")
    [got] = _run(conv, steps[conv], runner, inputs)
    want = conv(*inputs)[0].flatten()
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf())


_FE_UNDERFLOW = 16
"""On x86: a result was subnormal."""


@needs_fma
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag is another one elsewhere")
def test_what_lay_on_the_stack_is_not_multiplied(steps, runner) -> None:
    """Vectors reach beyond lines; addresses taken for numbers are subnormal, and each takes as long as a hundred sums."""
    libm, threads, before = (
        ctypes.CDLL("libm.so.6"),
        torch.get_num_threads(),
        Conv((1, 40, 56, 56), (40, 1, 7, 7), padding=(3, 3), groups=40, epilogue="residual"),
    )
    subnormal = [torch.full_like(t, 1e-41) for t in before.inputs()]
    torch.set_num_threads(1)
    try:
        for conv in SHAPES:
            _run(before, steps[before], runner, subnormal)
            libm.feclearexcept(_FE_UNDERFLOW)
            _run(conv, steps[conv], runner)
            assert not libm.fetestexcept(_FE_UNDERFLOW), conv
    finally:
        torch.set_num_threads(threads)


# ---- sizes that move -------------------------------------------------------------------------------------------------------


class _Noting(CppKernelGenerator):
    """Notes what it builds, and which kinds of contractions."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []
        self.kernels: dict[LoopKernel, None] = {}

    def build(self, kernels, options, store):
        self.kernels |= dict.fromkeys(kernels)
        found = [contraction_of(n, k, self.target) for k in kernels for n in k.nests]
        self.kinds += [c.kind for c in found if c is not None]
        return super().build(kernels, options, store)


MOVING = {
    "3x3": (Conv((2, 8, 14, 15), (20, 8, 3, 3), padding=(1, 1)), (0, 2, 3)),
    "columns alone": (Conv((1, 8, 14, 15), (20, 8, 3, 3)), (3,)),
    "lines alone": (Conv((3, 8, 14, 15), (20, 8, 3, 3), (2, 1), (0, 1)), (2,)),
    "strided": (Conv((2, 3, 40, 41), (16, 3, 7, 7), (2, 2), (3, 3)), (0, 2, 3)),
    "points": (Conv((2, 24, 9, 10), (26, 24, 1, 1)), (0, 2, 3)),
    "points of many images": (Conv((2, 24, 9, 10), (26, 24, 1, 1)), (0,)),
    "every third point": (Conv((2, 24, 20, 19), (26, 24, 1, 1), (3, 3)), (0, 2, 3)),
    "apart": (Conv((2, 16, 20, 21), (16, 1, 3, 3), (2, 2), (1, 1), groups=16), (0, 2, 3)),
    "far apart": (Conv((2, 16, 20, 21), (16, 1, 5, 5), padding=(4, 4), dilation=(2, 2), groups=16), (2, 3)),
    "row of taps": (Conv((2, 12, 9, 30), (12, 12, 1, 5)), (2, 3)),
    "column of taps": (Conv((2, 12, 12, 9), (12, 12, 5, 1)), (2, 3)),
}


@needs_fma
@pytest.mark.parametrize("name", MOVING)
def test_one_kernel_for_all_sizes(store, name: str) -> None:
    conv, dims = MOVING[name]

    def run(x, w, bias, scale):
        y = torch.relu(F.conv2d(x, w, bias, *conv.window()))
        return y * scale[:, None, None] - y.mean((2, 3), keepdim=True), torch.sigmoid(y)

    x, w, bias, scale, _ = conv.inputs()
    sizes, generator = Sizes(), _Noting()
    moving = {d: sizes.new(x.size(d)) for d in dims}
    with torch.no_grad():
        compiled = compile_graph(
            torch.fx.symbolic_trace(run), [FakeContext(sizes).from_tensor(x, moving), w, bias, scale], store=store, generators=[generator]
        )
    assert len(generator.kinds) == 1 and "aten::convolution" not in render(compiled.plan)
    r, wrong = random.Random(name), []
    for _ in range(8):
        shape = [
            r.choice([2, 3, 5, 8, 17, 40, 130]) if d in dims and d else r.choice([2, 3, 7]) if d in dims else n
            for d, n in enumerate(x.shape)
        ]
        if not sizes.holds({str(i): shape[d] for d, i in moving.items()}):
            continue
        given = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            got, want = compiled(given, w, bias, scale), run(*(t.double() for t in (given, w, bias, scale)))
        wrong += [
            (shape, float(e))
            for g, t in zip(got, want, strict=True)
            if (e := (g - t).abs().max()) > 3e-6 * t.abs().max() or g.shape != t.shape
        ]
    assert wrong == []


@needs_fma
def test_points_far_apart_are_not_laid_out(store) -> None:
    """One point of many images: what lies between them would be copied too."""
    x, w = torch.randn(3, 24, 1, 1), torch.randn(26, 24, 1, 1)
    sizes, generator = Sizes(), _Noting()
    with torch.no_grad():
        moving = FakeContext(sizes).from_tensor(x, {0: sizes.new(3)})
        compiled = compile_graph(torch.fx.symbolic_trace(lambda x, w: (F.conv2d(x, w),)), [moving, w], store=store, generators=[generator])
        assert generator.kinds == []
        torch.testing.assert_close(compiled(x, w)[0], F.conv2d(x, w))


# ---- gradients of windows over each channel alone ----------------------------------------------------------------------------


def _gradient_case(seed: int) -> tuple[tuple[int, ...], dict[str, object]]:
    r = random.Random(seed)
    taps = r.choice([(3, 3), (3, 3), (5, 5), (7, 7), (1, 4), (2, 1), (3, 9), (11, 3)])
    dilation, stride = r.choice([(1, 1), (1, 1), (2, 1), (1, 3)]), r.choice([(1, 1), (1, 1), (2, 2), (2, 1), (3, 4)])
    reach = [d * (t - 1) for d, t in zip(dilation, taps, strict=True)]
    size = [r.choice([9, 14, 31, 40, 300]) if k == r.randint(0, 1) else r.choice([9, 14, 20]) for k in range(2)]
    size = [max(n, e + 1) for n, e in zip(size, reach, strict=True)]
    padding = tuple(r.randint(0, e) for e in reach)
    return (r.choice([1, 2, 3]), *size), {
        "kernel_size": taps,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "bias": r.random() < 0.5,
    }


@needs_fma
def test_gradients_of_windows_over_each_channel_alone(store) -> None:
    kinds, wrong = [], []
    for seed in range(14):
        (images, *size), options = _gradient_case(seed)
        torch.manual_seed(seed)
        rows = 48
        module, x = torch.nn.Conv2d(rows, rows, groups=rows, **options), torch.randn(images, rows, *size)
        if seed == 3:
            x[0, 1, 4, 5], x[0, 2, 0, 0], x[-1, 3, -1, -1] = float("inf"), float("nan"), float("inf")
        generator = _Noting()
        run = compile_graph(torch.fx.symbolic_trace(module), [x.clone().requires_grad_()], store=store, generators=[generator])
        found = []
        for call, dtype in ((lambda t: run(t)[0], torch.float32), (module, torch.float32), (copy.deepcopy(module).double(), torch.float64)):
            leaf = x.to(dtype).requires_grad_()
            parameters = list((module if dtype == torch.float32 else call).parameters())
            found.append(torch.autograd.grad(call(leaf).tanh().sum(), [leaf, *parameters]))
        kinds += generator.kinds
        for ours, theirs, exact in zip(*found, strict=True):
            same = torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())
            error = (ours - exact).nan_to_num(0, 0, 0).abs().max() / exact.nan_to_num(0, 0, 0).abs().max()
            wrong += [] if same and error < 3e-6 else [(seed, options, float(error), same)]
    assert wrong == [] and kinds.count("weight_gradient") >= 7 and kinds.count("stencil") >= 15  # as with the widest vectors


DEPTHWISE = [
    ((3, 40, 25), {"kernel_size": 5, "padding": 2}),
    ((2, 33, 300), {"kernel_size": 9, "stride": 2, "padding": 3}),
    ((4, 37, 7, 7), {"kernel_size": 7, "padding": 3}),
    ((3, 50, 15, 14), {"kernel_size": (5, 2), "stride": (3, 2), "dilation": (2, 3), "padding": (4, 2)}),
    ((1, 18, 70, 90), {"kernel_size": (7, 8), "padding": (6, 0)}),
    ((8, 21, 9, 3), {"kernel_size": (1, 3), "padding": (0, 2)}),
]
"""Sizes of inputs, and options of the modules that take them."""


@needs_fma
@pytest.mark.parametrize(("size", "options"), DEPTHWISE)
def test_gradients_with_channels_in_lanes(store, size, options) -> None:
    torch.manual_seed(1)
    module = (torch.nn.Conv1d if len(size) == 3 else torch.nn.Conv2d)(size[1], size[1], groups=size[1], **options)
    x, exact = torch.randn(size), copy.deepcopy(module).double()
    run = compile_graph(torch.fx.symbolic_trace(module), [x.clone().requires_grad_()], store=store, generators=[CppKernelGenerator()])
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    got = torch.autograd.grad(run(ours)[0].sin().sum(), [ours, *module.parameters()])
    for found, wanted in zip(got, torch.autograd.grad(exact(theirs).sin().sum(), [theirs, *exact.parameters()]), strict=True):
        assert (found - wanted).abs().max() < 3e-6 * wanted.abs().max()


# ---- what is a contraction, and what is not --------------------------------------------------------------------------------


def _product(mask_value: float = 0.0, scale: int = 1, op: str = "sum", with_symbol: bool = False) -> LoopKernel:
    """out[m, p] = sum over j of w[m, j] * x[j, p + j % 1], the columns of x from 1 on only."""
    i, p, j = index("i0"), index("i1"), index("j0")
    inside = Op("ge", (IndexValue(p - 1, "int64"), Const(0, "int64")), "bool")
    value = Op(
        "mul",
        (Load("w", i * 64 + j * scale, "float32"), Load("x", j * 70 + p - 1, "float32", inside, Const(mask_value, "float32"))),
        "float32",
    )
    sums = Phase((Axis("j0", index(64 // scale)),), reductions=(Reduction(("v0",), op, value, "float32"),))
    store = Phase(stores=(IrStore("out", i * 70 + p, Ref("v0", "float32")),))
    rows = index("s0") if with_symbol else index(16)
    buffers = (
        Buffer("w", "float32", "in", index(16 * 64)), Buffer("x", "float32", "in", index(64 * 70)), Buffer("out", "float32", "out", index(16 * 70)),
    )  # fmt: skip
    return LoopKernel("product", buffers, (Nest((Axis("i0", rows), Axis("i1", index(70))), (sums, store)),), ("s0",) if with_symbol else ())


def _is_contraction(kernel: LoopKernel, target=AVX2) -> bool:
    return contraction_of(kernel.nests[0], kernel, target) is not None


def test_only_what_has_the_form_is_taken() -> None:
    assert _is_contraction(_product()) and _is_contraction(_product(), AVX512)
    assert not _is_contraction(_product(), SSE), "without fused multiply-add"
    assert not _is_contraction(_product(mask_value=1.0)), "what is outside is not zero"
    assert not _is_contraction(_product(scale=2)), "rows with gaps"
    assert not _is_contraction(_product(op="max"))
    assert not _is_contraction(_product(with_symbol=True)), "sizes that are not known"


@needs_fma
@pytest.mark.parametrize("kernel", [_product(), _product(1.0), _product(scale=2)], ids=["form", "ones outside", "gaps"])
def test_agrees_with_the_reference_whether_taken_or_not(kernel: LoopKernel, store) -> None:
    g = torch.Generator().manual_seed(5)
    got = {b.name: torch.randn(b.numel.constant, generator=g) for b in kernel.buffers}
    want = {k: v.double() for k, v in got.items()}
    assert Runner([kernel], store).run(kernel, got) == evaluate(kernel, want, (), wide=True) == 0
    assert (got["out"] - want["out"]).abs().max() <= 1e-6 * want["out"].abs().max()


def test_a_window_is_read_off_index_and_mask() -> None:
    n, line, column, c, h, w = (index(a) for a in ("n", "y", "x", "c", "h", "w"))
    rows, columns = line * 2 + h * 3 - 4, column * 2 + w - 1

    def bound(i, op, limit):
        return Op(op, (IndexValue(i, "int64"), Const(limit, "int64")), "bool")

    conditions = [bound(rows, "ge", 0), bound(rows, "lt", 20), bound(columns, "ge", 0), bound(columns, "lt", 30)]
    mask = conditions[0]
    for each in conditions[1:]:
        mask = Op("logical_and", (mask, each), "bool")
    load = Load("x", n * 6000 + c * 600 + rows * 30 + columns, "float32", mask, Const(0.0, "float32"))
    points = [Axis("n", index(2)), Axis("y", index(10)), Axis("x", index(15))]
    taps = [Axis("c", index(10)), Axis("h", index(3)), Axis("w", index(2))]
    found = window_of(load, points, taps)
    assert found is not None
    assert [i.constant for i in (found.offset, found.image_step, found.channel_step, found.line_step)] == [0, 6000, 600, 30]
    for way, want in ((found.lines, (2, 3, 4, 20)), (found.columns, (2, 1, 1, 30))):
        assert (way.stride, way.dilation, way.pad, way.size.constant) == want
    mixed = Op("logical_and", (mask, bound(rows + columns, "ge", 0)), "bool")
    assert window_of(Load("x", load.index, "float32", mixed, load.other), points, taps) is None


def test_values_that_are_nested_deeper_than_pythons_stack(store):
    def run(x):
        for k in range(200):
            x = x * 0.5 + k
        return (x.sin(),)

    compiled = compile_graph(torch.fx.symbolic_trace(run), [torch.ones(37)], store=store, generators=[CppKernelGenerator()])
    assert "aten::" not in render(compiled.plan)
    torch.testing.assert_close(compiled(torch.ones(37))[0], run(torch.ones(37))[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(), (33,)])
@pytest.mark.parametrize("between", [torch.int64, torch.int32, torch.int16])
def test_numbers_that_were_integers_have_no_negative_zero(store, shape, between):
    """GCC 12 takes the way to an integer and back for a truncation where it need not heed exceptions of floating point."""

    def run(x):
        whole = x.to(between).float()
        return torch.copysign(torch.ones_like(x), whole), whole

    x = torch.full(shape, -0.3)
    compiled = compile_graph(torch.fx.symbolic_trace(run), [x], store=store, generators=[CppKernelGenerator()])
    assert [t.tolist() for t in compiled(x)] == [t.tolist() for t in run(x)]


def test_integers_that_no_float_fits_are_eagers(store):
    def run(x):
        return (x.to(torch.int64).float(),)

    x = torch.full((33,), 1e30)
    compiled = compile_graph(torch.fx.symbolic_trace(run), [x], store=store, generators=[CppKernelGenerator()])
    assert torch.equal(compiled(x)[0], run(x)[0])


def test_parts_of_a_loop_do_not_share_what_a_mask_tells_apart(store):
    """An element that stands still along a padded dimension: the sum was made of it where the padding is, too."""

    def run(a, w):
        padded = F.pad(a, (-1, 2))
        return padded + w, padded

    a, w = torch.arange(16.0).as_strided((2, 8, 33), (8, 1, 0)) + 0, torch.ones(2, 8, 1)
    a = a[..., :1].expand(2, 8, 33)
    compiled = compile_graph(torch.fx.symbolic_trace(run), [a, w], store=store, generators=[CppKernelGenerator()])
    for got, want in zip(compiled(a, w), run(a, w), strict=True):
        assert torch.equal(got, want)
