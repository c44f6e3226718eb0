"""Programs as people write them for accelerators, with what they run on: ``PROGRAMS[name](device)`` gives a function (or module) and the
arguments of several calls. Run by test_device_programs.py on a GPU, or, where there is none, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

Program = Callable[[torch.device], tuple[Any, list[tuple[Any, ...]]]]
PROGRAMS: dict[str, Program] = {}
TRAINED: dict[str, Callable[[torch.device], tuple[nn.Module, list[tuple[Any, ...]]]]] = {}
ON_GPUS: set[str] = set()
"""Programs that need a GPU."""


def program(make: Program) -> Program:
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make


def on_gpu(make: Program) -> Program:
    ON_GPUS.add(make.__name__.replace("_", " "))
    return program(make)


def trained(make: Any) -> Any:
    TRAINED[make.__name__.replace("_", " ")] = make
    return make


def randn(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(device, dtype)


# ---- detection and other data-dependent code -------------------------------------------------------------------------------


@program
def detections(device):
    def f(boxes, scores):
        keep = scores > 0.5
        found, s = boxes[keep], scores[keep]
        order = s.argsort(descending=True)
        found = found[order][:20]
        area = (found[:, 2] - found[:, 0]).clamp(0) * (found[:, 3] - found[:, 1]).clamp(0)
        return found, area, keep.sum()

    return f, [(torch.rand(n, 4).to(device), torch.rand(n).to(device)) for n in (100, 100, 60)]


@program
def nonzero_and_scatter(device):
    def f(x):
        at = torch.nonzero(x > 0)
        out = torch.zeros(x.shape[0], device=x.device)
        return out.index_add(0, at[:, 0], x[at[:, 0], at[:, 1]]), at.shape[0]

    return f, [(randn(device, 8, 9),) for _ in range(3)]


@program
def decisions_on_values(device):
    def f(x):
        if x.sum() > 0:
            return x * 2
        return (x - 1).relu()

    return f, [(randn(device, 9).abs(),), (-randn(device, 9).abs(),), (randn(device, 9).abs(),)]


@program
def items_as_numbers(device):
    def f(x):
        k = int(x.abs().argmax().item())
        return x / x.abs().max().item(), x[:k].sum(), k

    return f, [(randn(device, 12),) for _ in range(3)]


@program
def top_k_and_sort(device):
    def f(x):
        v, i = x.topk(5, dim=-1)
        s = x.sort(dim=0, descending=True)[0]
        return v.softmax(-1), i, s.cumsum(0), x.median(-1).values

    return f, [(randn(device, 7, 40),)]


@program
def unique_and_counts(device):
    return lambda x: (x.unique(return_counts=True), torch.bincount(x, minlength=10) * 2), [(torch.randint(0, 9, (50,)).to(device),)]


# ---- element types ---------------------------------------------------------------------------------------------------------


@program
def half_precision(device):
    f = lambda x, w: F.layer_norm(F.gelu(x @ w) + x, (64,))
    return f, [(randn(device, 32, 64, dtype=torch.float16), randn(device, 64, 64, dtype=torch.float16) * 0.1)]


@program
def brain_floats(device):
    f = lambda x, w: (x @ w).softmax(-1).sum(0) + x.exp().mean()
    return f, [(randn(device, 32, 64, dtype=torch.bfloat16), randn(device, 64, 64, dtype=torch.bfloat16) * 0.1)]


@program
def complex_numbers(device):
    def f(x, y):
        z = torch.complex(x, y)
        return torch.view_as_real(z * z.conj()), z.abs(), z.angle().cos(), torch.fft.ifft(torch.fft.fft(z) * 2).real

    return f, [(randn(device, 8, 16), randn(device, 8, 16))]


@program
def complex_chains_and_reductions(device):
    def f(z, w, real):
        turned = z * torch.exp(1j * real) + w.conj() / (z + 3)
        normed = turned / turned.abs().clamp_min(1e-3)
        return (
            normed.sum(-1),
            turned.mean(0),
            torch.where(real > 0, turned, w),
            torch.stack([turned.real, turned.imag]).amax(-1),
            z.sqrt() * w.log().imag,
        )

    return f, [tuple(torch.complex(randn(device, 33, 70), randn(device, 33, 70)) for _ in range(2)) + (randn(device, 33, 70),)]


@program
def complex_views_and_products(device):
    def rotary(x, freqs):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * freqs).flatten(-2).type_as(x)

    def f(x, freqs, matrix):
        y = rotary(x, freqs)
        spectrum = torch.fft.rfft(y.float()) * torch.polar(torch.ones_like(freqs.real[:, :1]), freqs.angle()[:, :1])
        return y, (matrix @ matrix.mH).real, (spectrum * 2).abs(), matrix.t().contiguous() - matrix

    freqs = torch.polar(torch.ones(12, 16), torch.randn(12, 16)).to(device)
    return f, [(randn(device, 2, 12, 32), freqs, torch.complex(randn(device, 9, 9), randn(device, 9, 9)))]


@program
def whole_numbers(device):
    f = lambda x: (x // 3, x % 5, (x << 2) ^ 7, x.bitwise_and(12), (x > 3).sum(-1), x.to(torch.uint8) + 250)
    return f, [(torch.randint(-50, 50, (9, 11)).to(device),)]


@program
def doubles(device):
    return lambda x: (torch.linalg.inv(x @ x.mT + torch.eye(8, device=x.device, dtype=x.dtype)).sum(-1), x.double().std()), [
        (randn(device, 3, 8, 8, dtype=torch.float64),)
    ]


@program
def floats_of_eight_bits(device):
    def f(x):
        small = (x * 0.5).to(torch.float8_e4m3fn)
        return small.to(torch.float32) * 2, small.float().sum()

    return f, [(randn(device, 16, 16),)]


# ---- layouts ---------------------------------------------------------------------------------------------------------------


@program
def channels_last(device):
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.AdaptiveAvgPool2d(2)
    ).eval()
    net = net.to(device, memory_format=torch.channels_last)
    return net, [(randn(device, 4, 3, 16, 16).to(memory_format=torch.channels_last),), (randn(device, 4, 3, 16, 16),)]


@program
def strided_and_misaligned(device):
    def f(x):
        y = x[1:, 1::2]
        return y.softmax(-1), (y.t() @ y).relu(), y[::2].cumsum(-1), x.flatten()[3:1000].sin()

    return f, [(randn(device, 65, 67),)]


@program
def sparse_matrices(device):
    at = torch.tensor([[0, 1, 2, 2], [1, 0, 2, 0]])
    sparse = torch.sparse_coo_tensor(at, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 3)).coalesce().to(device)
    return lambda x: torch.sparse.mm(sparse, x.relu()) + 1, [(randn(device, 3, 5),)]


@program
def named_memory_formats(device):
    return lambda x: (x.contiguous(memory_format=torch.channels_last) * 2, x.permute(0, 2, 3, 1).contiguous(), x.mT.clone()), [
        (randn(device, 2, 3, 8, 9),)
    ]


@program
def writes_in_place(device):
    def f(x, y):
        x.mul_(2).add_(y[0])
        y[1:3] = x[0].sum()
        y.index_fill_(0, torch.tensor([0], device=y.device), 3.0)
        return x.sin(), y

    return f, [(randn(device, 4, 5), randn(device, 6, 5)) for _ in range(2)]


# ---- layers ----------------------------------------------------------------------------------------------------------------


@program
def embedding_bags(device):
    bag = nn.EmbeddingBag(50, 12, mode="mean").to(device)
    return bag, [(torch.randint(0, 50, (30,)).to(device), torch.tensor([0, 4, 11, 20]).to(device)) for _ in range(2)]


@program
def long_short_term_memory(device):
    return nn.LSTM(8, 16, num_layers=2, batch_first=True).to(device).eval(), [(randn(device, 3, 7, 8),), (randn(device, 3, 7, 8),)]


@program
def gated_recurrent_unit(device):
    return nn.GRU(8, 16, bidirectional=True).to(device).eval(), [(randn(device, 7, 3, 8),)]


@program
def attention_with_masks(device):
    def f(q, k, v, mask):
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (
            a,
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask.float() * -3),
        )

    return f, [
        (
            *(randn(device, 2, 4, 24, 32) for _ in range(3)),
            (torch.rand(24, 24) > 0.3).to(device) | torch.eye(24, dtype=torch.bool, device=device),
        )
    ]


@program
def transformer_layers(device):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True).to(device).eval()
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), [(randn(device, 3, 10, 32),)]


@program
def resampling(device):
    def f(x):
        y = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return (
            F.avg_pool2d(y, 3),
            F.interpolate(x, size=(5, 7), mode="nearest"),
            F.grid_sample(x, torch.zeros(2, 4, 4, 2, device=x.device), align_corners=True),
        )

    return f, [(randn(device, 2, 3, 8, 9),)]


@program
def three_dimensions(device):
    return nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2)).to(device).eval(), [
        (randn(device, 2, 2, 8, 9, 10),)
    ]


@program
def transposed_convolutions(device):
    return nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=4)).to(device).eval(), [
        (randn(device, 2, 4, 9, 9),)
    ]


# ---- language models -------------------------------------------------------------------------------------------------------


class Cached(nn.Module):
    """A decoder's layer that keeps keys and values of what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(40, 32), nn.Linear(32, 96), nn.Linear(32, 40)

    def forward(self, tokens: torch.Tensor, past: Any = None) -> Any:
        x = self.embed(tokens)
        q, k, v = (t.view(*t.shape[:2], 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(a.transpose(1, 2).flatten(2) + x), (k, v)


@program
def generation_with_a_growing_cache(device):
    model = Cached().to(device).eval()

    def generate(step, tokens):
        logits, past = step(tokens)
        out = [logits[:, -1].argmax(-1, keepdim=True)]
        for _ in range(6):
            logits, past = step(out[-1], past)
            out.append(logits[:, -1].argmax(-1, keepdim=True))
        return torch.cat(out, 1), logits

    generate.step = model  # type: ignore[attr-defined]
    return generate, [(torch.randint(0, 40, (2, n)).to(device),) for n in (5, 7)]


@program
def a_cache_written_in_place(device):
    def f(cache, x, at):
        cache[:, at] = x
        return (cache * x[:, None]).sum(-1).softmax(-1)

    cache = torch.zeros(2, 8, 4, device=device)
    return f, [(cache.clone(), randn(device, 2, 4), n) for n in (0, 1, 2, 5)]


# ---- devices inside the program --------------------------------------------------------------------------------------------


@program
def moved_inside(device):
    return lambda x: (x.to(device) * 2).cpu().relu() + 1, [(torch.randn(5, 6),)]


@program
def to_the_processor_in_the_middle(device):
    def f(x):
        y = (x @ x).cpu()
        z = y.softmax(-1) + torch.arange(8)
        return z.to(x.device) * x, y

    return f, [(randn(device, 8, 8),)]


@program
def made_inside(device):
    def f(n):
        grid = torch.arange(n, device=device, dtype=torch.float32)
        return torch.outer(grid, grid.flip(0)).tril() + torch.eye(n, device=device), torch.full((n,), 2, device=device).cumsum(0)

    return f, [(6,), (6,), (9,)]


@program
def numbers_of_the_processor(device):
    return lambda x, s: (x * s + s.sqrt(), torch.where(x > s, x, s)), [
        (randn(device, 7, 5), torch.tensor(2.0)),
        (randn(device, 7, 5), torch.tensor(3.0)),
    ]


@program
def sizes_that_change(device):
    return lambda x, w: F.gelu(x @ w).softmax(-1).sum(0), [
        (randn(device, n, 32), randn(device, 32, 16)) for n in (8, 8, 16, 24, 31, 1, 100)
    ]


@on_gpu
def streams(device):
    side = torch.cuda.Stream(device)

    def f(x):
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = (y @ y).relu()
        torch.cuda.current_stream().wait_stream(side)
        z.record_stream(torch.cuda.current_stream())
        return z + y

    return f, [(randn(device, 64, 64),) for _ in range(3)]


@on_gpu
def events_and_synchronisation(device):
    def f(x):
        start = torch.cuda.Event(enable_timing=True)
        start.record()
        y = x.softmax(-1)
        torch.cuda.synchronize()
        return y * 2, torch.cuda.current_device(), start.query()

    return f, [(randn(device, 9, 9),)]


@on_gpu
def pinned_memory(device):
    def f(x):
        y = x.to(device, non_blocking=True) * 2
        out = torch.empty(y.shape, pin_memory=True)
        out.copy_(y, non_blocking=True)
        torch.cuda.synchronize()
        return out, y

    return f, [(torch.randn(33, 5).pin_memory(),)]


@on_gpu
def autocast(device):
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device)

    def f(x):
        with torch.autocast("cuda", torch.float16):
            y = net(x)
        return y.float().softmax(-1), y

    return f, [(randn(device, 16, 32),)]


@on_gpu
def a_tensor_in_managed_code(device):
    return lambda x: (x.is_cuda, x.device.index, x.get_device(), x.sin()), [(randn(device, 4),)]


# ---- random numbers --------------------------------------------------------------------------------------------------------


@program
def random_numbers_of_a_generator(device):
    def f(x, g):
        return x + torch.rand(x.shape, generator=g, device=x.device)

    return f, [(randn(device, 6), torch.Generator(device).manual_seed(k)) for k in (1, 1)]


# ---- training --------------------------------------------------------------------------------------------------------------


@trained
def plain_layers(device):
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(device), [
        (randn(device, 8, 16),) for _ in range(4)
    ]


@trained
def convolutions_and_batch_norms(device):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 25, 4)
    ).to(device)
    return net, [(randn(device, 4, 3, 16, 16),) for _ in range(4)]


@trained
def images_channels_last(device):
    net, calls = convolutions_and_batch_norms(device)
    return net.to(memory_format=torch.channels_last), [(x.to(memory_format=torch.channels_last),) for (x,) in calls]


@trained
def a_recurrent_layer(device):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

        def forward(self, x):
            return self.out(self.cells(x)[0][:, -1])

    return Last().to(device), [(randn(device, 3, 5, 8),) for _ in range(3)]


@trained
def bags_of_embeddings(device):
    net = nn.Sequential(nn.EmbeddingBag(30, 16), nn.Linear(16, 4)).to(device)
    return net, [(torch.randint(0, 30, (6, 5)).to(device),) for _ in range(3)]


@trained
def complex_filters(device):
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.out = nn.Parameter(torch.randn(9, dtype=torch.complex64)), nn.Linear(16, 4)

        def forward(self, x):
            with torch.autocast(x.device.type, enabled=False):
                z = torch.fft.rfft(x.float()) * self.weight
                x = torch.fft.irfft(z * torch.sigmoid(z.abs()), n=16)
            return self.out(x)

    return Filter().to(device), [(randn(device, 5, 16),) for _ in range(3)]


@trained
def attention(device):
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.out = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 4)

        def forward(self, x):
            return self.out(self.attention(x, x, x, need_weights=False)[0]).mean(1)

    return Attend().to(device), [(randn(device, 3, 6, 16),) for _ in range(3)]
