"""Computations as people write them in plain PyTorch, none of them a model of a library: filters, solvers, samplers, graphs, losses, recurrences.

``PROGRAMS[name](scale)`` gives a function or a module, and its arguments; ``scale`` multiplies the sizes that a batch has, 1 for a
processor. A module is to be trained: gradients of all parameters are taken of the mean square of what it gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[int], Made]] = {}
randn, rand = torch.randn, torch.rand


def program(make: Callable[[int], Made]) -> Callable[[int], Made]:
    PROGRAMS[make.__name__] = make
    return make


# --- solvers and filters -----------------------------------------------------------------------------------------------------------


@program
def kalman_filter(scale: int) -> Made:
    move, look = torch.eye(16) * 0.9, randn(4, 16)

    def run(z: Tensor) -> Tensor:
        one = torch.eye(16, device=z.device)
        x, p = z.new_zeros(z.size(1), 16), one.expand(z.size(1), 16, 16)
        for seen in z.unbind(0):
            x, p = x @ move.T, move @ p @ move.T + one * 0.01
            spread = look @ p @ look.T + one[:4, :4] * 0.1
            gain = torch.linalg.solve(spread, look @ p).transpose(1, 2)
            x = x + (gain @ (seen - x @ look.T)[..., None])[..., 0]
            p = (one - gain @ look) @ p
        return x

    return run, (randn(20, 64 * scale, 4),)


@program
def sinkhorn(scale: int) -> Made:
    def run(cost: Tensor) -> Tensor:
        u, v = cost.new_zeros(cost.shape[:2]), cost.new_zeros(cost.size(0), cost.size(2))
        for _ in range(20):
            u = -torch.logsumexp(-cost + v[:, None], 2)
            v = -torch.logsumexp(-cost + u[:, :, None], 1)
        return torch.exp(u[:, :, None] + v[:, None] - cost)

    return run, (randn(32 * scale, 64, 64),)


class NeuralOde(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))

    def forward(self, y: Tensor) -> Tensor:
        step = 0.1
        for _ in range(6):
            a = self.field(y)
            b = self.field(y + step / 2 * a)
            c = self.field(y + step / 2 * b)
            d = self.field(y + step * c)
            y = y + step / 6 * (a + 2 * b + 2 * c + d)
        return y


@program
def neural_ode(scale: int) -> Made:
    return NeuralOde(), (randn(256 * scale, 32),)


@program
def mixture_by_expectation(scale: int) -> Made:
    def run(x: Tensor, means: Tensor) -> Tensor:
        weights = x.new_full((means.size(0),), 1 / means.size(0))
        for _ in range(5):
            shares = (weights.log() - 0.5 * ((x[:, None] - means) ** 2).sum(-1)).softmax(1)
            count = shares.sum(0)
            means, weights = (shares.T @ x) / count[:, None], count / x.size(0)
        return means

    return run, (randn(5000 * scale, 8), randn(10, 8))


@program
def jacobians(scale: int) -> Made:
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)).requires_grad_(False)
    return torch.vmap(torch.func.jacrev(net)), (randn(64 * scale, 16),)


# --- graphs, points and boxes ------------------------------------------------------------------------------------------------------


class MessagePassing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        degree = x.new_zeros(x.size(0)).index_add(0, edges[1], x.new_ones(edges.size(1))).clamp(min=1)
        for layer in self.layers:
            total = torch.zeros_like(x).index_add(0, edges[1], layer(x)[edges[0]])
            x = F.relu(total / degree[:, None]) + x
        return x


@program
def message_passing(scale: int) -> Made:
    return MessagePassing(), (randn(2000 * scale, 64), torch.randint(0, 2000 * scale, (2, 10000 * scale)))


class GraphAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.of_source, self.of_target = nn.Linear(64, 64), nn.Parameter(randn(64)), nn.Parameter(randn(64))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h, nodes = self.project(x), x.size(0)
        score = F.leaky_relu((h * self.of_source).sum(1)[edges[0]] + (h * self.of_target).sum(1)[edges[1]], 0.2)
        largest = x.new_full((nodes,), -1e9).scatter_reduce(0, edges[1], score, "amax")
        weight = (score - largest[edges[1]].detach()).exp()
        total = x.new_zeros(nodes).index_add(0, edges[1], weight)
        return torch.zeros_like(h).index_add(0, edges[1], h[edges[0]] * (weight / total[edges[1]])[:, None])


@program
def graph_attention(scale: int) -> Made:
    return GraphAttention(), (randn(2000 * scale, 64), torch.randint(0, 2000 * scale, (2, 10000 * scale)))


@program
def nearest_neighbours(scale: int) -> Made:
    def run(x: Tensor) -> Tensor:
        near = (x[:, :, None] - x[:, None]).pow(2).sum(-1).topk(8, largest=False)[1]
        found = x[torch.arange(x.size(0), device=x.device)[:, None, None], near]
        return torch.cat([found - x[:, :, None], found], -1).amax(2)

    return run, (randn(4 * scale, 256, 8),)


@program
def overlap_of_boxes(scale: int) -> Made:
    def area(box: Tensor) -> Tensor:
        return (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])

    def run(a: Tensor, b: Tensor) -> Tensor:
        both = (torch.min(a[:, None, 2:], b[None, :, 2:]) - torch.max(a[:, None, :2], b[None, :, :2])).clamp(min=0).prod(-1)
        union = area(a)[:, None] + area(b)[None] - both
        around = (torch.max(a[:, None, 2:], b[None, :, 2:]) - torch.min(a[:, None, :2], b[None, :, :2])).prod(-1)
        return both / union - (around - union) / around

    return run, (rand(400 * scale, 4).cumsum(1), rand(400, 4).cumsum(1))


@program
def rotations(scale: int) -> Made:
    def run(q: Tensor, v: Tensor) -> Tensor:
        w, x, y, z = F.normalize(q, dim=1).unbind(1)
        rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)]
        rows += [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)]
        rows += [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
        return (torch.stack(rows, 1).view(-1, 3, 3) @ v[..., None])[..., 0]

    return run, (randn(10000 * scale, 4), randn(10000 * scale, 3))


# --- images and sound --------------------------------------------------------------------------------------------------------------


@program
def moved_images(scale: int) -> Made:
    def run(x: Tensor, theta: Tensor) -> Tensor:
        y = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
        mean = y.mean((2, 3), keepdim=True)
        return ((((y - mean) * 1.2 + mean).clamp(0, 1) ** 0.9) - 0.5) / 0.25

    count = 8 * scale
    return run, (rand(count, 3, 128, 128), torch.eye(2, 3).expand(count, 2, 3) + 0.05 * randn(count, 2, 3))


class GatedConvolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=2**k) for k in range(6))
        self.mixes = nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for k, (gate, mix) in enumerate(zip(self.gates, self.mixes, strict=True)):
            a, b = gate(F.pad(x, (2**k, 0))).chunk(2, 1)
            x = x + mix(torch.tanh(a) * torch.sigmoid(b))
        return x


@program
def gated_convolutions(scale: int) -> Made:
    return GatedConvolutions(), (randn(4 * scale, 32, 512),)


class LargeKernels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.LayerNorm(64)
        self.widen, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(F.gelu(self.widen(y))).permute(0, 3, 1, 2)


@program
def large_kernels(scale: int) -> Made:
    return LargeKernels(), (randn(2 * scale, 64, 28, 28),)


@program
def spectral_loss(scale: int) -> Made:
    window = torch.hann_window(512)

    def run(x: Tensor, y: Tensor) -> Tensor:
        a, b = (torch.stft(each, 512, 128, window=window, return_complex=True).abs() for each in (x, y))
        return (a - b).norm() / b.norm() + (a.clamp(1e-5).log() - b.clamp(1e-5).log()).abs().mean()

    return run, (randn(4 * scale, 16000), randn(4 * scale, 16000))


@program
def focal_and_dice(scale: int) -> Made:
    def run(x: Tensor, y: Tensor) -> Tensor:
        marks, p = F.one_hot(y, 8).permute(0, 3, 1, 2).float(), x.softmax(1)
        entropy = F.cross_entropy(x, y, reduction="none")
        dice = (2 * (p * marks).sum((2, 3)) + 1) / (p.sum((2, 3)) + marks.sum((2, 3)) + 1)
        return ((1 - (-entropy).exp()) ** 2 * entropy).mean() + 1 - dice.mean()

    return run, (randn(4 * scale, 8, 64, 64), torch.randint(0, 8, (4 * scale, 64, 64)))


class Field(nn.Module):
    """Colours of places, by waves."""

    def __init__(self) -> None:
        super().__init__()
        self.waves = nn.Parameter(randn(2, 64) * 10, requires_grad=False)
        self.net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        turns = 2 * math.pi * x @ self.waves
        return self.net(torch.cat([turns.sin(), turns.cos()], -1)).sigmoid()


@program
def field_of_waves(scale: int) -> Made:
    return Field(), (rand(4096 * scale, 2),)


# --- recurrences -------------------------------------------------------------------------------------------------------------------


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(32, 64)

    def forward(self, x: Tensor) -> Tensor:
        h, states = x.new_zeros(x.size(0), 64), []
        for step in x.unbind(1):
            h = self.cell(step, h)
            states.append(h)
        return torch.stack(states, 1)


@program
def loop_over_cells(scale: int) -> Made:
    return CellLoop(), (randn(32 * scale, 25, 32),)


class WrittenOut(nn.Module):
    """A recurrent layer whose gates are written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(96, 256)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.size(0), 64)
        states = []
        for step in x.unbind(1):
            write, keep, new, show = self.gates(torch.cat([step, h], 1)).chunk(4, 1)
            c = keep.sigmoid() * c + write.sigmoid() * new.tanh()
            h = show.sigmoid() * c.tanh()
            states.append(h)
        return torch.stack(states, 1)


@program
def gates_written_out(scale: int) -> Made:
    return WrittenOut(), (randn(32 * scale, 25, 32),)


@program
def state_space(scale: int) -> Made:
    decay = -rand(64, 16)

    def run(x: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> Tensor:
        h, out = x.new_zeros(x.size(0), 64, 16), []
        for t in range(x.size(1)):
            h = h * (dt[:, t, :, None] * decay).exp() + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
            out.append((h * c[:, t, None]).sum(-1))
        return torch.stack(out, 1)

    batch = 4 * scale
    return run, (randn(batch, 64, 64), rand(batch, 64, 64), randn(batch, 64, 16), randn(batch, 64, 16))


# --- attention, experts, retrieval -------------------------------------------------------------------------------------------------


class BiasedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.bias = nn.Linear(128, 384), nn.Linear(128, 128), nn.Parameter(randn(4, 128, 128))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(-1, 128, 4, 32).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        score = q @ k.transpose(-1, -2) / 32**0.5 + self.bias
        weight = score.masked_fill(x.new_ones(128, 128).triu(1).bool(), -1e9).softmax(-1)
        return self.out((weight @ v).transpose(1, 2).reshape(-1, 128, 128))


@program
def biased_attention(scale: int) -> Made:
    return BiasedAttention(), (randn(4 * scale, 128, 128),)


class LinearAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        norm = 1 / (torch.einsum("bnd,bd->bn", q, k.sum(1)) + 1e-6)
        return torch.einsum("bnd,bde,bn->bne", q, torch.einsum("bnd,bne->bde", k, v), norm)


@program
def linear_attention(scale: int) -> Made:
    return LinearAttention(), (randn(8 * scale, 512, 64),)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(64, 4)
        self.widen, self.narrow = nn.Parameter(randn(4, 64, 128) * 0.1), nn.Parameter(randn(4, 128, 64) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.route(x).softmax(-1).topk(2)
        shares = x.new_zeros(x.size(0), 4).scatter(1, chosen, weight)
        hidden = F.gelu(torch.einsum("nd,edh->enh", x, self.widen))
        return torch.einsum("enh,ehd,ne->nd", hidden, self.narrow, shares)


@program
def dense_experts(scale: int) -> Made:
    return Experts(), (randn(512 * scale, 64),)


@program
def codebook(scale: int) -> Made:
    def run(x: Tensor, codes: Tensor) -> tuple[Tensor, ...]:
        near = ((x**2).sum(1, keepdim=True) - 2 * x @ codes.T + (codes**2).sum(1)).argmin(1)
        found = codes[near]
        return x + (found - x).detach(), ((found.detach() - x) ** 2).mean(), F.one_hot(near, codes.size(0)).float().mean(0)

    return run, (randn(4096 * scale, 64), randn(512, 64))


class Crossed(nn.Module):
    """Clicks: tables of categories, every pair of which is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(8))
        self.dense, self.top = nn.Linear(13, 32), nn.Linear(32 + 36, 1)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        features = torch.stack([self.dense(x), *(table(ids[k]) for k, table in enumerate(self.tables))], 1)
        rows, columns = torch.tril_indices(9, 9, -1, device=x.device)
        return self.top(torch.cat([features[:, 0], (features @ features.transpose(1, 2))[:, rows, columns]], 1))


@program
def crossed_features(scale: int) -> Made:
    return Crossed(), (randn(256 * scale, 13), torch.randint(0, 1000, (8, 256 * scale, 4)))


@program
def nucleus_sampling(scale: int) -> Made:
    def run(logits: Tensor) -> Tensor:
        scores = logits / 0.8
        scores = scores.masked_fill(scores < scores.topk(50)[0][:, -1:], -math.inf)
        ordered, places = scores.sort(descending=True)
        beyond = (ordered.softmax(-1).cumsum(-1) > 0.9).roll(1, -1)
        beyond[:, 0] = False
        return scores.scatter(1, places, ordered.masked_fill(beyond, -math.inf)).softmax(-1)

    return run, (randn(8 * scale, 32000),)
