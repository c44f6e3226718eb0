"""Random networks as Python source: layers as models put them together, over images, rows and vectors.

A network is made statement by statement and run eagerly on the way, so that shapes fit. Nothing in it jumps (pools hand out no positions),
so that right implementations agree but for rounding.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

ACTIVATIONS = "relu gelu silu hardswish hardsigmoid leaky_relu elu mish tanh sigmoid softplus relu6 selu softsign logsigmoid".split()
NAMES: dict[str, Any] = {"torch": torch, "nn": nn, "F": nn.functional}


@dataclass
class Network:
    """``source`` defines the class ``Network``; ``inputs`` are given to it. ``train``: whether it is in training mode; ``grad``: whether
    gradients are taken; ``autocast``: whether it runs in mixed precision."""

    source: str
    inputs: list[torch.Tensor]
    seed: int
    train: bool
    grad: bool
    autocast: bool

    def module(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The network with the weights of its seed."""
        names = dict(NAMES)
        exec(self.source, names)
        torch.manual_seed(self.seed)
        made: nn.Module = names["Network"]()
        for name, p in made.named_parameters():  # what starts as zeros or ones shall not hide what is left out
            if p.dim() == 1:
                nn.init.uniform_(p, 0.5, 1.5) if "weight" in name else nn.init.uniform_(p, -0.5, 0.5)
        return made.to(dtype).train(self.train)


class Maker:
    """A network in the making. ``env`` holds the values of its variables."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.env: dict[str, torch.Tensor] = {}
        self.layers: list[str] = []
        self.lines: list[str] = []
        self.holder = nn.Module()

    def layer(self, text: str) -> str:
        """Adds a layer; how the forward calls it."""
        name = f"l{len(self.layers)}"
        setattr(self.holder, name, eval(text, dict(NAMES)))
        self.layers.append(f"self.{name} = {text}")
        return f"self.{name}"

    def emit(self, text: str) -> str:
        """Adds a statement; the variable that it makes."""
        value = eval(text, {**NAMES, **self.env, "self": self.holder})
        name = f"v{len(self.env)}"
        self.lines.append(f"{name} = {text}")
        self.env[name] = value
        return name

    def pick(self, *choices: Any) -> Any:
        return self.r.choice(choices)

    def like(self, x: str) -> list[str]:
        """Other variables of the same shape."""
        return [name for name, value in self.env.items() if value.shape == self.env[x].shape]

    def divisor(self, number: int) -> int:
        return int(self.r.choice([n for n in range(1, number + 1) if number % n == 0]))


Step = Callable[[Maker, str], str]
STEPS: dict[int, list[tuple[int, Step]]] = {2: [], 3: [], 4: []}


def step(*ranks: int, often: int = 1) -> Callable[[Step], Step]:
    """A row: a step for variables of these ranks, ``often`` times as likely as others. It raises where it does not fit."""

    def add(function: Step) -> Step:
        for rank in ranks:
            STEPS[rank].append((often, function))
        return function

    return add


# --- images -------------------------------------------------------------------------------------------------------------------------


@step(4, often=6)
def convolution(m: Maker, x: str) -> str:
    c = m.env[x].shape[1]
    groups = m.pick(1, 1, c, m.divisor(c))
    out = groups * m.pick(1, 2, max(1, 8 // groups), max(1, 12 // groups))
    kernel = m.pick("1", "3", "3", "5", "(1, 3)", "(3, 1)", "2")
    padding = m.pick("0", "1", "1", "2", "(0, 1)")
    stride, dilation = m.pick("1", "1", "2", "(1, 2)"), m.pick("1", "1", "1", "2")
    mode = m.pick(*["zeros"] * 5, "reflect", "circular", "replicate")
    return m.emit(
        f"{m.layer(f'nn.Conv2d({c}, {out}, {kernel}, {stride}, {padding}, {dilation}, {groups}, {m.pick(True, False)}, {mode!r})')}({x})"
    )


@step(4)
def transposed(m: Maker, x: str) -> str:
    c, stride = m.env[x].shape[1], m.pick(1, 2, 2)
    groups = m.pick(1, 1, m.divisor(c))
    extra = m.pick(0, stride - 1)
    return m.emit(
        f"{m.layer(f'nn.ConvTranspose2d({c}, {groups * m.pick(1, 3, 4)}, {m.pick(2, 3, 4)}, {stride}, {m.pick(0, 1)}, {extra}, {groups})')}({x})"
    )


@step(4, often=2)
def pooling(m: Maker, x: str) -> str:
    kernel, stride = m.pick("2", "3", "(2, 3)"), m.pick("1", "2", "2")
    padding, up = m.pick("0", "1"), m.pick(True, False)
    most = f"F.max_pool2d({x}, {kernel}, {stride}, {padding}, {m.pick(1, 1, 2)}, {up})"
    mean = f"F.avg_pool2d({x}, {kernel}, {stride}, {padding}, {up}, {m.pick(True, False)})"
    size = m.pick("1", "(1, 1)", "(3, 2)", "4", "(None, 1)")
    return m.emit(
        m.pick(
            most,
            mean,
            f"F.adaptive_avg_pool2d({x}, {size})",
            f"F.adaptive_max_pool2d({x}, {size})",
            f"F.lp_pool2d({x}.abs() + 0.1, 2, {kernel}, {stride})",
        )
    )


@step(4, often=2)
def image_norm(m: Maker, x: str) -> str:
    c, h, w = m.env[x].shape[1:]
    layer = m.pick(
        f"nn.BatchNorm2d({c})", f"nn.BatchNorm2d({c}, affine=False)", f"nn.BatchNorm2d({c}, "
            f"track_running_stats=False)", f"nn.GroupNorm({m.divisor(c)}, {c})",
        f"nn.GroupNorm(1, {c})", f"nn.InstanceNorm2d({c}, affine={m.pick(True, False)})", f"nn.LayerNorm([{c}, {h}, "
            f"{w}])", f"nn.LocalResponseNorm({m.pick(2, 3)})",
    )  # fmt: skip
    return m.emit(f"{m.layer(layer)}({x})")


@step(4)
def norm_of_channels(m: Maker, x: str) -> str:
    return m.emit(f"{m.layer(f'nn.LayerNorm({m.env[x].shape[1]})')}({x}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)")


@step(4)
def resized(m: Maker, x: str) -> str:
    if m.env[x].shape[2] > 20:
        raise ValueError("large enough")
    how = m.pick("mode='nearest'", "mode='bilinear'", "mode='bilinear', align_corners=True", "mode='bicubic'", "mode='area'")
    return m.emit(f"F.interpolate({x}, {m.pick('scale_factor=2', 'size=(7, 5)', 'size=(9, 12)', 'scale_factor=0.5')}, {how})")


@step(4)
def padded(m: Maker, x: str) -> str:
    how = m.pick(
        "(1, 1, 1, 1)",
        "(0, 1, 2, 0), value=0.5",
        "(1, 2, 1, 0), mode='reflect'",
        "(1, 1, 0, 2), mode='replicate'",
        "(1, 0, 1, 1), mode='circular'",
        "(-1, 0, 0, -1)",
    )
    return m.emit(f"F.pad({x}, {how})")


@step(4, often=3)
def rearranged(m: Maker, x: str) -> str:
    n, c, h, w = m.env[x].shape
    g = m.divisor(c)
    return m.emit(m.pick(
        f"F.pixel_unshuffle({x}, 2)", f"F.pixel_shuffle({x}, 2)", f"{x}.reshape({n}, {g}, {c // g}, {h}, {w}).transpose(1, 2).reshape({n}, "
            f"{c}, {h}, {w})",
        f"torch.cat([{x}[..., ::2, ::2], {x}[..., 1::2, ::2], {x}[..., ::2, 1::2], {x}[..., 1::2, 1::2]], 1)", f"{x}.flip({m.pick(1, 2, 3)})",
        f"torch.roll({x}, (1, -2), (2, 3))", f"{x}.contiguous(memory_format=torch.channels_last)", f"{x}.transpose(2, 3)", f"{x}[:, ::2]",
        f"{x}[:, {c // 2}:]", f"{x}[:, :{max(c // 2, 1)}]", f"{x}.chunk(2, 1)[{m.pick(0, -1)}]", f"{x}[:, :, 1:, :-1]", f"{x}.permute(0, "
            f"1, 3, 2)",
    ))  # fmt: skip


@step(4, often=2)
def attended(m: Maker, x: str) -> str:
    c = m.env[x].shape[1]
    few = max(c // 4, 1)
    first, last = m.layer(f"nn.Conv2d({c}, {few}, 1)"), m.layer(f"nn.Conv2d({few}, {c}, 1)")
    squeezed = f"{x} * {last}({first}({x}.mean((2, 3), keepdim=True)).relu()).{m.pick('sigmoid()', 'tanh()')}"
    where = m.layer("nn.Conv2d(2, 1, 3, 1, 1)")
    return m.emit(m.pick(squeezed, f"{x} * {where}(torch.cat([{x}.mean(1, keepdim=True), {x}.amax(1, keepdim=True)], 1)).sigmoid()"))


@step(4, often=2)
def split_and_joined(m: Maker, x: str) -> str:
    n, c, h, w = m.env[x].shape
    others = [name for name, v in m.env.items() if v.dim() == 4 and v.shape[0] == n and v.shape[2:] == (h, w)]
    if m.r.random() < 0.5 and c % 2 == 0:
        half = m.layer(f"nn.Conv2d({c // 2}, {c // 2}, 3, 1, 1, 1, {m.pick(1, c // 2)})")
        parts = [f"{half}({x}.chunk(2, 1)[0])", f"{x}.chunk(2, 1)[1]"]
        m.r.shuffle(parts)
        return m.emit(f"torch.cat([{', '.join(parts)}], 1)")
    return m.emit(f"torch.cat([{x}, {m.r.choice(others)}], 1)")


@step(4)
def windows(m: Maker, x: str) -> str:
    n, c, h, w = m.env[x].shape
    return m.emit(m.pick(
        f"F.unfold({x}, {m.pick(2, 3)}, 1, {m.pick(0, 1)}, {m.pick(1, 2)}).transpose(1, 2)", f"{x}.unfold(2, 2, 1).mean(-1)",
        f"{x}.reshape({n}, {c}, {h} // 2, 2, {w} // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, {c})",
    ))  # fmt: skip


@step(4, often=2)
def to_rows(m: Maker, x: str) -> str:
    return m.emit(
        m.pick(
            f"{x}.flatten(2).transpose(1, 2)",
            f"{x}.flatten(2)",
            f"{x}.mean(3)",
            f"{x}.amax(2).transpose(1, 2)",
            f"{x}.permute(0, 2, 3, 1).flatten(1, 2)",
        )
    )


@step(4)
def to_vectors(m: Maker, x: str) -> str:
    return m.emit(
        m.pick(f"{x}.mean((2, 3))", f"F.adaptive_avg_pool2d({x}, 2).flatten(1)", f"{x}.amax((2, 3))", f"torch.logsumexp({x}, (2, 3))")
    )


# --- rows ---------------------------------------------------------------------------------------------------------------------------


@step(3, often=3)
def attention(m: Maker, x: str) -> str:
    n, rows, d = m.env[x].shape
    heads = m.divisor(d)
    parts = [f"{m.layer(f'nn.Linear({d}, {d})')}({x}).reshape({n}, {rows}, {heads}, {d // heads}).transpose(1, 2)" for _ in range(3)]
    q, k, v = (m.emit(p) for p in parts)
    mask = f"torch.ones({rows}, {rows}, dtype=torch.bool).tril()"
    score = f"({q} @ {k}.transpose(-1, -2)) * {d // heads} ** -0.5"
    mixed = m.pick(
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal={m.pick(True, False)})", f"F.scaled_dot_product_attention({q}, {k}, {v}, "
            f"attn_mask={mask})",
        f"torch.softmax({score}, -1) @ {v}", f"torch.softmax(({score}).masked_fill(~{mask}, float('-inf')), -1) @ {v}",
    )  # fmt: skip
    return m.emit(f"{m.layer(f'nn.Linear({d}, {d})')}(({mixed}).transpose(1, 2).reshape({n}, {rows}, {d}))")


@step(3)
def whole_attention(m: Maker, x: str) -> str:
    d = m.env[x].shape[2]
    return m.emit(m.pick(
        f"{m.layer(f'nn.MultiheadAttention({d}, {m.divisor(d)}, batch_first=True, dropout=0.0)')}({x}, {x}, {x}, need_weights=False)[0]",
        f"{m.layer(f'nn.TransformerEncoderLayer({d}, {m.divisor(d)}, {2 * d}, 0.0, batch_first=True, norm_first={m.pick(True, False)})')}({x})",
    ))  # fmt: skip


@step(3, often=2)
def rows_rearranged(m: Maker, x: str) -> str:
    n, rows, d = m.env[x].shape
    return m.emit(m.pick(
        f"{x}[:, ::2]", f"{x}[:, 1:]", f"{x}.transpose(1, 2)", f"torch.cat([{x}[:, :1], {x}], 1)", f"{x}.reshape({n}, -1)", f"{x}.flip(1)", f"{x}[..., :{max(d // 2, 1)}]",
        f"torch.cat([-{x}[..., {d // 2}:], {x}[..., :{d // 2}]], -1)", f"{x}.reshape({n}, {rows}, {d // 2}, 2).flip(-1).reshape({n}, "
            f"{rows}, {d})", f"{x}.cumsum(1)",
        f"torch.stack([{x}, {x} * 2], 1).mean(1)", f"{x}.unflatten(1, (-1, {m.divisor(rows)})).permute(0, 3, 1, 2)", f"F.pad({x}, (0, 0, "
            f"1, 0))[:, :-1]",
    ))  # fmt: skip


@step(3)
def convolution_of_rows(m: Maker, x: str) -> str:
    _, rows, d = m.env[x].shape
    groups = m.pick(1, d)
    layer = m.layer(
        f"nn.Conv1d({d}, {groups * m.pick(1, 2)}, {m.pick(1, 3, 4)}, {m.pick(1, 2)}, {m.pick(1, 2, 3)}, {m.pick(1, 2)}, {groups})"
    )
    return m.emit(m.pick(f"{layer}({x}.transpose(1, 2)).transpose(1, 2)", f"{layer}({x}.transpose(1, 2))[..., :{rows}].transpose(1, 2)"))


@step(3)
def recurrent(m: Maker, x: str) -> str:
    d = m.env[x].shape[2]
    kind = m.pick("GRU", "LSTM", "RNN")
    return m.emit(f"{m.layer(f'nn.{kind}({d}, {m.pick(4, 6)}, batch_first=True)')}({x})[0]")


@step(3)
def to_fewer(m: Maker, x: str) -> str:
    return m.emit(m.pick(f"{x}[:, 0]", f"{x}.mean(1)", f"{x}[:, -1]", f"{x}.amax(1)", f"(torch.softmax({x}, 1) * {x}).sum(1)"))


# --- what fits all -------------------------------------------------------------------------------------------------------------------


@step(2, 3, often=3)
def linear(m: Maker, x: str) -> str:
    d, out = m.env[x].shape[-1], m.pick(4, 8, 12, m.env[x].shape[-1])
    gated = f"F.{m.pick('silu', 'gelu', 'sigmoid')}({{}}({x})) * {{}}({x})"
    layers = [m.layer(f"nn.Linear({d}, {out}, bias={m.pick(True, False)})") for _ in range(2)]
    return m.emit(m.pick(f"{layers[0]}({x})", f"{layers[0]}({x})", gated.format(*layers)))


@step(2, 3, often=2)
def norm_of_rows(m: Maker, x: str) -> str:
    d = m.env[x].shape[-1]
    by_hand = f"{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-5)"
    return m.emit(
        m.pick(
            f"{m.layer(f'nn.LayerNorm({d})')}({x})",
            f"{m.layer(f'nn.RMSNorm({d})')}({x})",
            by_hand,
            f"F.normalize({x}, dim=-1)",
            f"torch.softmax({x}, {m.pick(-1, 1)})",
            f"F.log_softmax({x}, -1)",
        )
    )


@step(2)
def norm_of_batch(m: Maker, x: str) -> str:
    return m.emit(f"{m.layer(f'nn.BatchNorm1d({m.env[x].shape[1]})')}({x})")


@step(2)
def similar(m: Maker, x: str) -> str:
    return m.emit(
        m.pick(
            f"{x} @ {x}.t()",
            f"{x}[:, :, None] * {x}[:, None, :]",
            f"torch.cdist({x}[None], {x}[None] + 1)[0]",
            f"torch.einsum('nd,md->nm', {x}, {x})",
        )
    )


@step(2, 3, 4, often=4)
def activated(m: Maker, x: str) -> str:
    c = m.env[x].shape[1]
    kinds = [f"F.{m.r.choice(ACTIVATIONS)}({x})"] * 5 + [
        f"{m.layer(f'nn.PReLU({c})')}({x})",
        f"F.glu({x}, 1)",
        f"torch.softmax({x}, 1)",
        f"F.gelu({x}, approximate='tanh')",
        f"{x}.clamp(-1, 1)",
    ]
    return m.emit(m.r.choice(kinds))


@step(2, 3, 4, often=4)
def added(m: Maker, x: str) -> str:
    other = m.r.choice(m.like(x))
    scale = m.layer(f"nn.Linear({m.env[x].shape[-1]}, 1, bias=False)")
    return m.emit(
        m.pick(
            f"{x} + {other}",
            f"{x} + {other}",
            f"{x} * {other}",
            f"{other} + {x} * {scale}.weight[0]",
            f"torch.where({x} > 0, {x}, {other} * 0.5)",
            f"torch.lerp({x}, {other}, 0.3)",
        )
    )


# --- networks -----------------------------------------------------------------------------------------------------------------------


def random_network(seed: int) -> Network:
    """The network of a seed, of at most a dozen steps."""
    m = Maker(seed)
    train, grad = m.r.random() < 0.5, m.r.random() < 0.6
    m.holder.train(train)
    torch.manual_seed(seed)
    m.env["x0"] = given(m)
    inputs = [m.env["x0"].detach().clone(memory_format=torch.preserve_format) if m.env["x0"].is_contiguous() else m.env["x0"]]
    at, steps, tries = "x0", m.r.randint(3, 14), 0
    while steps and tries < 80:
        tries += 1
        rows = STEPS.get(m.env[at].dim(), [])
        if not rows:
            at = m.r.choice(list(m.env))
            continue
        layer, line, env = len(m.layers), len(m.lines), dict(m.env)
        [(_, taken)] = m.r.choices(rows, [often for often, _ in rows])
        try:
            with torch.no_grad():
                m.holder.train(train)
                new = taken(m, at)
            if not 0 < m.env[new].numel() <= 20_000 or not m.env[new].isfinite().all() or m.env[new].abs().max() > 1e3:
                raise ValueError("too large")
        except Exception:
            del m.layers[layer:], m.lines[line:]
            m.env = env
            continue
        at, steps = (new if m.r.random() < 0.85 else m.r.choice(list(m.env))), steps - 1
    made = [name for name in m.env if name != "x0"]
    wanted = list(dict.fromkeys([*made[-1:], *m.r.sample(made, min(len(made), m.pick(0, 1, 2)))])) or ["x0 + 1"]
    text = " ".join(m.lines)
    layers = [line for line in m.layers if re.search(rf"{line.split(' = ')[0]}\b", text)]  # a step makes some that it does not take
    body = "\n        ".join(["super().__init__()", *layers]), "\n        ".join([*m.lines, f"return {', '.join(wanted)},"])
    source = f"class Network(nn.Module):\n    def __init__(self):\n        {body[0]}\n\n    def forward(self, x0):\n        {body[1]}\n"
    return Network(source, inputs, seed, train, grad, m.r.random() < 0.2)


def given(m: Maker) -> torch.Tensor:
    """An input, of some layout."""
    n, c = m.pick(1, 2, 3), m.pick(3, 4, 8, 12)
    if m.r.random() < 0.7:
        h, w = m.pick(6, 8, 9, 16), m.pick(6, 8, 11, 16)
        return m.pick(
            torch.randn(n, c, h, w), torch.randn(n, c, h, w), torch.randn(n, c, h, w).contiguous(memory_format=torch.channels_last),
            torch.randn(n, 2 * c, h, w)[:, :c], torch.randn(n, h, w, c).permute(0, 3, 1, 2),
        )  # fmt: skip
    return m.pick(torch.randn(n, m.pick(5, 8, 12), c), torch.randn(m.pick(5, 8), n, c).transpose(0, 1), torch.randn(max(n, 2) * 2, c))
