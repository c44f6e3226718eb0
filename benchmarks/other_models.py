"""Models of kinds that the zoo lacks, as small as such models are worth a GPU: images in and out, graphs, tables, states over time, boxes,
rays.

``MODELS[name]()`` gives (module, args, kwargs) on CPU, float32, in eval mode, as ``zoo.MODELS`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zoo


class ResBlock(nn.Module):
    """Of a diffusion model: two convolutions, moved by the embedding of a time."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))
        self.time = nn.Linear(time, 2 * outer)
        self.norm, self.second = nn.GroupNorm(8, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        y = self.norm(self.first(x)) * (1 + scale) + shift
        return self.skip(x) + self.second(F.silu(y))


class ImageAttention(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))


class Diffusion(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width, self.embed = width, nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList([ResBlock(width, width, 4 * width), ResBlock(width, 2 * width, 4 * width)])
        self.halve = nn.Conv2d(width, width, 3, 2, 1)
        self.middle, self.attention = ResBlock(2 * width, 2 * width, 4 * width), ImageAttention(2 * width)
        self.up = ResBlock(3 * width, width, 4 * width)
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        half = self.width // 2
        angles = time[:, None] * torch.exp(-math.log(10000.0) / half * torch.arange(half, device=x.device)).to(x.dtype)
        t = self.embed(torch.cat([angles.cos(), angles.sin()], -1))
        first = self.down[0](self.enter(x), t)
        y = self.attention(self.middle(self.down[1](self.halve(first), t), t))
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return self.leave(self.up(torch.cat([y, first], 1), t))


class UNet(nn.Module):
    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        sizes = [width << k for k in range(depth)]
        self.down = nn.ModuleList([_convolved(i, o) for i, o in zip([3, *sizes], sizes, strict=False)])
        self.bottom = _convolved(sizes[-1], 2 * sizes[-1])
        self.widen = nn.ModuleList([nn.ConvTranspose2d(2 * s, s, 2, 2) for s in sizes[::-1]])
        self.up = nn.ModuleList([_convolved(2 * s, s) for s in sizes[::-1]])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, part in zip(self.widen, self.up, strict=True):
            x = part(torch.cat([kept.pop(), widen(x)], 1))
        return self.head(x)


def _convolved(inner: int, outer: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
        nn.Conv2d(outer, outer, 3, padding=1),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
    )


class Mamba(nn.Module):
    """A block of a selective state space, its recurrence written out over chunks of time."""

    def __init__(self, width: int = 128, states: int = 16, steps: int = 32) -> None:
        super().__init__()
        self.steps, self.norm = steps, nn.LayerNorm(width)
        self.enter, self.convolve = nn.Linear(width, 4 * width), nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.select, self.leave = nn.Linear(2 * width, 2 * states + 1), nn.Linear(2 * width, width)
        self.decay, self.direct = nn.Parameter(torch.rand(2 * width, states)), nn.Parameter(torch.ones(2 * width))
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = F.silu(self.convolve(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        b, c, rate = self.select(u).split([self.states, self.states, 1], -1)
        rate = F.softplus(rate)
        keep = torch.exp(-rate.unsqueeze(-1) * self.decay)
        new = (rate * u).unsqueeze(-1) * b.unsqueeze(2)
        state, out = torch.zeros_like(new[:, 0]), []
        for t in range(self.steps):
            state = keep[:, t] * state + new[:, t]
            out.append((state * c[:, t, None]).sum(-1))
        y = torch.stack(out, 1) + self.direct * u
        return x + self.leave(y * F.silu(gate))


class GraphNet(nn.Module):
    """Two layers of graph attention: a softmax over the edges that end in each node, and a mean of what comes along them."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.ends = nn.ParameterList([nn.Parameter(torch.randn(2, heads, width // heads) / 8) for _ in range(2)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        for layer, (a, b) in zip(self.layers, self.ends, strict=True):
            h = layer(x).view(x.shape[0], self.heads, -1)
            score = F.leaky_relu((h * a).sum(-1)[source] + (h * b).sum(-1)[target], 0.2)
            at = target[:, None].expand(-1, self.heads)
            top = torch.full_like(h[..., 0], -1e4).scatter_reduce(0, at, score, "amax")
            weight = (score - top[target]).exp()
            total = torch.zeros_like(top).index_add(0, target, weight)
            x = torch.zeros_like(h).index_add(0, target, h[source] * (weight / (total[target] + 1e-6))[..., None]).flatten(1)
            x = F.elu(x)
        return self.head(x)


class Tables(nn.Module):
    """As recommenders do: bags of embeddings, products of all pairs, a network on top."""

    def __init__(self, tables: int = 8, width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(5000, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", pairs[0])
        self.register_buffer("columns", pairs[1])
        self.top = nn.Sequential(nn.Linear(width + pairs.shape[1], 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        every = torch.stack([x, *(bag(sparse[:, k]) for k, bag in enumerate(self.bags))], 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.rows, self.columns]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class Recurrent(nn.Module):
    """torch's LSTM, then a cell of the program's own."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.lstm, self.cell, self.head = nn.LSTM(width, width, 2, batch_first=True), nn.GRUCell(width, width), nn.Linear(width, 16)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x)
        state = torch.zeros_like(y[:, 0])
        for t in range(16):
            state = self.cell(y[:, t], state)
        return self.head(state)


class Boxes(nn.Module):
    """The code around a detector: boxes from offsets, who overlaps whom, losses, the best of each."""

    def forward(self, offsets: Tensor, scores: Tensor, anchors: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
        size = anchors[:, 2:] - anchors[:, :2]
        centre = anchors[:, :2] + size / 2 + offsets[..., :2] * size * 0.1
        half = size * torch.exp((offsets[..., 2:] * 0.2).clamp(max=4.0)) / 2
        boxes = torch.cat([centre - half, centre + half], -1).clamp(0, 640)
        low = torch.maximum(anchors[:, None, :2], wanted[None, :, :2])
        high = torch.minimum(anchors[:, None, 2:], wanted[None, :, 2:])
        common = (high - low).clamp(min=0).prod(-1)
        areas = size.prod(-1)[:, None] + (wanted[:, 2:] - wanted[:, :2]).prod(-1)
        overlap = common / (areas - common)
        best, which = overlap.max(1)
        positive = (best > 0.4).to(offsets.dtype)
        target = wanted[which]
        loss = (F.smooth_l1_loss(boxes, target.expand_as(boxes), reduction="none").sum(-1) * positive).sum(1) / positive.sum().clamp(min=1)
        p = torch.sigmoid(scores)
        hit = positive[None, :, None]
        focal = -(hit * (1 - p) ** 2 * F.logsigmoid(scores) + (1 - hit) * p**2 * F.logsigmoid(-scores)).mean((1, 2))
        top = p.amax(-1).topk(100, 1).values
        return loss, focal, top


class Rays(nn.Module):
    """A radiance field: frequencies of places, a network, what light is left along each ray."""

    def __init__(self, width: int = 128, frequencies: int = 8) -> None:
        super().__init__()
        self.register_buffer("waves", 2.0 ** torch.arange(frequencies))
        places = 3 + 6 * frequencies
        self.first = nn.Sequential(nn.Linear(places, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(width + places, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, origins: Tensor, directions: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        at = origins[:, None] + directions[:, None] * depths[..., None]
        angles = (at[..., None, :] * self.waves[:, None]).flatten(-2)
        x = torch.cat([at, angles.sin(), angles.cos()], -1)
        raw = self.second(torch.cat([self.first(x), x], -1))
        gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 0.1)], 1)
        alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * gaps)
        left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-4], 1), 1)[:, :-1]
        weight = alpha * left
        return (weight[..., None] * torch.sigmoid(raw[..., :3])).sum(1), (weight * depths).sum(1)


class Conformer(nn.Module):
    def __init__(self, width: int = 144, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([_ConformerBlock(width, heads) for _ in range(layers)])

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        for block in self.blocks:
            x = block(x, mask)
        return x


class _ConformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.before, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depth, self.batch, self.after = (
            nn.Conv1d(width, width, 15, padding=7, groups=width),
            nn.BatchNorm1d(width),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + 0.5 * self.feed(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=~mask, need_weights=False)[0]
        y = F.glu(self.gate(self.before(x).transpose(1, 2)), 1) * mask[:, None]
        return x + self.after(F.silu(self.batch(self.depth(y)))).transpose(1, 2)


class Experts(nn.Module):
    """Each token goes to the two experts that suit it best, each expert taking as many as it has room for."""

    def __init__(self, width: int = 128, experts: int = 8) -> None:
        super().__init__()
        self.route = nn.Linear(width, experts)
        self.up, self.down = (
            nn.Parameter(torch.randn(experts, width, 4 * width) / 16),
            nn.Parameter(torch.randn(experts, 4 * width, width) / 32),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.route(x)
        weight, chosen = logits.softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        hot = F.one_hot(chosen, logits.shape[-1])
        room = 2 * x.shape[0] // logits.shape[-1] * 2
        place = (hot.flatten(0, 1).cumsum(0).view_as(hot) - 1) * hot
        fits = (place < room) & hot.bool()
        slots = F.one_hot(place.clamp(max=room - 1), room).to(x.dtype) * fits[..., None]
        send = (slots * weight[..., None, None]).sum(1)
        inputs = torch.einsum("ten,td->end", slots.sum(1), x)
        out = F.gelu(inputs @ self.up) @ self.down
        balance = (logits.softmax(-1).mean(0) * hot.to(x.dtype).mean((0, 1))).sum()
        return torch.einsum("ten,end->td", send, out), balance


class Waves(nn.Module):
    """A Fourier neural operator: products with the low frequencies of an image."""

    def __init__(self, width: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.modes = modes
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(width, width, modes, modes, 2) / width) for _ in range(2)])
        self.enter, self.leave = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)
        self.along = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for weight, along in zip(self.weights, self.along, strict=True):
            spectrum = torch.fft.rfft2(x.float() if x.dtype in (torch.bfloat16, torch.float16) else x)
            low = spectrum[..., : self.modes, : self.modes]
            own = torch.view_as_complex(weight.to(low.real.dtype).contiguous())
            mixed = (low[:, :, None] * own).sum(1)
            full = torch.zeros_like(spectrum)
            full[..., : self.modes, : self.modes] = mixed
            x = F.gelu(torch.fft.irfft2(full, s=x.shape[-2:]).to(x.dtype) + along(x))
        return self.leave(x)


class Codes(nn.Module):
    """Vectors replaced by the nearest of a codebook, gradients passed straight through."""

    def __init__(self, width: int = 32, codes: int = 256) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(1, width, 8, 4, 2), nn.GELU(), nn.Conv1d(width, width, 8, 4, 2))
        self.book = nn.Embedding(codes, width)
        self.decode = nn.Sequential(nn.ConvTranspose1d(width, width, 8, 4, 2), nn.GELU(), nn.ConvTranspose1d(width, 1, 8, 4, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(x).transpose(1, 2)
        far = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.book.weight.T + self.book.weight.pow(2).sum(-1)
        near = self.book(far.argmin(-1))
        loss = F.mse_loss(near, z.detach()) + 0.25 * F.mse_loss(z, near.detach())
        return self.decode((z + (near - z).detach()).transpose(1, 2)), loss


class Decoder(nn.Module):
    """One token after a long past: keys and values are written where the token stands, and attended to as far."""

    def __init__(self, width: int = 512, heads: int = 8, length: int = 1024, layers: int = 4) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2 * layers)])
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.gate = nn.ModuleList([nn.Linear(width, 8 * width // 2, bias=False) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(2 * width, width, bias=False) for _ in range(layers)])
        for k in range(layers):
            self.register_buffer(f"keys{k}", torch.randn(4, heads, length, width // heads))
            self.register_buffer(f"values{k}", torch.randn(4, heads, length, width // heads))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        mask = torch.arange(self.length, device=x.device) <= position
        for k, (qkv, out, gate, down) in enumerate(zip(self.qkv, self.out, self.gate, self.down, strict=True)):
            q, key, value = qkv(self.norms[2 * k](x)).view(x.shape[0], 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            keys = getattr(self, f"keys{k}").index_copy(2, position, key)
            values = getattr(self, f"values{k}").index_copy(2, position, value)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[None, None])
            x = x + out(y.transpose(1, 2).reshape(x.shape))
            a, b = gate(self.norms[2 * k + 1](x)).chunk(2, -1)
            x = x + down(F.silu(a) * b)
        return x


def _images(count: int, channels: int, size: int) -> Tensor:
    return torch.randn(count, channels, size, size)


def _boxes(count: int) -> Tensor:
    low = torch.rand(count, 2) * 500
    return torch.cat([low, low + 16 + torch.rand(count, 2) * 120], 1)


def vision(name: str, count: int = 16) -> Callable[[], zoo.Case]:
    def build() -> zoo.Case:
        module, _, kwargs = zoo.vision_model(name)()
        return module, (_images(count, 3, 224),), kwargs

    return build


def _made(make: Callable[[], nn.Module], *args: Callable[[], Tensor]) -> Callable[[], zoo.Case]:
    return lambda: (make().eval(), tuple(arg() for arg in args), {})


MODELS: dict[str, Callable[[], zoo.Case]] = {
    "unet": _made(UNet, lambda: _images(8, 3, 128)),
    "diffusion": _made(Diffusion, lambda: _images(8, 4, 32), lambda: torch.rand(8) * 1000),
    "efficientnet": vision("efficientnet_b0"),
    "convnext": vision("convnext_tiny"),
    "swin": vision("swin_t", 8),
    "t5": zoo.text_model(
        "T5ForConditionalGeneration", "T5Config", batch=4, d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, vocab_size=1000
    ),
    "mamba": _made(Mamba, lambda: torch.randn(8, 32, 128)),
    "graph": _made(GraphNet, lambda: torch.randn(4000, 64), lambda: torch.randint(0, 4000, (2, 40000))),
    "tables": _made(Tables, lambda: torch.randn(1024, 13), lambda: torch.randint(0, 5000, (1024, 8, 5))),
    "recurrent": _made(Recurrent, lambda: torch.randn(32, 16, 128)),
    "boxes": _made(Boxes, lambda: torch.randn(4, 4000, 4), lambda: torch.randn(4, 4000, 20), lambda: _boxes(4000), lambda: _boxes(50)),
    "rays": _made(Rays, lambda: torch.rand(1024, 3), lambda: torch.randn(1024, 3), lambda: torch.rand(1024, 64).sort(1).values),
    "conformer": _made(Conformer, lambda: torch.randn(8, 200, 144), lambda: torch.randint(100, 201, (8,))),
    "experts": _made(Experts, lambda: torch.randn(512, 128)),
    "waves": _made(Waves, lambda: _images(8, 3, 64)),
    "codes": _made(Codes, lambda: torch.randn(8, 1, 4096)),
    "decoder": _made(Decoder, lambda: torch.randn(4, 1, 512), lambda: torch.tensor([700])),
}
