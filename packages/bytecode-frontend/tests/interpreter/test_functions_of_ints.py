"""Operators and functions of ints that are others at each call: few captures serve them, and give what Python gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from alike import near, outcome, same
from changing_numbers import captures, differing

from opmill_bytecode_frontend.entry.capture import capture

WHOLE = "2 ** n|(-2) ** n|(2 ** n - 1) * 3|n ** n|1 << n|n << 2|n << m|1024 >> n|n | 8|n ^ 3|n ^ m|n & 12 | 16|-1 ^ n|True << n|7 & -n"
"""By whole numbers."""
FUNCTIONS = (
    "math.comb(n, 2)|math.comb(m, n)|math.perm(n, 2)|math.perm(n)|math.gcd(n * 4, 8)|math.gcd(n * 6, 4, 10)|math.lcm(n, 4)|math.lcm(n, m)"
    "|math.isqrt(n * 9)|math.factorial(n)|math.isqrt(math.comb(m, 2)) + 2|math.gcd(n)|(n * 9).bit_length()|(n * 8 + 7).bit_count()|pow(n, 3, 1000)"
    "|pow(n, m, n + 90)|round(n * 9, -1)|round(n, 2)|math.gcd(math.lcm(n, 6), 12)|2 * math.isqrt(n << 4)|max(math.gcd(n * 2, 4), n)"
)
"""By functions of ints."""
BROKEN = "int(n * 0.7) + 2|round(n / 0.3)|math.floor(n * 1.1)|math.ceil(n * 1.1)|min(0.95, (1 + n) / (10 + n))|n / m|(n + 1) / 7"
"""By fractions, which are rounded or stay."""
REAL = "math.cbrt(n)|math.exp2(n / 3)|math.gamma(n / 2)|math.lgamma(n)|math.remainder(n, m)|math.remainder(m / 3, n)"
PROGRAMS = [*WHOLE.split("|"), *FUNCTIONS.split("|"), *BROKEN.split("|"), *REAL.split("|")]
TAKERS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "add": lambda x, n: (torch.add(x, x, alpha=1 - (1 + n) / (10 + n)), x.add(x, alpha=n / 10)),
    "averages": lambda x, n: x.clone().mul_(n / 10).add_(x, alpha=1 - n / 10),
    "lerp": lambda x, n: (torch.lerp(x, -x, n / 10), x.clone().lerp_(-x, 1 / (n + 1))),
    "clamp": lambda x, n: (x.clamp(max=n / 10), x.clone().clamp_(-n / 10, n / 9)),
    "masked_fill": lambda x, n: (x.masked_fill(x > 0, n / 10), torch.where(x > 0, x, n / 10), x.clone().fill_(n / 3)),
    "elu": lambda x, n: (F.elu(x, n / 10), F.leaky_relu(x, n / 10), F.softplus(x, n / 2)),
    "tensors": lambda x, n: (torch.tensor(n / 10), torch.tensor([n / 10, 1]), torch.full((2,), n / 10), torch.tensor([n, n / 4])),
    "each": lambda x, n: torch._foreach_mul([x, x + 1], n / 10),
    "levels": lambda x, n: (x * 2**n).round().clamp(-(2 ** (n - 1)), 2 ** (n - 1) - 1) / 2**n,
}
ASSUMED = ["(-2) ** n", "-1 ^ n", "7 & -n"]
"""Ints that are negative are assumed, as sizes are."""
NUMBERS = [(n, n + 3) for n in range(3, 11)]
CORNERS = [(0, 0), (1, -1), (-3, 2), (70, 2), (2, 70), (200, 200), (-(1 << 62), 3), (5, -5)]


def program(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"math": math}
    exec(f"def fn(x, n, m):\n    made = {text}\n    return x * made, made, x.new_zeros(3).expand(2, 3).size(0) + made", space)
    return space["fn"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", PROGRAMS)
def test_each_value_gives_what_python_gives(text: str) -> None:
    assert not differing(program(text), (*NUMBERS[:3], *CORNERS, *NUMBERS))


@pytest.mark.parametrize("text", [text for text in PROGRAMS if text not in ASSUMED])
def test_four_captures_serve_them(text: str) -> None:
    assert captures(program(text), NUMBERS) <= 4


@pytest.mark.parametrize("name", TAKERS)
def test_what_takes_a_float_takes_one_that_is_computed_from_ints(name: str) -> None:
    made: list[Any] = []
    compiled = capture(TAKERS[name], "eager", fullgraph=True, on_translation=made.append)
    x = torch.randn(4, generator=torch.Generator().manual_seed(0))
    for n in range(3, 10):
        assert same(outcome(compiled, x, n), outcome(TAKERS[name], x, n), near())
    assert len(made) == 2
