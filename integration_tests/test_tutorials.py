"""Training loops as tutorials have them: they print, read numbers, feed from NumPy and lists. What is printed, the state and what is drawn
are eager's, in as many pieces as are said here."""

from __future__ import annotations

import collections
import contextlib
import io
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opmill

Compile = Callable[[Any], Any]
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def autoencoder(compiled: Compile) -> Any:
    encoder, decoder = nn.Linear(12, 6), nn.Linear(3, 12)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)

    def train(epoch: int, loader: list[torch.Tensor]) -> None:
        train_loss = 0.0
        for i, data in enumerate(loader):
            optimizer.zero_grad()
            mean, spread = encoder(data).chunk(2, dim=1)
            z = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
            loss = F.mse_loss(decoder(z), data) - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            if i % 2 == 0:
                print(f"Train Epoch: {epoch} [{i}/{len(loader)} ({100.0 * i / len(loader):.0f}%)]\tLoss: {loss.item():.4f}")
        print(f"====> Epoch: {epoch} Average loss: {train_loss / len(loader):.4f}")

    step = compiled(train)
    for epoch in range(3):
        step(epoch, [torch.rand(4, 12) for _ in range(3)])
    return encoder.state_dict(), decoder.state_dict()


def replay(compiled: Compile) -> Any:
    policy = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    memory: collections.deque[Any] = collections.deque(maxlen=40)

    def learn() -> float | None:
        if len(memory) < 6:
            return None
        states, actions, rewards = zip(*random.sample(memory, 6), strict=True)
        values = policy(torch.cat(states)).gather(1, torch.cat(actions))
        loss = F.smooth_l1_loss(values, torch.cat(rewards).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss %.4f of %d" % (loss.item(), len(states)))  # noqa: UP031
        return loss.item()

    step, losses = compiled(learn), []
    for turn in range(16):
        memory.append((torch.randn(1, 4), torch.tensor([[turn % 2]]), torch.tensor([float(turn % 3)])))
        losses.append(step())
    return policy.state_dict(), losses, random.random()


def negative_samples(compiled: Compile) -> Any:
    inside, outside = nn.Embedding(20, 4), nn.Embedding(20, 4)
    optimizer = torch.optim.SGD([*inside.parameters(), *outside.parameters()], lr=0.5)
    table = np.random.permutation(np.repeat(np.arange(20), 3))
    running = [0.0]

    def train(turn: int, words: np.ndarray, others: np.ndarray, rate: np.float64) -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        near = (inside(torch.from_numpy(words)) * outside(torch.from_numpy(others))).sum(1)
        far = inside.weight[words] @ outside.weight[table[:5]].T
        loss = -F.logsigmoid(near).mean() - F.logsigmoid(-far).mean() * rate
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running[0] = running[0] * 0.9 + loss.item() * 0.1
        print(f"{turn}: {running[0]:.4f} at {rate:.3f}")

    step = compiled(train)
    for turn in range(8):
        step(turn, np.random.randint(0, 20, 6), np.random.randint(0, 20, 6), np.float64(0.5 * math.cos(turn / 9)))
    return inside.state_dict(), running


def tokens(compiled: Compile) -> Any:
    data = np.random.randint(0, 31, 400).astype(np.uint16)
    model = nn.Sequential(nn.Embedding(31, 8), nn.Linear(8, 31))

    def losses(start: int) -> Any:
        x = torch.from_numpy(data[start : start + 8].astype(np.int64))
        y = torch.from_numpy(data[start + 1 : start + 9].astype(np.int64))
        loss = F.cross_entropy(model(x), y)
        print("val", round(loss.item(), 2), f"{loss:.3f}")
        return loss.detach()

    step = compiled(losses)
    return [step(start) for start in (3, 40, 200, 77, 5)]


#: Program -> how many breaks and how many compilations of something again there are at most.
PROGRAMS = {autoencoder: (0, 3), replay: (1, 4), negative_samples: (0, 4), tokens: (1, 3)}


def run(program: Callable[[Compile], Any], compiled: Compile) -> tuple[Any, str]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        found = program(compiled)
    return found, said.getvalue()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_tutorials(program: Callable[[Compile], Any]) -> None:
    opmill.reset()
    opmill.reset_counters()
    (want, texts), (got, ours) = (
        run(program, lambda function: function),
        run(program, lambda function: opmill.compile(function, backend="eager")),
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", texts) and "\n" in texts
    assert [*map(float, NUMBER.findall(ours))] == pytest.approx([*map(float, NUMBER.findall(texts))], rel=1e-3, abs=2e-3)
    breaks, recompiles = PROGRAMS[program]
    counted = opmill.counters()
    assert counted["breaks"] <= breaks and counted["recompiles"] <= recompiles, counted
