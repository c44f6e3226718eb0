"""How far the results of a random program move when what it rounds is rounded otherwise.

Next to a pole, behind a cancelled sum or where a function jumps, two right compilers may differ by more than any fixed tolerance. The
program is therefore run a few times in eager with every rounded step moved by some units in the last place (Monte Carlo arithmetic: Parker,
"Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", 1997); a result that lies within a few times the spread of
these runs is as right as eager's. Steps that every implementation computes to the last bit are not moved, so that what they decide stays
decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from random_graphs import Program, copied

RUNS, TIMES, ULPS = 24, 4.0, 4.0
CANCELLING = ("F.gelu(",)
"""Functions that eager computes to the last places of their argument, not of their value."""
EXTREMES = re.compile(r"(\w+) = (\w+)\.(?:amax|amin|max|min|cummax|cummin)\(")
"""Which of two zeros is the larger one is a matter of their places in memory."""

Results = tuple[list[torch.Tensor], list[torch.Tensor]]
"""What a program returns, and its inputs as they are afterwards."""


def moved(x: torch.Tensor, generator: torch.Generator, ulps: float = ULPS) -> torch.Tensor:
    """``x`` with each element moved by at most so many units in its last place, which those below the normal numbers share; what is no
    number with digits, and zero, as it is."""
    if not (x.is_floating_point() or x.is_complex()):
        return x
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
    about, noise = torch.finfo(x.dtype), noise * ulps
    small = x.abs() < about.smallest_normal
    return torch.where(small, x + x.sgn() * about.smallest_normal * about.eps * noise, x * (1 + about.eps * noise)).to(x.dtype)


def shaken(program: Program, inputs: Sequence[torch.Tensor], seed: int, ulps: float = ULPS) -> Results:
    """A run of ``program`` on copies of ``inputs`` whose rounded steps are moved."""
    generator = torch.Generator().manual_seed(seed)
    own = copied(list(inputs))
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    names |= {f"a{k}": x for k, x in enumerate(own)}
    *lines, last = [line.strip() for line in program.source.splitlines()[1:]]
    for k, line in enumerate(lines):
        target, sources = program.rounded.get(k, ("", ()))
        given = names | {s: moved(names[s], generator, min(ulps, 1.0)) for s in sources}
        exec(line, given)
        names |= {n: v for n, v in given.items() if n not in sources and n != "__builtins__"}
        if target:
            names[target].copy_(moved(names[target], generator, ulps))
        if (extreme := EXTREMES.match(line)) and isinstance(found := names[extreme[1]], torch.Tensor) and found.is_floating_point():
            zero = names[extreme[2]] == 0
            if bool((zero & names[extreme[2]].signbit()).any() and (zero & ~names[extreme[2]].signbit()).any()):
                found.copy_(torch.where(found == 0, -found if seed % 2 else found.abs(), found))
        if any(f in line for f in CANCELLING):
            (source,) = program.rounded[k][1] or (line.partition("(")[2].rstrip(")"),)
            names[target].add_((moved(names[source], generator, ulps) - names[source]).nan_to_num(0.0))
    return list(eval(last.removeprefix("return "), names)), own


def excused(program: Program, inputs: Sequence[torch.Tensor], want: Results) -> Callable[[torch.Tensor, int, int], torch.Tensor]:
    """What takes a result for the ``k``-th of ``want[part]`` and gives it with that in place of what lies within the spread."""
    runs = [shaken(program, inputs, seed) for seed in range(RUNS)]
    with torch.backends.mkldnn.flags(enabled=False):
        plain = shaken(program, inputs, 0, 0.0)

    def settle(got: torch.Tensor, part: int, k: int) -> torch.Tensor:
        w = want[part][k]
        if not (w.is_floating_point() or w.is_complex()) or got.shape != w.shape:
            return got
        wide = torch.complex128 if w.is_complex() else torch.float64
        others = torch.stack([run[part][k].to(wide) for run in runs])
        eager, mine = w.to(wide), got.to(wide)
        unsure = ~others.isfinite().all(0) & (others.isfinite().any(0) | eager.isfinite())
        flips = others.real.isinf().any(0) & (others.real.amax(0) != others.real.amin(0))
        own = plain[part][k].to(wide)
        lost = eager.isnan() & (
            (own == mine) | ((own - mine).abs() <= 1e-5 * own.abs())
        )  # oneDNN's gelu of infinity is NaN, torch's own is not
        near = (mine - eager).abs() <= TIMES * (others - eager).abs().amax(0)
        return torch.where(unsure | flips | lost | near, w, got)

    return settle
