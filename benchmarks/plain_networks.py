"""Networks and training steps as people write them in plain PyTorch: routing, rendering, losses, samplers, optimizers.

``PROGRAMS`` is that of ``plain_programs``, with these in it.
"""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plain_programs import PROGRAMS, Made, program

randn, rand, randint = torch.randn, torch.rand, torch.randint


# --- blocks of networks, trained ----------------------------------------------------------------------------------------------------


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class GatedBlock(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.norm, self.up, self.down = Norm(width), nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


@program
def gated_feed_forward(scale: int) -> Made:
    return nn.Sequential(*(GatedBlock() for _ in range(4))), (randn(scale, 128, 512),)


class Routed(nn.Module):
    """Two of eight experts for each token; tokens are sorted by expert, and a batched product over a fixed capacity does the work."""

    def __init__(self, width: int = 256, experts: int = 8) -> None:
        super().__init__()
        self.experts, self.route = experts, nn.Linear(width, experts)
        self.up = nn.Parameter(randn(experts, width, 2 * width) / 16)
        self.down = nn.Parameter(randn(experts, 2 * width, width) / 22)

    def forward(self, x: Tensor) -> Tensor:
        tokens, width = x.shape
        capacity = tokens // self.experts * 3
        weight, chosen = self.route(x).softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        marks = F.one_hot(chosen.flatten(), self.experts)
        place = (marks.cumsum(0) - 1).gather(1, chosen.flatten()[:, None])[:, 0]
        kept = place < capacity
        slot = torch.where(kept, chosen.flatten() * capacity + place, self.experts * capacity)
        spread = x.new_zeros(self.experts * capacity + 1, width).index_copy(0, slot, x.repeat_interleave(2, 0))
        inner = F.gelu(torch.bmm(spread[:-1].view(self.experts, capacity, width), self.up))
        back = F.pad(torch.bmm(inner, self.down).flatten(0, 1), (0, 0, 0, 1))
        return (back[slot].view(tokens, 2, width) * weight[..., None]).sum(1)


@program
def routed_experts(scale: int) -> Made:
    return Routed(), (randn(512 * scale, 256),)


class Windows(nn.Module):
    """Attention within shifted windows of an image, with a learnt bias for each distance."""

    def __init__(self, width: int = 96, heads: int = 3, side: int = 7, shift: int = 3) -> None:
        super().__init__()
        self.heads, self.side, self.shift = heads, side, shift
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(randn((2 * side - 1) ** 2, heads) * 0.02)
        at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + side - 1
        self.register_buffer("place", apart[..., 0] * (2 * side - 1) + apart[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        s = self.side
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(n, h // s, s, w // s, s, c).transpose(2, 3).reshape(-1, s * s, c)
        q, k, v = self.qkv(y).view(-1, s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5 + self.bias[self.place].permute(2, 0, 1)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, s * s, c))
        y = y.view(n, h // s, w // s, s, s, c).transpose(2, 3).reshape(n, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


@program
def shifted_windows(scale: int) -> Made:
    return Windows(), (randn(2 * scale, 28, 28, 96),)


class Mixer(nn.Module):
    def __init__(self, tokens: int = 196, width: int = 256) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 128), nn.GELU(), nn.Linear(128, tokens))
        self.along = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


@program
def mixer(scale: int) -> Made:
    return nn.Sequential(Mixer(), Mixer()), (randn(2 * scale, 196, 256),)


class Residual(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(128, 2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        gain, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        y = self.one(F.silu(self.first(x)))
        return x + self.two(F.silu(self.second(y) * (1 + gain) + shift))


@program
def denoiser_block(scale: int) -> Made:
    return Residual(), (randn(2 * scale, 64, 32, 32), randn(2 * scale, 128))


class Squeezed(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.expand, self.depth = (
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.Conv2d(4 * width, 4 * width, 5, padding=2, groups=4 * width, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(4 * width), nn.BatchNorm2d(4 * width), nn.BatchNorm2d(width)])
        self.less, self.more = nn.Conv2d(4 * width, 24, 1), nn.Conv2d(24, 4 * width, 1)
        self.project = nn.Conv2d(4 * width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.norms[0](self.expand(x)))
        y = F.hardswish(self.norms[1](self.depth(y)))
        y = y * F.hardsigmoid(self.more(F.relu(self.less(y.mean((2, 3), keepdim=True)))))
        return x + self.norms[2](self.project(y))


@program
def squeezed_convolutions(scale: int) -> Made:
    return Squeezed(), (randn(4 * scale, 96, 14, 14),)


class LongConvolution(nn.Module):
    """A convolution as long as the sequence, by FFT, between two gates."""

    def __init__(self, width: int = 64, length: int = 512) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.taps, self.short = nn.Parameter(randn(width, length) / 32), nn.Conv1d(3 * width, 3 * width, 3, padding=2, groups=3 * width)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        a, b, v = self.short(self.mix(x).transpose(1, 2))[..., :length].chunk(3, 1)
        decay = torch.exp(-torch.arange(length, device=x.device) / length * 4)
        y = torch.fft.irfft(torch.fft.rfft(a * v, 2 * length) * torch.fft.rfft(self.taps * decay, 2 * length), 2 * length)[..., :length]
        return self.out((y * b).transpose(1, 2))


@program
def long_convolution(scale: int) -> Made:
    return LongConvolution(), (randn(2 * scale, 512, 64),)


class Sampled(nn.Module):
    """Attention that looks at four points of a map for each query, at places that are learnt."""

    def __init__(self, width: int = 64, heads: int = 4, points: int = 4) -> None:
        super().__init__()
        self.heads, self.points = heads, points
        self.where, self.weight = nn.Linear(width, heads * points * 2), nn.Linear(width, heads * points)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, queries: Tensor, centres: Tensor, image: Tensor) -> Tensor:
        n, q, c = queries.shape
        side = image.size(1)
        value = self.value(image).view(n, side, side, self.heads, -1).permute(0, 3, 4, 1, 2).flatten(0, 1)
        places = centres[:, :, None, None] + self.where(queries).view(n, q, self.heads, self.points, 2) / side
        grid = (places * 2 - 1).transpose(1, 2).flatten(0, 1)
        seen = F.grid_sample(value, grid, align_corners=False)
        weight = self.weight(queries).view(n, q, self.heads, self.points).softmax(-1).transpose(1, 2).flatten(0, 1)
        return self.out((seen * weight[:, None]).sum(-1).view(n, c, q).transpose(1, 2))


@program
def sampled_attention(scale: int) -> Made:
    return Sampled(), (randn(scale, 300, 64), rand(scale, 300, 2), randn(scale, 32, 32, 64))


class Points(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 256)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.head = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 13))

    def forward(self, x: Tensor) -> Tensor:
        n, points, _ = x.shape
        for layer, norm in zip(self.layers, self.norms):
            x = F.relu(norm(layer(x).flatten(0, 1))).view(n, points, -1)
        return self.head(torch.cat([x, x.amax(1, keepdim=True).expand_as(x)], -1))


@program
def clouds_of_points(scale: int) -> Made:
    return Points(), (randn(2 * scale, 512, 3),)


class Interactions(nn.Module):
    def __init__(self, tables: int = 16, rows: int = 1000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, places: Tensor) -> Tensor:
        x = self.dense(dense)
        all_of = torch.stack([x, *(table(place) for table, place in zip(self.tables, places))], 1)
        inner = torch.bmm(all_of, all_of.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, inner], 1)).sigmoid()


@program
def interactions_of_tables(scale: int) -> Made:
    return Interactions(), (randn(128 * scale, 13), randint(0, 1000, (16, 128 * scale, 4)))


class Tied(nn.Module):
    """A small language model with tied embeddings, label smoothing and a penalty of the partition function."""

    def __init__(self, words: int = 8000, width: int = 128) -> None:
        super().__init__()
        self.words, self.block = nn.Embedding(words, width), GatedBlock(width)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = F.linear(self.block(self.words(tokens[:, :-1])), self.words.weight).float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)
        return loss + 1e-4 * torch.logsumexp(logits, -1).square().mean()


@program
def tied_embeddings(scale: int) -> Made:
    return Tied(), (randint(0, 8000, (2 * scale, 65)),)


class Distilled(nn.Module):
    def __init__(self, width: int = 128, classes: int = 4000) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(width, classes), nn.Linear(width, classes).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.student(x) / 2, self.teacher(x) / 2
        return F.kl_div(one.log_softmax(-1), other.log_softmax(-1), log_target=True, reduction="batchmean") * 4


@program
def distillation(scale: int) -> Made:
    return Distilled(), (randn(128 * scale, 128),)


class Contrast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.text, self.scale = nn.Linear(256, 128), nn.Linear(192, 128), nn.Parameter(torch.tensor(2.6))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        a, b = F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)
        scores = self.scale.exp() * a @ b.T
        truth = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(scores, truth) + F.cross_entropy(scores.T, truth)) / 2


@program
def contrastive(scale: int) -> Made:
    return Contrast(), (randn(128 * scale, 256), randn(128 * scale, 192))


class Hardest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(128, 128), nn.PReLU(), nn.Linear(128, 64))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = F.normalize(self.embed(x), dim=-1)
        apart = torch.cdist(y, y)
        same = labels[:, None] == labels[None]
        far = torch.where(same, apart, -torch.inf).amax(1)
        near = torch.where(same, torch.inf, apart).amin(1)
        return F.softplus(far - near + 0.2).mean()


@program
def hardest_triplets(scale: int) -> Made:
    return Hardest(), (randn(128 * scale, 128), randint(0, 8, (128 * scale,)))


class Rounded(nn.Module):
    """Weights and activations rounded to eight bits, with gradients straight through."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    @staticmethod
    def rounded(x: Tensor, dim: int) -> Tensor:
        step = x.detach().abs().amax(dim, keepdim=True).clamp(min=1e-6) / 127
        return x + ((x / step).round().clamp(-128, 127) * step - x).detach()

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.one, self.two):
            x = F.relu(F.linear(self.rounded(x, -1), self.rounded(layer.weight, 1), layer.bias))
        return x


@program
def rounded_weights(scale: int) -> Made:
    return Rounded(), (randn(64 * scale, 256),)


class Radiance(nn.Module):
    """Rays through a field that a small network holds, with encodings of places by sines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(63, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, start: Tensor, way: Tensor) -> Tensor:
        depth = torch.linspace(0.1, 4, 64, device=start.device)
        at = start[:, None] + way[:, None] * depth[:, None]
        waves = (at[..., None] * 2.0 ** torch.arange(10, device=at.device)).flatten(-2)
        out = self.net(torch.cat([at, waves.sin(), waves.cos()], -1))
        solid = 1 - torch.exp(-F.relu(out[..., 3]) * (depth[1] - depth[0]))
        left = torch.cumprod(torch.cat([torch.ones_like(solid[:, :1]), 1 - solid[:, :-1] + 1e-10], 1), 1)
        return ((solid * left)[..., None] * out[..., :3].sigmoid()).sum(1)


@program
def radiance_field(scale: int) -> Made:
    return Radiance(), (randn(64 * scale, 3), randn(64 * scale, 3))


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.act, self.value = (
            nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()),
            nn.Linear(64, 6),
            nn.Linear(64, 1),
        )

    def forward(self, seen: Tensor, action: Tensor, old: Tensor, gain: Tensor, target: Tensor) -> Tensor:
        x = self.body(seen)
        spread = torch.distributions.Categorical(logits=self.act(x))
        ratio = (spread.log_prob(action) - old).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        chosen = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return chosen + 0.5 * F.mse_loss(self.value(x)[:, 0], target) - 0.01 * spread.entropy().mean()


@program
def clipped_policy(scale: int) -> Made:
    n = 256 * scale
    return Policy(), (randn(n, 24), randint(0, 6, (n,)), randn(n) * 0.1 - 1.8, randn(n), randn(n))


# --- functions ---------------------------------------------------------------------------------------------------------------------


@program
def advantages(scale: int) -> Made:
    def run(reward: Tensor, value: Tensor, ended: Tensor) -> Tensor:
        gains, last = torch.zeros_like(reward), torch.zeros_like(reward[0])
        for t in reversed(range(reward.size(0))):
            step = reward[t] + 0.99 * value[t + 1] * (1 - ended[t]) - value[t]
            gains[t] = last = step + 0.99 * 0.95 * (1 - ended[t]) * last
        return gains

    n = 256 * scale
    return run, (randn(32, n), randn(33, n), (rand(32, n) < 0.05).float())


@program
def splats(scale: int) -> Made:
    def run(centre: Tensor, size: Tensor, colour: Tensor, alpha: Tensor) -> Tensor:
        at = torch.linspace(0, 1, 64, device=centre.device)
        grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1).view(-1, 1, 2)
        power = ((grid - centre[:, None]) / size[:, None]).square().sum(-1)
        solid = (alpha[:, None, :] * torch.exp(-0.5 * power)).clamp(max=0.99)
        left = torch.cumprod(F.pad(1 - solid, (1, -1), value=1.0), -1)
        return (solid * left) @ colour

    n = scale
    return run, (rand(n, 64, 2), rand(n, 64, 2) * 0.1 + 0.02, rand(n, 64, 3), rand(n, 64))


@program
def structural_similarity(scale: int) -> Made:
    line = torch.exp(-((torch.arange(11) - 5.0) ** 2) / 4.5)
    window = (line[:, None] * line[None] / line.sum() ** 2)[None, None]

    def run(a: Tensor, b: Tensor) -> Tensor:
        def mean(x: Tensor) -> Tensor:
            return F.conv2d(x.flatten(0, 1)[:, None], window.to(x.device), padding=5).view(x.shape)

        ma, mb = mean(a), mean(b)
        va, vb, both = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
        return ((2 * ma * mb + 1e-4) * (2 * both + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4))).mean((1, 2, 3))

    return run, (rand(2 * scale, 3, 96, 96), rand(2 * scale, 3, 96, 96))


@program
def gaussian_process(scale: int) -> Made:
    def run(x: Tensor, y: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return torch.exp(-0.5 * (a[:, :, None] - b[:, None]).square().sum(-1))

        lower = torch.linalg.cholesky(kernel(x, x) + 0.1 * torch.eye(x.size(1), device=x.device))
        cross = kernel(at, x)
        mean = cross @ torch.cholesky_solve(y, lower)
        half = torch.linalg.solve_triangular(lower, cross.transpose(1, 2), upper=False)
        return mean, 1 - half.square().sum(1)

    n = 4 * scale
    return run, (randn(n, 96, 4), randn(n, 96, 1), randn(n, 48, 4))


@program
def beams(scale: int) -> Made:
    def run(scores: Tensor, logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        for step in range(4):
            _, beam, words = logits.shape
            best, at = (scores[..., None] + logits.roll(step, -1).log_softmax(-1)).flatten(1).topk(beam, -1)
            scores, parent = best, at // words
            tokens = torch.cat([tokens.gather(1, parent[..., None].expand_as(tokens))[..., 1:], (at % words)[..., None]], -1)
        return scores, tokens

    n = 4 * scale
    return run, (randn(n, 4), randn(n, 4, 8000), randint(0, 8000, (n, 4, 16)))


@program
def sampler_of_noise(scale: int) -> Made:
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1)).requires_grad_(False)

    def run(x: Tensor, kept: Tensor) -> Tensor:
        for t in range(7, -1, -1):
            noise = net(x)
            clean = ((x - (1 - kept[t]).sqrt() * noise) / kept[t].sqrt()).clamp(-1, 1)
            before = kept[t - 1] if t else torch.ones_like(kept[0])
            x = before.sqrt() * clean + (1 - before).sqrt() * noise
        return x

    return run, (randn(scale, 3, 32, 32), torch.linspace(0.98, 0.1, 8))


@program
def newton_schulz(scale: int) -> Made:
    def run(grads: list[Tensor], moments: list[Tensor]) -> list[Tensor]:
        out = []
        for grad, moment in zip(grads, moments):
            x = (moment * 0.95 + grad).to(torch.bfloat16)
            x = x / (x.norm() + 1e-7)
            for _ in range(5):
                a = x @ x.T
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            out.append(x.float() * max(1, x.size(0) / x.size(1)) ** 0.5)
        return out

    width = 128 * max(1, math.isqrt(scale))
    return run, ([randn(width, 2 * width) for _ in range(3)], [randn(width, 2 * width) for _ in range(3)])


@program
def optimizer_by_hand(scale: int) -> Made:
    sizes = [(64 * scale, 256), (256,), (256, 256), (256,), (256, 64)]

    @torch.no_grad()
    def run(values: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        norm = torch.stack([g.norm() for g in grads]).norm()
        shrink = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        out = []
        for v, g, m, s in zip(values, grads, first, second):
            g = g * shrink
            m.lerp_(g, 0.1)
            s.mul_(0.999).addcmul_(g, g, value=0.001)
            out.append(v * (1 - 1e-4) - 1e-3 * m / (s.sqrt() + 1e-8))
        return out

    return run, tuple([rand(*size) for size in sizes] for _ in range(4))


@program
def one_dimensional_transport(scale: int) -> Made:
    def run(a: Tensor, b: Tensor, way: Tensor) -> Tensor:
        left, right = (a @ way).sort(1).values, (b @ way).sort(1).values
        return (left - right).square().mean((1, 2)).sqrt()

    return run, (randn(2 * scale, 256, 16), randn(2 * scale, 256, 16), F.normalize(randn(16, 64), dim=0))


@program
def box_decoding(scale: int) -> Made:
    def run(deltas: Tensor, anchors: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size, centre = anchors[:, 2:] - anchors[:, :2], (anchors[:, 2:] + anchors[:, :2]) / 2
        middle = centre + deltas[..., :2] * size * 0.1
        half = torch.exp((deltas[..., 2:] * 0.2).clamp(max=math.log(1000 / 16))) * size / 2
        boxes = torch.cat([middle - half, middle + half], -1).clamp(0, 1)
        best, which = scores.sigmoid().max(-1)
        top, place = best.topk(100, -1)
        return boxes.gather(1, place[..., None].expand(-1, -1, 4)), top, which.gather(1, place)

    return run, (randn(2 * scale, 8400, 4), rand(8400, 4), randn(2 * scale, 8400, 20))


__all__ = ["PROGRAMS"]
