"""The cases of the performance cookbook: each as people write it first, and as it is quick, measured in turns in one process.

    python benchmarks/cookbook.py                # all cases; writes the table of docs/guides/cookbook.md
    python benchmarks/cookbook.py sizes loop     # these alone, printed

A case gives two calls that compute the same; the ratio of their quickest runs is what the page shows. Both are compiled with opmill."""

from __future__ import annotations

import copy
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

import opmill

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "cookbook.md"
ROUNDS = 30
Run = Callable[[], object]
Case = Callable[[], tuple[Run, Run]]
CASES: dict[str, tuple[str, Case]] = {}


def case(what: str) -> Callable[[Case], Case]:
    def add(made: Case) -> Case:
        CASES[made.__name__] = what, made
        return made

    return add


def layers(count: int, width: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(count)))


@case("a branch on values inside of a loop → `torch.where`")
def loop() -> tuple[Run, Run]:
    net, x = layers(12, 64), torch.randn(16, 64)

    def branch(x: torch.Tensor) -> torch.Tensor:
        for layer in net:
            x = layer(x)
            if x.abs().max() > 100:
                x = x / 10
        return x

    def where(x: torch.Tensor) -> torch.Tensor:
        for layer in net:
            x = layer(x)
            x = torch.where(x.abs().max() > 100, x / 10, x)
        return x

    first, then = opmill.compile(branch), opmill.compile(where)
    return lambda: first(x), lambda: then(x)


@case("`.item()` for a log in each step → the tensor, read when it is needed")
def item() -> tuple[Run, Run]:
    net, x = layers(4, 64), torch.randn(16, 64)
    seen: list[float] = []
    kept: list[torch.Tensor] = []

    def read(x: torch.Tensor) -> torch.Tensor:
        for layer in net:
            x = layer(x)
            seen.append(float(f"{x.mean().item():.3f}"))
        return x

    def later(x: torch.Tensor) -> torch.Tensor:
        for layer in net:
            x = layer(x)
            kept.append(x.mean())
        return x

    first, then = opmill.compile(read), opmill.compile(later)
    return lambda: (first(x), seen.clear()), lambda: (then(x), kept.clear())


@case("gradients recorded where nobody asks for them → `torch.no_grad()`")
def gradients() -> tuple[Run, Run]:
    net, x = layers(8, 128), torch.randn(64, 128)
    fast = opmill.compile(net)

    def without() -> object:
        with torch.no_grad():
            return fast(x)

    return lambda: fast(x), without


@case("float64 by accident (`torch.tensor(np.ones(...))`) → float32")
def doubles() -> tuple[Run, Run]:
    x, wide = torch.randn(1024, 512), torch.ones(512, dtype=torch.float64)
    narrow = wide.float()
    fast = opmill.compile(lambda x, w: F.gelu(x * w).softmax(-1))
    return lambda: fast(x, wide), lambda: fast(x, narrow)


@case("many small calls → one for a batch")
def batches() -> tuple[Run, Run]:
    net, rows = opmill.compile(layers(4, 64)), list(torch.randn(64, 1, 64))
    whole = torch.cat(rows)

    def each() -> object:
        with torch.no_grad():
            return [net(row) for row in rows]

    def together() -> object:
        with torch.no_grad():
            return net(whole)

    return each, together


@case("the model alone compiled → with its loss")
def loss() -> tuple[Run, Run]:
    head, x, y = torch.nn.Linear(8, 4000), torch.randn(512, 8), torch.randint(0, 4000, (512,))
    fast = opmill.compile(head)

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(x), y)

    whole = opmill.compile(both)
    return lambda: F.cross_entropy(fast(x), y).backward(), lambda: whole(x, y).backward()


@case("forward compiled, the optimizer torch's → the whole step compiled")
def step() -> tuple[Run, Run]:
    net, x = layers(12, 64), torch.randn(16, 64)
    optimizer = torch.optim.AdamW(net.parameters())
    fast, other = opmill.compile(net), copy.deepcopy(net)
    its = torch.optim.AdamW(other.parameters())

    def apart() -> object:
        optimizer.zero_grad()
        fast(x).square().mean().backward()
        return optimizer.step()

    @opmill.compile
    def whole(x: torch.Tensor) -> torch.Tensor:
        its.zero_grad()
        found = other(x).square().mean()
        found.backward()
        its.step()
        return found

    return apart, lambda: whole(x)


@case('convolutions with batch norms → `options={"freeze": True}` for serving')
def freeze() -> tuple[Run, Run]:
    def block(a: int, b: int) -> list[torch.nn.Module]:
        return [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU()]

    net = torch.nn.Sequential(*block(3, 32), *block(32, 32), *block(32, 32)).eval()
    x = torch.randn(4, 3, 32, 32)
    first, then = opmill.compile(net), opmill.compile(net, options={"freeze": True})

    def run(fast: Run) -> object:
        with torch.no_grad():
            return fast(x)  # type: ignore[call-arg]

    return lambda: run(first), lambda: run(then)


@case("a new length in each call with `dynamic=False` → sizes as symbols (whole first pass)")
def sizes() -> tuple[Run, Run]:
    def passes(dynamic: bool | None) -> Run:
        def run() -> object:
            fast = opmill.compile(lambda x: F.gelu(x).softmax(-1).sum(0), dynamic=dynamic, options={"cache": False})
            return [fast(torch.randn(n, 64)) for n in range(4, 10)]

        return run

    return passes(False), passes(None)


def measured(name: str) -> tuple[float, float]:
    """Seconds of the two calls of a case: the quickest of each, taken in turns, since others use the machine."""
    first, then = CASES[name][1]()
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range((3 if name == "sizes" else ROUNDS) + 2):
        for run, found in zip((first, then), times, strict=True):
            start = time.perf_counter()
            run()
            if turn >= 2:
                found.append(time.perf_counter() - start)
    before, after = map(min, times)
    return before, after


def rows(names: list[str]) -> Iterator[str]:
    for name in names:
        before, after = measured(name)
        yield f"| [{name}](#{name}) | {CASES[name][0]} | {before * 1e3:.2f} ms | {after * 1e3:.2f} ms | {before / after:.1f} |"


def main() -> None:
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or list(CASES)
    table = "\n".join(["| | from → to | before | after | times as fast |", "|---|---|---|---|---|", *rows(names)])
    print(table)
    if names == list(CASES) and PAGE.exists():
        text = PAGE.read_text()
        PAGE.write_text(re.sub(r"(?<=<!-- measured -->\n)[\s\S]*?(?=<!-- /measured -->)", lambda _: f"\n{table}\n\n", text))


if __name__ == "__main__":
    main()
