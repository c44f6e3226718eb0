"""Ordinary programs made at random: a model with a configuration, state, callbacks, blocks of context managers, properties and early ends.

Each piece is what people write, in a few lines: names that the constructor sets, and statements of ``forward`` over ``x`` (and ``mode``,
``extra``, ``tags``: what calls bring). Two models of one text live side by side, one is called plainly and one through the capture."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

WIDTH = 4

HEAD = """
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math
from typing import Any, NamedTuple, Optional
import torch
from torch import nn
import torch.nn.functional as F

WIDTH = 4
SETTINGS = {"scale": 0.5, "names": ["a", "b"]}

class Kind(enum.Enum):
    ADD = "add"
    MUL = "mul"

@dataclasses.dataclass
class Config:
    width: int = WIDTH
    rate: float = 0.25
    kind: Kind = Kind.ADD
    layers: int = 2
    names: list = dataclasses.field(default_factory=lambda: ["first", "second"])
    @property
    def doubled(self):
        return self.width * 2
    def with_rate(self, rate):
        return dataclasses.replace(self, rate=rate)

@dataclasses.dataclass(frozen=True)
class Point:
    at: int
    value: Any = None

class Output(NamedTuple):
    last: Any
    states: tuple
    note: Optional[str] = None

class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, value, n=1):
        self.total = self.total + value * n
        self.count += n
        return self
    @property
    def mean(self):
        return self.total / max(self.count, 1)

class Recorder:
    events: list
    def __init__(self):
        self.events = []
    def __call__(self, name, **more):
        self.events.append((name, sorted(more)))
    @contextlib.contextmanager
    def section(self, name):
        self.events.append(("begin", name))
        try:
            yield self
        finally:
            self.events.append(("end", name))

class Guarded:
    def __init__(self, owner, name, value):
        self.owner, self.name, self.value = owner, name, value
    def __enter__(self):
        self.before = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.value)
        return self.before
    def __exit__(self, kind, error, trace):
        setattr(self.owner, self.name, self.before)
        return kind is KeyError

class Registry:
    table: dict = {}
    @classmethod
    def add(cls, name):
        def wrap(function):
            cls.table[name] = function
            return function
        return wrap

@Registry.add("relu")
def _relu(x, *, slope=0.0):
    return torch.where(x > 0, x, x * slope)

@Registry.add("tanh")
def _tanh(x, **kwargs):
    return torch.tanh(x)

def traced(function):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        return function(self, *args, **kwargs)
    return inner

class Stopped(Exception):
    def __init__(self, value):
        super().__init__("stopped")
        self.value = value

class Block(nn.Module):
    scale: float = 1.0
    def __init__(self, config, index):
        super().__init__()
        self.config, self.index = config, index
        self.weight = nn.Parameter(torch.full((config.width,), 0.5 + index))
        self.register_buffer("seen", torch.zeros(()), persistent=False)
    @property
    def last(self):
        return self.index == self.config.layers - 1
    @staticmethod
    def shifted(x, by):
        return x + by
    def forward(self, x, hook=None):
        x = x * self.weight * self.scale
        if self.training:
            self.seen += 1
        if hook is not None:
            x = hook(self, x)
        return x if not self.last else self.shifted(x, self.config.rate)
"""


@dataclass
class Piece:
    init: str
    forward: str


PIECES = [
    Piece("self.mean = torch.zeros(WIDTH)", "self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1\nx = x - self.mean"),
    Piece('self.register_buffer("power", torch.ones(WIDTH))', "self.power.mul_(0.9).add_(0.1)\nx = x * self.power"),
    Piece('self.register_buffer("steps", torch.tensor(0))', "self.steps += 1\nx = x + self.steps"),
    Piece("self.calls_made = 0", "self.calls_made += 1\nif self.calls_made % 2:\n    x = x + 1"),
    Piece(
        "self.blocks = nn.ModuleList(Block(self.config, i) for i in range(self.config.layers))",
        "for i, block in enumerate(self.blocks):\n    x = block(x)\n    if i == extra:\n        break\nelse:\n    x = x * 0.5",
    ),
    Piece(
        "self.heads = nn.ModuleDict({n: Block(self.config, i) for i, n in enumerate(self.config.names)})",
        "head = self.heads[mode] if mode in self.heads else next(iter(self.heads.values()))\nx = head(x)",
    ),
    Piece(
        "self.hook = lambda block, x: x * 2 if block.last else x\nself.tail = nn.Sequential(Block(self.config, 0), Block(self.config, 1))",
        "for name, block in self.tail.named_children():\n    x = block(x, hook=self.hook if name == '1' else None)",
    ),
    Piece("self.meter = Meter()", "x = x + self.meter.update(float(extra), n=2).mean"),
    Piece("self.losses = Meter()", "self.losses.update(x.detach().sum())\nx = x + self.losses.mean"),
    Piece(
        "self.record = Recorder()",
        "with self.record.section(mode) as r:\n    x = x + 1\n    r('inside', size=1)\n    if extra == 2:\n        self.record('early')",
    ),
    Piece(
        "self.flag = 1",
        "with Guarded(self, 'flag', 3) as before:\n    x = x * self.flag + before\n    if extra == 1:\n        raise KeyError(mode)\n    x = x + 2",
    ),
    Piece(
        "self.callbacks = []",
        "self.callbacks.append(functools.partial(torch.add, other=extra))\nx = self.callbacks[-1](x)\ndel self.callbacks[:-1]",
    ),
    Piece(
        "self.activation = 'relu'",
        "x = Registry.table[self.activation](x, slope=SETTINGS['scale'])\nself.activation = 'tanh' if self.activation == 'relu' else 'relu'",
    ),
    Piece(
        "self.cache = {}",
        "key = (x.shape[0], mode)\nif key not in self.cache:\n    self.cache[key] = torch.arange(WIDTH, dtype=x.dtype)\nx = x + self.cache[key]",
    ),
    Piece(
        "self.history = collections.deque(maxlen=2)",
        "self.history.append(x.detach())\nif len(self.history) == 2 and self.history[0].shape == x.shape:\n    x = x + self.history[0]",
    ),
    Piece("self.rates = itertools.cycle([0.5, 2.0])", "x = x * next(self.rates)"),
    Piece(
        "self.config = self.config.with_rate(0.75)",
        "rate = self.config.rate if self.config.kind is Kind.ADD else 1.0\nx = x * rate + self.config.doubled",
    ),
    Piece(
        "self.point = Point(0)",
        "self.point = dataclasses.replace(self.point, at=self.point.at + 1, value=x.detach().sum())\nx = x + self.point.value",
    ),
    Piece(
        "",
        "try:\n    if extra == 3:\n        raise Stopped(x * 2)\n    x = x - 1\nexcept Stopped as stop:\n    x = stop.value\nfinally:\n    x = x + 0.5",
    ),
    Piece("", "kwargs = {'dim': -1, 'keepdim': True}\nif tags:\n    kwargs['dim'] = 0\nx = x - x.mean(**kwargs)"),
    Piece("", "parts = [x[i] for i in range(x.shape[0]) if i % 2 == 0]\nx = x + torch.stack(parts).sum(0)"),
    Piece("", "first, *rest = torch.chunk(x, 2, dim=1)\nx = torch.cat([*rest, first], dim=1)"),
    Piece("", "x = x + sum(len(t) for t in sorted(tags)) + ('a' in tags)"),
    Piece(
        "",
        "match mode:\n    case 'first' | 'second':\n        x = x + 1\n    case str(other) if other.startswith('t'):\n        x = x * 2\n    case _:\n        pass",
    ),
    Piece("", "if (n := x.shape[0]) > 3 and extra:\n    return Output(x * n, (x,), f'{mode}:{n}')"),
    Piece("", "if tags and 'stop' in tags:\n    return Output(x, (), None)"),
    Piece("", "def helper(y, *, by=extra):\n    nonlocal x\n    x = x + by\n    return y * 2\nz = helper(x)\nx = x + z"),
    Piece("", "gen = (x * k for k in range(3) if k != extra)\nfor part in gen:\n    x = x + part * 0.1"),
    Piece("", "states = {k: v for k, v in zip(('p', 'q'), (x, x + 1))}\nstates |= {'q': states.pop('p') * 2}\nx = states['q']"),
    Piece(
        "self.extra_state = None",
        "if self.extra_state is None or self.extra_state.shape != x.shape:\n    self.extra_state = torch.zeros_like(x)\nself.extra_state = self.extra_state + x.detach()\nx = x + self.extra_state",
    ),
    Piece("", "with torch.no_grad():\n    scale = x.abs().amax().clamp(min=1)\nx = x / scale"),
    Piece("self.drop = nn.Dropout(0.5)", "x = self.drop(x)"),
    Piece("self.norm = nn.BatchNorm1d(WIDTH)", "x = self.norm(x)"),
    Piece("self.total = torch.zeros(1)", "self.total += x.detach().sum()\nx = x + self.total.to(x.dtype)"),
    Piece(
        "self.slots = [None] * 3",
        "self.slots[extra % 3] = x.detach()[:1]\nx = x + sum((s for s in self.slots if s is not None), torch.zeros(1, WIDTH, dtype=x.dtype))",
    ),
    Piece("self.level = 0", "self.level = min(self.level + 1, 2)\nx = x ** self.level if self.level > 1 else x"),
    Piece("object.__setattr__(self, 'secret', {'k': 1.5})", "self.secret['k'] = self.secret['k'] / 2 + extra\nx = x + self.secret['k']"),
    Piece(
        "self.best = None",
        "loss = x.detach().abs().mean()\nif self.best is None:\n    self.best = loss\nelse:\n    self.best = torch.minimum(self.best, loss)\nx = x + self.best",
    ),
]


def program(seed: int) -> str:
    """The text of a program: its class ``Model``."""
    rng = random.Random(seed)
    pieces = rng.sample(PIECES, rng.randint(2, 6))
    init = [line for piece in pieces for line in piece.init.splitlines()]
    body = [line for piece in pieces for line in piece.forward.splitlines()]
    method = rng.random() < 0.4
    lines = [
        "class Model(nn.Module):",
        "    def __init__(self, config):",
        "        super().__init__()",
        "        self.config = config",
        *(f"        {line}" for line in init),
        *(["    @traced"] if rng.random() < 0.3 else []),
        f"    def {'_forward' if method else 'forward'}(self, x, mode='first', extra=0, tags=frozenset()):",
        *(f"        {line}" for line in body),
        "        return " + rng.choice(["x", "Output(x, (x * 2,), mode)", "{'x': x, 'n': len(tags)}", "[x, extra]"]),
    ]
    if method:
        lines += ["    def forward(self, *args, **kwargs):", "        return self._forward(*args, **kwargs)"]
    return HEAD + "\n" + "\n".join(lines) + "\n"


def call(rng: random.Random) -> dict[str, Any]:
    """What one call brings: the number of rows, and the other arguments."""
    return {
        "rows": rng.choice([3, 3, 3, 4, 6]),
        "double": rng.random() < 0.1,
        "given": {
            key: value
            for key, value in {
                "mode": rng.choice(["first", "second", "third", "x"]),
                "extra": rng.choice([0, 0, 1, 2, 3]),
                "tags": rng.choice([frozenset(), {"a"}, {"a", "bc"}, ["stop"], ("a",)]),
            }.items()
            if rng.random() < 0.5
        },
    }
