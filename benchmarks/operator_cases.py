"""Operators and small modules at usual sizes, as rows: a name, what is called, and its arguments, for ``operators.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Callable[[], Case]] = {}


def rand(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


def draw(top: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, top, sizes)


def case(name: str, function: Callable[..., Any], *sizes: tuple[int, ...], more: Callable[[], tuple[Any, ...]] = tuple) -> None:
    """A function of random tensors of these ``sizes`` and of what ``more`` gives."""
    CASES[name] = lambda: (function, (*(rand(*size) for size in sizes), *more()))


def module(name: str, build: Callable[[], nn.Module], *sizes: tuple[int, ...], last: bool = False) -> None:
    """A module called with random tensors; ``last``: channels-last, both its weights and what it is given."""

    def built() -> Case:
        made, given = build(), tuple(rand(*size) for size in sizes)
        if last:
            made = made.to(memory_format=torch.channels_last)
            given = tuple(x.to(memory_format=torch.channels_last) for x in given)
        return made, given

    CASES[name] = built


# Convolutions.
for cin, cout, kernel, length, more in (
    (16, 32, 3, 1000, {}),
    (64, 64, 3, 512, {}),
    (80, 384, 3, 500, {}),
    (1, 64, 10, 8000, {"stride": 5}),
    (64, 128, 4, 512, {"stride": 2}),
    (64, 64, 3, 512, {"dilation": 4}),
    (256, 256, 1, 400, {}),
    (128, 128, 5, 256, {"groups": 128}),
):
    said = ",".join(f"{k}={v}" for k, v in more.items())
    module(
        f"conv1d {cin}-{cout} k{kernel} l{length} {said}".strip(),
        lambda a=(cin, cout, kernel), m=more: nn.Conv1d(*a, **m),
        (4, cin, length),
    )
for cin, cout, kernel, size, more in (
    (3, 32, 3, 64, {"padding": 1}),
    (3, 64, 7, 112, {"stride": 2, "padding": 3}),
    (3, 192, 16, 128, {"stride": 16}),
    (64, 64, 3, 28, {"padding": 1}),
    (64, 128, 1, 28, {}),
    (128, 128, 3, 14, {"stride": 2, "padding": 1}),
    (64, 64, 3, 28, {"padding": 2, "dilation": 2}),
    (64, 64, 3, 28, {"padding": 1, "groups": 64}),
    (96, 96, 5, 28, {"padding": 2, "groups": 96, "stride": 2}),
    (64, 64, 3, 28, {"padding": 1, "groups": 8}),
    (1, 16, 5, 28, {}),
    (32, 32, 3, 32, {"padding": 1, "padding_mode": "reflect"}),
    (32, 32, 3, 32, {"padding": 1, "padding_mode": "circular"}),
):
    said = ",".join(f"{k}={v}" for k, v in more.items())
    for last in (False, True):
        module(
            f"conv2d {cin}-{cout} k{kernel} s{size} {said}{' last' if last else ''}",
            lambda a=(cin, cout, kernel), m=more: nn.Conv2d(*a, **m),
            (2, cin, size, size),
            last=last,
        )
module("conv3d 8-16 k3", lambda: nn.Conv3d(8, 16, 3, padding=1), (1, 8, 16, 24, 24))
module("conv3d 3-32 k3 stride 2", lambda: nn.Conv3d(3, 32, 3, stride=2), (1, 3, 8, 56, 56))
module("conv_transpose1d 64-32 k4 stride 2", lambda: nn.ConvTranspose1d(64, 32, 4, 2, 1), (2, 64, 256))
module("conv_transpose2d 64-32 k4 stride 2", lambda: nn.ConvTranspose2d(64, 32, 4, 2, 1), (2, 64, 16, 16))
module("conv_transpose2d 32-32 k2 stride 2", lambda: nn.ConvTranspose2d(32, 32, 2, 2), (2, 32, 28, 28))
module("conv_transpose2d 16-16 k3 depthwise", lambda: nn.ConvTranspose2d(16, 16, 3, 2, groups=16), (2, 16, 28, 28))
module("conv_transpose3d 8-8 k2 stride 2", lambda: nn.ConvTranspose3d(8, 8, 2, 2), (1, 8, 8, 12, 12))
case("unfold k3", lambda x: F.unfold(x, 3, padding=1), (2, 16, 28, 28))
case("fold k3", lambda x: F.fold(x, (28, 28), 3, padding=1), (2, 144, 784))

# Poolings.
for last in (False, True):
    mark = " last" if last else ""
    module(f"max_pool2d 2{mark}", lambda: nn.MaxPool2d(2), (2, 32, 56, 56), last=last)
    module(f"max_pool2d 3 stride 2{mark}", lambda: nn.MaxPool2d(3, 2, 1), (2, 64, 56, 56), last=last)
    module(f"max_pool2d 5 stride 1{mark}", lambda: nn.MaxPool2d(5, 1, 2), (2, 32, 20, 20), last=last)
    module(f"avg_pool2d 2{mark}", lambda: nn.AvgPool2d(2), (2, 64, 28, 28), last=last)
    module(f"avg_pool2d 3 stride 1{mark}", lambda: nn.AvgPool2d(3, 1, 1), (2, 64, 28, 28), last=last)
    module(f"adaptive_avg_pool2d 1{mark}", lambda: nn.AdaptiveAvgPool2d(1), (4, 256, 14, 14), last=last)
    module(f"adaptive_avg_pool2d 6{mark}", lambda: nn.AdaptiveAvgPool2d(6), (4, 64, 27, 27), last=last)
    module(f"adaptive_max_pool2d 7{mark}", lambda: nn.AdaptiveMaxPool2d(7), (4, 64, 27, 27), last=last)
module("max_pool1d 2", lambda: nn.MaxPool1d(2), (4, 64, 512))
module("max_pool1d 3 stride 2", lambda: nn.MaxPool1d(3, 2, 1), (4, 64, 512))
module("avg_pool1d 4", lambda: nn.AvgPool1d(4), (4, 64, 512))
module("max_pool3d 2", lambda: nn.MaxPool3d(2), (1, 16, 16, 28, 28))
module("avg_pool3d 2", lambda: nn.AvgPool3d(2), (1, 16, 16, 28, 28))
module("adaptive_avg_pool1d 1", lambda: nn.AdaptiveAvgPool1d(1), (4, 128, 512))
module("lp_pool2d 2", lambda: nn.LPPool2d(2, 2), (2, 32, 28, 28))
case("max_pool2d with indices and unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (2, 32, 28, 28))

# Pads and shapes.
for mode in ("constant", "reflect", "replicate", "circular"):
    case(f"pad {mode} 1", lambda x, m=mode: F.pad(x, (1, 1, 1, 1), mode=m), (2, 32, 56, 56))
    case(f"pad {mode} 3", lambda x, m=mode: F.pad(x, (3, 3, 3, 3), mode=m), (1, 3, 224, 224))
    case(f"pad {mode} 1d", lambda x, m=mode: F.pad(x, (4, 4), mode=m), (4, 64, 1000))
    case(f"pad {mode} 3d", lambda x, m=mode: F.pad(x, (1,) * 6, mode=m), (1, 8, 16, 24, 24))
case("cat columns", lambda a, b, c: torch.cat([a, b, c], 1), (64, 256), (64, 512), (64, 128))
case("cat rows", lambda a, b: torch.cat([a, b], 0), (512, 256), (512, 256))
case("cat channels", lambda a, b: torch.cat([a, b], 1), (2, 32, 56, 56), (2, 32, 56, 56))
case("stack last", lambda a, b: torch.stack([a, b], -1), (512, 512), (512, 512))
case("transpose copy", lambda x: x.transpose(0, 1).contiguous(), (768, 768))
case("permute copy heads", lambda x: x.view(4, 128, 12, 64).permute(0, 2, 1, 3).contiguous(), (4, 128, 768))
case("permute copy channels", lambda x: x.permute(0, 2, 3, 1).contiguous(), (2, 64, 56, 56))
case("permute copy back", lambda x: x.permute(0, 3, 1, 2).contiguous(), (2, 56, 56, 64))
case("roll", lambda x: torch.roll(x, (3, 3), (1, 2)), (2, 56, 56, 96))
case("flip", lambda x: torch.flip(x, (-1,)), (64, 32, 224))
case("repeat", lambda x: x.repeat(1, 4), (512, 128))
case("repeat_interleave", lambda x: x.repeat_interleave(4, 1), (2, 8, 128, 64))
case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (1, 64, 48, 48))
case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (1, 16, 96, 96))
case("tril", lambda x: torch.tril(x), (512, 512))
case("chunk and gate", lambda x: (lambda a, b: a * torch.sigmoid(b))(*x.chunk(2, -1)), (512, 1024))
case("window partition", lambda x: x.view(2, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96), (2, 56, 56, 96))


# Sampling.
def grid(n: int, h: int, w: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.rand(n, h, w, 2) * 2.1 - 1.05,)


for mode in ("bilinear", "nearest", "bicubic"):
    for pad in ("zeros", "border", "reflection"):
        if mode == "bilinear" or pad == "zeros":
            call = lambda x, g, m=mode, p=pad: F.grid_sample(x, g, m, p, align_corners=False)
            case(f"grid_sample {mode} {pad} 3", call, (2, 3, 64, 64), more=grid(2, 64, 64))
            case(f"grid_sample {mode} {pad} 32", call, (2, 32, 32, 32), more=grid(2, 32, 32))
case("grid_sample 1 channel", lambda x, g: F.grid_sample(x, g, align_corners=True), (16, 1, 28, 28), more=grid(16, 28, 28))
case(
    "grid_sample 3d",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    (1, 4, 16, 24, 24),
    more=lambda: (torch.rand(1, 16, 24, 24, 3) * 2 - 1,),
)
case(
    "affine_grid and sample",
    lambda x, t: F.grid_sample(x, F.affine_grid(t, x.shape, False), align_corners=False),
    (8, 3, 32, 32),
    (8, 2, 3),
)
for mode, sizes in (("nearest", (56, 56)), ("bilinear", (56, 56)), ("bicubic", (56, 56)), ("bilinear", (40, 40)), ("area", (14, 14))):
    call = lambda x, m=mode, s=sizes: F.interpolate(x, s, mode=m)
    case(f"interpolate {mode} {sizes[0]}", call, (2, 32, 28, 28))
    CASES[f"interpolate {mode} {sizes[0]} last"] = lambda c=call: (c, (rand(2, 32, 28, 28).to(memory_format=torch.channels_last),))
case("interpolate linear 1d", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (4, 64, 256))
case("interpolate trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (1, 8, 8, 16, 16))
case("interpolate antialias", lambda x: F.interpolate(x, (112, 112), mode="bilinear", antialias=True), (1, 3, 224, 224))

# Norms.
for rows, width in ((512, 768), (64, 4096), (4096, 64), (1024, 257)):
    module(f"layer_norm {rows}x{width}", lambda w=width: nn.LayerNorm(w), (rows, width))
    case(f"rms_norm {rows}x{width}", lambda x, g, w=width: F.rms_norm(x, (w,), g), (rows, width), (width,))
for last in (False, True):
    mark = " last" if last else ""
    module(f"batch_norm2d train{mark}", lambda: nn.BatchNorm2d(64), (4, 64, 28, 28), last=last)
    module(f"batch_norm2d eval{mark}", lambda: nn.BatchNorm2d(64).eval(), (4, 64, 28, 28), last=last)
    module(f"group_norm 8{mark}", lambda: nn.GroupNorm(8, 64), (2, 64, 28, 28), last=last)
    module(f"group_norm 1{mark}", lambda: nn.GroupNorm(1, 64), (2, 64, 28, 28), last=last)
    module(f"instance_norm{mark}", lambda: nn.InstanceNorm2d(64, affine=True), (2, 64, 28, 28), last=last)
module("batch_norm1d rows", lambda: nn.BatchNorm1d(512), (256, 512))
module("batch_norm1d length", lambda: nn.BatchNorm1d(64), (8, 64, 512))
module("local_response_norm", lambda: nn.LocalResponseNorm(5), (2, 64, 28, 28))
case("normalize rows", lambda x: F.normalize(x, dim=-1), (512, 384))
case("normalize columns", lambda x: F.normalize(x, dim=0), (512, 384))

# Softmax and losses.
for rows, width in ((512, 128), (64, 10000), (8192, 10), (1536, 197)):
    case(f"softmax {rows}x{width}", lambda x: torch.softmax(x, -1), (rows, width))
    case(f"log_softmax {rows}x{width}", lambda x: torch.log_softmax(x, -1), (rows, width))
    case(f"cross_entropy {rows}x{width}", lambda x, t: F.cross_entropy(x, t), (rows, width), more=lambda r=rows, w=width: (draw(w, r),))
case("softmax columns", lambda x: torch.softmax(x, 0), (128, 512))
case("softmax channels", lambda x: torch.softmax(x, 1), (2, 21, 64, 64))
case("logsumexp", lambda x: torch.logsumexp(x, -1), (512, 512))
case("cross_entropy images", lambda x, t: F.cross_entropy(x, t), (2, 21, 64, 64), more=lambda: (draw(21, 2, 64, 64),))
case("cross_entropy smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (256, 1000), more=lambda: (draw(1000, 256),))
case("nll_loss", lambda x, t: F.nll_loss(x, t), (4096, 100), more=lambda: (draw(100, 4096),))
case("mse_loss", F.mse_loss, (256, 1024), (256, 1024))
case("l1_loss", F.l1_loss, (256, 1024), (256, 1024))
case("smooth_l1_loss", F.smooth_l1_loss, (256, 1024), (256, 1024))
case("huber_loss", F.huber_loss, (256, 1024), (256, 1024))
case("bce logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y), (256, 1024), more=lambda: (torch.rand(256, 1024),))
case("kl_div", lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="batchmean"), (256, 512), more=lambda: (torch.rand(256, 512),))
case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b), (512, 384), (512, 384))
case("triplet loss", lambda a, b, c: F.triplet_margin_loss(a, b, c), (256, 128), (256, 128), (256, 128))
case("pairwise cdist", lambda a, b: torch.cdist(a, b), (128, 64), (256, 64))
case(
    "ctc_loss",
    lambda x, t: F.ctc_loss(F.log_softmax(x, -1), t, (100,) * 8, (20,) * 8),
    (100, 8, 40),
    more=lambda: (draw(39, 8, 20) + 1,),
)

# Tables and indices.
CASES["embedding 1000x64"] = lambda: (nn.Embedding(1000, 64), (draw(1000, 32, 128),))
CASES["embedding 30000x384"] = lambda: (nn.Embedding(30000, 384), (draw(30000, 8, 128),))
CASES["embedding padded"] = lambda: (nn.Embedding(5000, 128, padding_idx=0), (draw(5000, 16, 64),))
for mode in ("sum", "mean", "max"):
    CASES[f"embedding_bag {mode}"] = lambda m=mode: (nn.EmbeddingBag(10000, 64, mode=m), (draw(10000, 256, 20),))
CASES["embedding_bag offsets"] = lambda: (nn.EmbeddingBag(10000, 64, mode="sum"), (draw(10000, 4096), torch.arange(0, 4096, 16)))
CASES["embedding_bag single"] = lambda: (nn.EmbeddingBag(100000, 16, mode="sum"), (draw(100000, 512), torch.arange(512)))
case("gather rows", lambda x, i: x.gather(1, i), (512, 1000), more=lambda: (draw(1000, 512, 64),))
case("gather columns", lambda x, i: x.gather(0, i), (1000, 512), more=lambda: (draw(1000, 64, 512),))
case("index_select 0", lambda x, i: x.index_select(0, i), (4000, 64), more=lambda: (draw(4000, 8000),))
case("index_select 1", lambda x, i: x.index_select(1, i), (64, 4000), more=lambda: (draw(4000, 2000),))
case("index rows", lambda x, i: x[i], (4000, 64), more=lambda: (draw(4000, 8000),))
case("index pairs", lambda x, i, j: x[i, j], (512, 512), more=lambda: (draw(512, 20000), draw(512, 20000)))
case("index batch", lambda x, i: x[torch.arange(64), i], (64, 128, 256), more=lambda: (draw(128, 64),))
case("index mask", lambda x, m: x[m], (512, 512), more=lambda: (torch.rand(512, 512) > 0.5,))
case("scatter_add", lambda x, s, i: x.scatter_add(0, i, s), (1000, 64), (4000, 64), more=lambda: (draw(1000, 4000, 64),))
case(
    "scatter_add expanded",
    lambda x, s, i: x.scatter_add(0, i[:, None].expand_as(s), s),
    (1000, 64),
    (4000, 64),
    more=lambda: (draw(1000, 4000),),
)
case("scatter", lambda x, s, i: x.scatter(1, i, s), (256, 1000), (256, 64), more=lambda: (torch.rand(256, 1000).argsort(1)[:, :64],))
case("scatter_reduce amax", lambda x, s, i: x.scatter_reduce(0, i, s, "amax"), (1000, 64), (4000, 64), more=lambda: (draw(1000, 4000, 64),))
case("index_add", lambda x, s, i: x.index_add(0, i, s), (1000, 64), (8000, 64), more=lambda: (draw(1000, 8000),))
case("index_add 1", lambda x, s, i: x.index_add(1, i, s), (64, 1000), (64, 4000), more=lambda: (draw(1000, 4000),))
case("index_put", lambda x, s, i: x.index_put((i,), s), (4000, 64), (1000, 64), more=lambda: (torch.randperm(4000)[:1000],))
case("index_put accumulate", lambda x, s, i: x.index_put((i,), s, True), (1000, 64), (4000, 64), more=lambda: (draw(1000, 4000),))
case("index_copy", lambda x, s, i: x.index_copy(0, i, s), (4000, 64), (1000, 64), more=lambda: (torch.randperm(4000)[:1000],))
case("masked_fill", lambda x, m: x.masked_fill(m, -1e9), (8, 128, 1024), more=lambda: (torch.rand(8, 128, 1024) > 0.5,))
case("where", lambda a, b, m: torch.where(m, a, b), (512, 1024), (512, 1024), more=lambda: (torch.rand(512, 1024) > 0.5,))
case("masked_select", lambda x, m: x.masked_select(m), (512, 512), more=lambda: (torch.rand(512, 512) > 0.5,))
case("one_hot", lambda x, i: x * F.one_hot(i, 100), (4096, 100), more=lambda: (draw(100, 4096),))
case("bincount", lambda i: torch.bincount(i, minlength=1000), more=lambda: (draw(1000, 100000),))
case("nonzero", lambda x: (x > 1).nonzero(), (512, 512))
case("searchsorted", lambda a, b: torch.searchsorted(a.sort().values, b), (1000,), (20000,))
case("bucketize", lambda x: torch.bucketize(x, torch.linspace(-3, 3, 64)), (100000,))
case("take_along", lambda x, i: torch.take_along_dim(x, i, 1), (512, 256), more=lambda: (draw(256, 512, 32),))

# Scans, sorts.
for dim in (0, 1):
    case(f"cumsum {dim}", lambda x, d=dim: x.cumsum(d), (512, 512))
    case(f"cumprod {dim}", lambda x, d=dim: (0.99 + x.sigmoid() / 50).cumprod(d), (512, 256))
    case(f"logcumsumexp {dim}", lambda x, d=dim: x.logcumsumexp(d), (256, 256))
    case(f"cummax {dim}", lambda x, d=dim: x.cummax(d).values, (512, 256))
    case(f"sort {dim}", lambda x, d=dim: x.sort(d).values, (256, 512))
    case(f"argsort {dim}", lambda x, d=dim: x.argsort(d), (256, 512))
    case(f"topk {dim}", lambda x, d=dim: x.topk(8, d).values, (256, 512))
case("cumsum long", lambda x: x.cumsum(0), (200000,))
case("sort long", lambda x: x.sort().values, (50000,))
case("topk wide", lambda x: x.topk(40).values, (4, 50000))
case("median", lambda x: x.median(-1).values, (256, 501))
case("kthvalue", lambda x: x.kthvalue(20, -1).values, (256, 512))
case("unique", lambda x: torch.unique(x), more=lambda: (draw(1000, 20000),))
case("multinomial", lambda x: torch.multinomial(x.softmax(-1), 1), (64, 5000))

# Recurrent.
for name, kind in (("rnn", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)):
    for inputs, hidden, steps, batch, more in (
        (64, 128, 32, 8, {}),
        (128, 256, 50, 16, {"num_layers": 2}),
        (64, 64, 40, 4, {"bidirectional": True}),
    ):
        said = ",".join(f"{k}={v}" for k, v in more.items())
        module(
            f"{name} {inputs}-{hidden} x{steps} b{batch} {said}".strip(),
            lambda a=(inputs, hidden), k=kind, m=more: k(*a, batch_first=True, **m),
            (batch, steps, inputs),
        )
CASES["lstm cell"] = lambda: (nn.LSTMCell(128, 256), (rand(32, 128), (rand(32, 256), rand(32, 256))))
CASES["gru cell"] = lambda: (nn.GRUCell(128, 256), (rand(32, 128), rand(32, 256)))

# Products.
for rows, inner, columns in (
    (1, 768, 768),
    (1, 768, 3072),
    (4, 1024, 4096),
    (16, 768, 768),
    (64, 512, 512),
    (512, 768, 768),
    (32, 13, 64),
    (256, 100, 10),
):
    module(f"linear {rows}x{inner}x{columns}", lambda a=(inner, columns): nn.Linear(*a), (rows, inner))
case("matmul", lambda a, b: a @ b, (256, 256), (256, 256))
case("matmul vector", lambda a, b: a @ b, (2048, 1024), (1024,))
case("matmul transposed", lambda a, b: a.T @ b, (512, 256), (512, 256))
case("bmm", lambda a, b: torch.bmm(a, b), (32, 64, 64), (32, 64, 64))
case("bmm small", lambda a, b: torch.bmm(a, b), (512, 8, 16), (512, 16, 8))
case("bmm one row", lambda a, b: torch.bmm(a, b), (96, 1, 64), (96, 64, 256))
case("einsum bhid,bhjd", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), (2, 8, 64, 64), (2, 8, 64, 64))
case("einsum outer", lambda a, b: torch.einsum("bi,bj->bij", a, b), (64, 64), (64, 64))
case("einsum three", lambda a, b, c: torch.einsum("bi,ij,bj->b", a, b, c), (64, 128), (128, 128), (64, 128))
case("einsum bilinear", lambda a, b, w: torch.einsum("bi,oij,bj->bo", a, w, b), (32, 64), (32, 64), (16, 64, 64))
case("baddbmm", lambda a, b, c: torch.baddbmm(c, a, b), (16, 64, 64), (16, 64, 64), (16, 64, 64))
case("outer", torch.outer, (512,), (512,))
case("dot", torch.dot, (100000,), (100000,))
case("interaction dlrm", lambda x: torch.bmm(x, x.transpose(1, 2)).flatten(1), (128, 27, 16))


# Attention.
class SelfAttention(nn.MultiheadAttention):
    def __init__(self) -> None:
        super().__init__(256, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


for batch, heads, length, width in ((2, 8, 128, 64), (1, 12, 512, 64), (8, 4, 49, 32)):
    shape = (batch, heads, length, width)
    case(f"sdpa {batch}x{heads}x{length}x{width}", F.scaled_dot_product_attention, shape, shape, shape)
    case(
        f"sdpa causal {batch}x{heads}x{length}x{width}",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        shape,
        shape,
        shape,
    )
    case(
        f"attention by hand {batch}x{heads}x{length}x{width}",
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v,
        shape,
        shape,
        shape,
    )
case(
    "sdpa mask",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    *((2, 8, 128, 64),) * 3,
    more=lambda: (torch.rand(2, 1, 128, 128) > 0.2,),
)
case("sdpa one query", F.scaled_dot_product_attention, (1, 16, 1, 64), (1, 16, 512, 64), (1, 16, 512, 64))
module("multihead_attention", SelfAttention, (4, 64, 256))
module("transformer layer", lambda: nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True), (4, 64, 256))

# Reductions.
for name, call in (
    ("sum", lambda x, d: x.sum(d)),
    ("mean", lambda x, d: x.mean(d)),
    ("amax", lambda x, d: x.amax(d)),
    ("max", lambda x, d: x.max(d).values),
    ("argmax", lambda x, d: x.argmax(d)),
    ("var", lambda x, d: x.var(d)),
    ("prod", lambda x, d: (0.99 + x.sigmoid() / 50).prod(d)),
    ("norm", lambda x, d: x.norm(dim=d)),
    ("any", lambda x, d: (x > 3).any(d)),
):
    for dim in (0, 1, 2, (0, 2), (0, 1)):
        if isinstance(dim, int) or name in ("sum", "mean", "amax", "var", "norm"):
            case(f"{name} {dim}", lambda x, c=call, d=dim: c(x, d), (32, 64, 128))
    case(f"{name} short", lambda x, c=call: c(x, -1), (8192, 16))
    case(f"{name} long", lambda x, c=call: c(x, -1), (4, 100000))
case("sum all", lambda x: x.sum(), (512, 1024))

# Points.
for name, call in (
    ("gelu", F.gelu),
    ("gelu tanh", lambda x: F.gelu(x, approximate="tanh")),
    ("silu", F.silu),
    ("relu", F.relu),
    ("tanh", torch.tanh),
    ("sigmoid", torch.sigmoid),
    ("exp", torch.exp),
    ("log", lambda x: torch.log(x.abs())),
    ("sin", torch.sin),
    ("erf", torch.erf),
    ("softplus", F.softplus),
    ("mish", F.mish),
    ("elu", F.elu),
    ("hardswish", F.hardswish),
    ("pow", lambda x: x.abs() ** 1.5),
    ("sqrt", lambda x: x.abs().sqrt()),
    ("lgamma", lambda x: torch.lgamma(x.abs())),
    ("digamma", lambda x: torch.digamma(x.abs() + 1)),
    ("atan2", lambda x: torch.atan2(x, x + 1)),
    ("remainder", lambda x: torch.remainder(x, 0.7)),
    ("round", torch.round),
    ("clamp", lambda x: x.clamp(-1, 1)),
    ("erfinv", lambda x: torch.erfinv(x.tanh())),
    ("add", lambda x: x + 1),
):
    case(name, call, (512, 1024))
case("add tensors", torch.add, (512, 1024), (512, 1024))
case("add small", torch.add, (64, 64), (64, 64))
case("add row", torch.add, (512, 1024), (1024,))
case("add column", torch.add, (512, 1024), (512, 1))
case("add transposed", lambda a, b: a + b.T, (768, 768), (768, 768))
case("add channels", lambda a, b: a + b[:, None, None], (4, 64, 28, 28), (64,))
case("prelu", lambda x, w: F.prelu(x, w), (4, 64, 28, 28), (64,))
case("glu", lambda x: F.glu(x), (512, 1024))
case("dropout", lambda x: F.dropout(x, 0.1, True), (512, 1024))
case("dropout2d", lambda x: F.dropout2d(x, 0.1, True), (8, 64, 28, 28))
case("rand", lambda x: x + torch.rand_like(x), (512, 512))
case("randn", lambda x: x + torch.randn_like(x), (512, 512))
case("addcmul", torch.addcmul, (512, 1024), (512, 1024), (512, 1024))
case("lerp", lambda a, b: torch.lerp(a, b, 0.3), (512, 1024), (512, 1024))
case("cast", lambda x: x.to(torch.bfloat16).float(), (512, 1024))
case("complex multiply", lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)), (512, 64, 2), (512, 64, 2))
case("fft", lambda x: torch.fft.rfft(x).abs(), (64, 1024))
case("stft", lambda x: torch.stft(x, 256, 64, window=torch.hann_window(256), return_complex=True).abs(), (4, 8000))
case("linalg norm", lambda x: torch.linalg.vector_norm(x), (512, 1024))
case("cholesky", lambda x: torch.linalg.cholesky(x @ x.T + 100 * torch.eye(100)), (100, 100))
case("solve", lambda a, b: torch.linalg.solve(a, b), (8, 32, 32), (8, 32, 4))
case("inverse", lambda a: torch.linalg.inv(a + 10 * torch.eye(32)), (8, 32, 32))
