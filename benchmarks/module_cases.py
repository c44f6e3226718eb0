"""What ``operator_cases.py`` lacks of ``torch.nn``, ``torch.nn.functional``, ``torch.linalg`` and scans, each at two usual sizes, for
``operators.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from operator_cases import CASES, draw, rand

Given = tuple[Any, ...]
PLAIN = ((64, 64), (256, 2048))
IMAGES = ((2, 16, 28, 28), (8, 64, 56, 56))


def sized(name: str, call: Callable[..., Any], *given: Callable[[], Given]) -> None:
    """A case for each size of arguments."""
    for size, each in zip(("small", "large"), given, strict=True):
        CASES[f"{name} {size}"] = lambda each=each: (call, each())


def built(name: str, build: Callable[[], nn.Module], *given: Callable[[], Given]) -> None:
    for size, each in zip(("small", "large"), given, strict=True):
        CASES[f"{name} {size}"] = lambda each=each: (build(), each())


def of(*shapes: tuple[int, ...]) -> list[Callable[[], Given]]:
    return [lambda s=s: (rand(*s),) for s in shapes]


def pairs(*shapes: tuple[int, ...]) -> list[Callable[[], Given]]:
    return [lambda s=s: (rand(*s), rand(*s)) for s in shapes]


def with_places(*shapes: tuple[int, int], top: int | None = None) -> list[Callable[[], Given]]:
    return [lambda s=s: (rand(*s), draw(top or s[1], s[0])) for s in shapes]


def with_signs(*shapes: tuple[int, ...]) -> list[Callable[[], Given]]:
    return [lambda s=s: (rand(*s), 2.0 * draw(2, *s) - 1) for s in shapes]


def square(*sizes: tuple[int, int]) -> list[Callable[[], Given]]:
    """Batches of well-conditioned matrices."""
    return [lambda b=b, n=n: (rand(b, n, n) + n * torch.eye(n),) for b, n in sizes]


# Activations.
for name in "celu selu hardtanh relu6 hardsigmoid logsigmoid softsign tanhshrink softshrink hardshrink leaky_relu rrelu".split():
    sized(name, getattr(F, name), *of(*PLAIN))
for call in (F.softmin, F.gumbel_softmax):
    sized(call.__name__, lambda x, f=call: f(x, dim=-1), *of(*PLAIN))
sized("threshold", lambda x: F.threshold(x, 0.1, 20.0), *of(*PLAIN))
sized("rrelu training", lambda x: F.rrelu(x, training=True), *of(*PLAIN))
sized("glu", F.glu, *of(*PLAIN))
built("prelu module", lambda: nn.PReLU(), *of(*PLAIN))
sized("alpha_dropout", lambda x: F.alpha_dropout(x, 0.1, True), *of(*PLAIN))
sized("feature_alpha_dropout", lambda x: F.feature_alpha_dropout(x, 0.1, True), *of(*IMAGES))
built("softmax2d", lambda: nn.Softmax2d(), *of(*IMAGES))

# Losses.
ROWS = ((32, 10), (1024, 200))
sized("multi_margin_loss", F.multi_margin_loss, *with_places(*ROWS))
sized("multilabel_margin_loss", F.multilabel_margin_loss, *[lambda s=s: (rand(*s), draw(s[1] + 1, *s) - 1) for s in ROWS])
sized("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, *[lambda s=s: (rand(*s), 1.0 * draw(2, *s)) for s in ROWS])
sized("soft_margin_loss", F.soft_margin_loss, *with_signs(*PLAIN))
sized("hinge_embedding_loss", F.hinge_embedding_loss, *with_signs(*PLAIN))
sized("margin_ranking_loss", F.margin_ranking_loss, *[lambda n=n: (rand(n), rand(n), 2.0 * draw(2, n) - 1) for n in (128, 16384)])
sized(
    "cosine_embedding_loss",
    F.cosine_embedding_loss,
    *[lambda s=s: (rand(*s), rand(*s), 2.0 * draw(2, s[0]) - 1) for s in ((32, 64), (512, 512))],
)
sized("poisson_nll_loss", F.poisson_nll_loss, *[lambda s=s: (rand(*s), 1.0 * draw(5, *s)) for s in PLAIN])
sized(
    "gaussian_nll_loss",
    lambda x, y, v: F.gaussian_nll_loss(x, y, v.abs() + 0.1),
    *[lambda s=s: tuple(rand(*s) for _ in range(3)) for s in PLAIN],
)
sized("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), *[lambda s=s: (rand(*s), torch.rand(*s)) for s in PLAIN])
sized("kl_div target log", lambda x, y: F.kl_div(x, y, log_target=True, reduction="batchmean"), *pairs(*PLAIN))
sized("nll_loss weights", lambda x, t: F.nll_loss(x, t, torch.ones(x.shape[1])), *with_places(*ROWS))
sized("nll_loss2d", F.nll_loss, *[lambda s=s: (rand(*s), draw(s[1], s[0], *s[2:])) for s in IMAGES])
sized("cross_entropy soft", lambda x, t: F.cross_entropy(x, t.softmax(-1)), *pairs(*ROWS))
sized("cross_entropy ignored", lambda x, t: F.cross_entropy(x, t, ignore_index=0), *with_places(*ROWS))
sized("pairwise_distance", F.pairwise_distance, *pairs((32, 64), (1024, 256)))
sized(
    "triplet with distance",
    lambda a, b, c: F.triplet_margin_with_distance_loss(a, b, c),
    *[lambda s=s: tuple(rand(*s) for _ in range(3)) for s in ((32, 64), (512, 256))],
)
sized("pdist", F.pdist, *of((32, 16), (256, 64)))
sized(
    "ctc_loss",
    lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (x.shape[0],) * x.shape[1], (t.shape[1],) * x.shape[1]),
    *[lambda s=s: (rand(*s), draw(s[2] - 1, s[1], s[0] // 5) + 1) for s in ((50, 4, 20), (200, 16, 60))],
)

# Poolings.
LINES, SPACES = ((2, 16, 100), (8, 64, 1000)), ((1, 8, 8, 14, 14), (2, 16, 16, 28, 28))
sized("lp_pool1d", lambda x: F.lp_pool1d(x, 2.0, 2), *of(*LINES))
sized("lp_pool3d", lambda x: F.lp_pool3d(x, 2.0, 2), *of(*SPACES))
sized("avg_pool2d uncounted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), *of(*IMAGES))
sized("avg_pool2d ceil", lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), *of(*IMAGES))
sized("max_pool2d ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), *of(*IMAGES))
sized("max_pool2d dilated", lambda x: F.max_pool2d(x, 2, 1, dilation=2), *of(*IMAGES))
sized("max_pool3d 3", lambda x: F.max_pool3d(x, 3, 2, 1), *of(*SPACES))
sized("avg_pool3d 3", lambda x: F.avg_pool3d(x, 3, 2, 1), *of(*SPACES))
sized("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 10), *of(*LINES))
sized("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 4), *of(*SPACES))
sized("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 10), *of(*LINES))
sized("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 4), *of(*SPACES))
sized("adaptive_avg_pool2d 7", lambda x: F.adaptive_avg_pool2d(x, 7), *of(*IMAGES))
sized("fractional_max_pool2d", lambda x: F.fractional_max_pool2d(x, 2, output_ratio=(0.6, 0.6)), *of(*IMAGES))
sized("max_unpool1d", lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2), *of(*LINES))
sized("max_unpool3d", lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), *of(*SPACES))

# Norms, shapes, sampling.
sized("instance_norm1d", F.instance_norm, *of(*LINES))
sized("instance_norm3d", F.instance_norm, *of(*SPACES))
built("group_norm 3d", lambda: nn.GroupNorm(4, 16), *of((1, 16, 8, 14, 14), (2, 16, 16, 28, 28)))
built("batch_norm3d", lambda: nn.BatchNorm3d(16), *of((2, 16, 8, 14, 14), (2, 16, 16, 28, 28)))
sized("layer_norm images", lambda x: F.layer_norm(x, x.shape[1:]), *of(*IMAGES))
sized("layer_norm last of images", lambda x: F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2]).permute(0, 3, 1, 2), *of(*IMAGES))
sized("local_response_norm", lambda x: F.local_response_norm(x, 5), *of(*IMAGES))
sized("channel_shuffle", lambda x: F.channel_shuffle(x, 4), *of(*IMAGES))
sized("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), *of(*IMAGES))
sized("unfold", lambda x: F.unfold(x, 3, padding=1), *of(*IMAGES))
sized("interpolate down", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), *of(*IMAGES))
sized("interpolate bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), *of(*IMAGES))
sized("interpolate exact", lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"), *of(*IMAGES))
sized("interpolate antialias bicubic", lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True), *of(*IMAGES))
sized("affine_grid", lambda t: F.affine_grid(t, [t.shape[0], 3, 32, 32], False), *of((2, 2, 3), (32, 2, 3)))

# Convolutions and what is beside them.
built("bilinear", lambda: nn.Bilinear(32, 32, 16), *[lambda n=n: (rand(n, 32), rand(n, 32)) for n in (16, 256)])
for last in (False, True):
    form = torch.channels_last if last else torch.contiguous_format
    for what, build in {
        "conv_transpose2d k4 s2 p1": lambda: nn.ConvTranspose2d(16, 16, 4, 2, 1),
        "conv_transpose2d k3 s2 p1 o1": lambda: nn.ConvTranspose2d(16, 32, 3, 2, 1, 1),
        "conv_transpose2d k3 s1": lambda: nn.ConvTranspose2d(16, 16, 3, 1, 1),
        "conv2d 1x1": lambda: nn.Conv2d(16, 64, 1),
        "conv2d 3x3 s2": lambda: nn.Conv2d(16, 32, 3, 2, 1),
        "conv2d k3 group norm": lambda: nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 16, 3, padding=1)
        ),
        "conv2d k3 instance norm": lambda: nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(16, 32, 3), nn.InstanceNorm2d(32, affine=True), nn.ReLU(), nn.Conv2d(32, 16, 3)
        ),
        "conv2d k3 batch norm": lambda: nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1)
        ),
        "conv2d upsampled": lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 16, 3, padding=1)),
    }.items():
        for size, shape in zip(("small", "large"), ((2, 16, 14, 14), (4, 16, 64, 64)), strict=True):
            CASES[f"{what}{' last' if last else ''} {size}"] = lambda b=build, f=form, s=shape: (
                b().to(memory_format=f),
                (rand(*s).to(memory_format=f),),
            )

# Recurrent.
built("lstm projected", lambda: nn.LSTM(64, 128, batch_first=True, proj_size=32), *of((4, 16, 64), (16, 64, 64)))
built("rnn relu", lambda: nn.RNN(64, 64, nonlinearity="relu", batch_first=True), *of((4, 16, 64), (16, 64, 64)))
built("rnn cell", lambda: nn.RNNCell(64, 64), *of((4, 64), (128, 64)))
built("lstm three layers", lambda: nn.LSTM(64, 64, 3, batch_first=True), *of((4, 16, 64), (16, 64, 64)))

# Embeddings and places.
built("embedding max_norm", lambda: nn.Embedding(1000, 64, max_norm=1.0), *[lambda s=s: (draw(1000, *s),) for s in ((4, 16), (32, 128))])
built(
    "embedding_bag weights",
    lambda: nn.EmbeddingBag(1000, 64, mode="sum"),
    *[lambda s=s: (draw(1000, *s), None, torch.rand(*s)) for s in ((4, 16), (128, 32))],
)
sized("take", torch.take, *[lambda s=s: (rand(*s), draw(s[0] * s[1], 4 * s[0])) for s in PLAIN])
sized(
    "put",
    lambda x, i, s: x.put(i, s, accumulate=True),
    *[lambda s=s: (rand(*s), draw(s[0] * s[1], 4 * s[0]), rand(4 * s[0])) for s in PLAIN],
)
sized("index_fill", lambda x, i: x.index_fill(0, i, 1.0), *[lambda s=s: (rand(*s), draw(s[0], 10)) for s in PLAIN])
sized(
    "index_reduce",
    lambda x, i, s: x.index_reduce(0, i, s, "amax"),
    *[lambda s=s: (rand(*s), draw(s[0], 32), rand(32, s[1])) for s in PLAIN],
)
sized("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), *[lambda s=s: (rand(*s), torch.rand(*s) > 0.5, rand(*s)) for s in PLAIN])
sized("diagonal", lambda x: x.diagonal().sum(), *of((64, 64), (1024, 1024)))
sized("diag_embed", torch.diag_embed, *of((4, 64), (32, 128)))
sized("triu_indices", lambda x: x[tuple(torch.triu_indices(*x.shape, 1))], *of((64, 64), (512, 512)))

# Scans and orders.
for dim in (0, 1):
    sized(f"cummin {dim}", lambda x, d=dim: x.cummin(d).values, *of(*PLAIN))
    sized(f"cumsum {dim}", lambda x, d=dim: x.cumsum(d), *of(*PLAIN))
    sized(f"logcumsumexp {dim}", lambda x, d=dim: x.logcumsumexp(d), *of(*PLAIN))
    sized(f"diff {dim}", lambda x, d=dim: torch.diff(x, dim=d), *of(*PLAIN))
    sized(f"sort stable {dim}", lambda x, d=dim: x.sort(dim=d, stable=True).values, *of((64, 64), (256, 256)))
    sized(f"topk pairs {dim}", lambda x, d=dim: sum(x.topk(5, d)), *of((64, 64), (256, 256)))
    sized(f"mode {dim}", lambda x, d=dim: x.mode(d).values, *of((16, 16), (64, 64)))
    sized(f"quantile {dim}", lambda x, d=dim: x.quantile(0.3, d), *of((64, 64), (256, 256)))
    sized(f"nanmedian {dim}", lambda x, d=dim: x.nanmedian(d).values, *of((64, 64), (256, 256)))
    sized(f"std_mean {dim}", lambda x, d=dim: sum(torch.std_mean(x, d)), *of(*PLAIN))
    sized(f"aminmax {dim}", lambda x, d=dim: sum(torch.aminmax(x, dim=d)), *of(*PLAIN))
    sized(f"nansum {dim}", lambda x, d=dim: x.nansum(d), *of(*PLAIN))
sized("trapezoid", torch.trapezoid, *of(*PLAIN))
sized("histc", lambda x: x.histc(50), *of(*PLAIN))
sized("isin", lambda x: torch.isin(x.long(), torch.arange(5)), *of(*PLAIN))
sized("unique consecutive", lambda x: torch.unique_consecutive(x.long()), *of((1000,), (100000,)))
sized("cov", torch.cov, *of((16, 64), (64, 1024)))
sized("corrcoef", torch.corrcoef, *of((16, 64), (64, 1024)))
sized("renorm", lambda x: x.renorm(2, 0, 1.0), *of(*PLAIN))
sized("cdist 1", lambda a, b: torch.cdist(a, b, 1.0), *pairs((32, 16), (128, 64)))

# Linear algebra.
MATRICES = ((1, 16), (16, 64))
for name in "det inv matrix_exp pinv eigvalsh svdvals qr".split():
    sized(f"linalg {name}", getattr(torch.linalg, name), *square(*MATRICES))
sized("linalg slogdet", lambda x: torch.linalg.slogdet(x)[1], *square(*MATRICES))
sized("linalg eigh", lambda x: torch.linalg.eigh(x + x.mT)[0], *square(*MATRICES))
sized("linalg cholesky", lambda x: torch.linalg.cholesky(x @ x.mT), *square(*MATRICES))
sized("linalg solve_triangular", lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False), *square(*MATRICES))
sized("linalg solve", lambda x: torch.linalg.solve(x, x.sum(-1)), *square(*MATRICES))
sized("linalg matrix_norm", lambda x: torch.linalg.matrix_norm(x), *square(*MATRICES))
sized("linalg nuc", lambda x: torch.linalg.matrix_norm(x, "nuc"), *square(*MATRICES))
sized("linalg matrix_power", lambda x: torch.linalg.matrix_power(x / 50, 3), *square(*MATRICES))
sized("linalg lstsq", lambda x: torch.linalg.lstsq(x, x[..., :2]).solution, *square(*MATRICES))
sized("linalg multi_dot", lambda x: torch.linalg.multi_dot([x[0], x[0], x[0, :, :2]]), *square(*MATRICES))
sized("cross", lambda a, b: torch.cross(a, b, dim=-1), *pairs((64, 3), (100000, 3)))
sized("cross first", lambda a, b: torch.linalg.cross(a, b, dim=0), *pairs((3, 64), (3, 100000)))
sized("kron", torch.kron, *pairs((8, 8), (24, 24)))
sized("vander", lambda x: torch.linalg.vander(x, N=8), *of((16,), (4096,)))
sized("tensordot", lambda a, b: torch.tensordot(a, b, 2), *[lambda n=n: (rand(n, n, 8), rand(n, 8, n)) for n in (8, 32)])
sized("chain_matmul", lambda a, b: a @ b @ a, *pairs((16, 16), (128, 128)))
sized("addmv", lambda a, b: torch.addmv(b[0], a, b[1]), *pairs((64, 64), (512, 512)))
sized("addr", lambda a, b: torch.addr(a, b[0], b[1]), *pairs((64, 64), (512, 512)))
sized("mv", lambda a, b: a.mv(b[0]), *pairs((64, 64), (512, 512)))
