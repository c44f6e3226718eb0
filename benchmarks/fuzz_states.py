"""Random modules that train with breaks in them and write their own buffers, compiled, against eager and float64: results, gradients, buffers
and attributes of four steps on a state that goes on.

usage: fuzz_states.py [--seed 0] [--count 200] [--only SEED]

What a step writes behind a break, or after its results are there, must not be what its backward reads. Where eager raises, the seed is
skipped; so it is where numbers leave all bounds.
"""

from __future__ import annotations

import argparse
import collections
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import opmill

STEPS, WIDTH = 4, 4
LARGE = 1e12
"""Beyond this, rounding decides what overflows."""
STATEMENTS = """
    y = y @ self.{w}; y = torch.tanh(y) * self.{b}; y = y + self.{b}.clone(); y = y * torch.sigmoid(self.{b}); y = F.gelu(y); B(); B(y.shape)
    y = y * self.{b}.sigmoid().clone().detach(); k = int(self.n) + 1; z = self.{b} * 2 + 1; y = y * z; y = y + z.detach(); y = y + x; x = x * 2
    with torch.no_grad(): self.{b}.mul_(0.9).add_(y.detach().mean(0), alpha=0.1); with torch.no_grad(): self.{b} = self.{b} * 0.5 + y.detach().mean(0)
    self.{b} = (self.{b} + y.mean(0)).detach(); self.{b}.copy_(y.detach().mean(0)); self.{b}[k % 4] = 0.5; self.n += 1; self.n.add_(1)
    y = y.clone().mul_(2); y[:, 0] = self.{b}[0]; y = torch.where(self.{b} > 0, y, y * 0.5); outs.append(y.sum()); y = F.dropout(y, 0.3)
    y = F.layer_norm(y, (4,), self.v[0], self.a); y = F.linear(y, self.{w}, self.{b}); y = y * self.{b}[1:].clone().sum(); y = (y * y).cumsum(0)
    y = y * self.{b}.detach().clone().sigmoid(); y = y.softmax(-1) @ torch.diag(self.{b}.clone()); y = y.view(2, -1).flatten().view(-1, 4)
    y = y @ self.{w}.detach().clone(); self.cache = y.detach() * self.{b}; y = y + self.cache.sum(); y = torch.cat([y, x])[: len(x)]
    y = y - y.mean(0, keepdim=True) * self.{b}.abs().sqrt()
    y = y + torch.autograd.grad((y * self.{w}[0]).sum(), self.{w}, retain_graph=True, create_graph=True)[0].mean(0)
""".replace("\n", ";").split(";")  # fmt: skip
CLASS = """class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = (nn.Parameter(torch.randn(4, 4) / 2) for _ in range(2))
        for name in "abc":
            self.register_buffer(name, torch.rand(4) + 0.1)
        self.register_buffer("n", torch.zeros((), dtype=torch.long))
        self.cache = torch.ones(4)

    def forward(self, x):
        y, z, outs, k = x @ self.w, self.a + 1, [], 0
"""


@opmill.disable
def B(*_: object) -> None:
    """Ends a graph."""


def random_module(seed: int) -> str:
    r = random.Random(seed)
    choices = [text.strip() for text in STATEMENTS if text.strip()]
    lines = [r.choice(choices).format(b=r.choice("abc"), w=r.choice("wv")) for _ in range(r.randint(4, 11))]
    return CLASS + "".join(f"        {line}\n" for line in [*lines, "return y, outs"])


def steps(source: str, wrapped: Callable[[nn.Module], Any], dtype: torch.dtype = torch.float32) -> list[list[torch.Tensor | None]]:
    """What each step gives and leaves."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "B": B}
    exec(source, names)
    torch.manual_seed(1)
    module = names["Module"]().to(dtype)
    module.cache = module.cache.to(dtype)
    call, found = wrapped(module), []
    for step in range(STEPS):
        torch.manual_seed(10 + step)
        x = torch.randn(4, WIDTH).to(dtype).requires_grad_(step % 2 == 0)
        module.zero_grad()
        y, outs = call(x)
        (y * torch.linspace(0.5, 1.5, y.numel(), dtype=dtype).view(y.shape)).sum().add(sum(outs)).backward()
        results = [y.detach(), *(each.detach() for each in outs), *module.buffers(), module.cache]
        gradients = [each.grad for each in (x, *module.parameters())]
        found.append([None if each is None else each.double().clone() for each in (*results, *gradients)])
    return found


def problem(source: str) -> str | None:
    """What differs; None where eager raises, or numbers leave all bounds."""
    try:
        eager, exact = steps(source, lambda module: module), steps(source, lambda module: module, torch.float64)
    except RuntimeError:
        return None
    if any(t is not None and not bool((t.abs() < LARGE).all()) for step in (*eager, *exact) for t in step):
        return None
    opmill.reset()
    try:
        ours = steps(source, opmill.compile)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for number, found in enumerate(zip(ours, eager, exact, strict=True)):
        for k, (g, w, e) in enumerate(zip(*found, strict=True)):
            if g is None or w is None or e is None or g.shape != w.shape:
                if g is not w:
                    return f"step {number}: {k}: {g} instead of {w}"
                continue
            off, theirs = float((g - e).abs().max()), float((w - e).abs().max())
            if not off <= 10 * theirs + 2e-4 * (float(e.abs().max()) + 0.05):
                return f"step {number}: {k}: off by {off:.3g}, eager by {theirs:.3g}"
    return ""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=200)
    arguments.add_argument("--only", type=int)
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    for seed in [options.only] if options.only is not None else range(options.seed, options.seed + options.count):
        found = problem(source := random_module(seed))
        counts["skipped" if found is None else "wrong" if found else "right"] += 1
        if found:
            print(f"---- seed {seed}: {found}\n{source}", flush=True)
    print(dict(counts))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
