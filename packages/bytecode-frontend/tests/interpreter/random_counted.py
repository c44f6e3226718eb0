"""Random programs whose sizes and numbers only data tell. Written as source text, so that a failing one can be read."""

from __future__ import annotations

import random
from typing import Any, Callable

import torch

ROWS = (
    "{a}[{a}[:, 0] > {c}]", "{a}[{a}.sum(1) > {c}]", "torch.cat([{a}, {b}])", "{a}[:{n}]", "{a}[{n}:]", "{a} * 2 + 1", "{a}.relu()", "{a} @ w", "{a}.flip(0)", "{a}[::2]",
    "{a}.sort(0)[0]", "{a} - {a}.mean(0)", "F.layer_norm({a}, (4,))", "{a}.masked_fill({a} > {c}, 0.5)", "{a}[torch.arange({a}.shape[0])]", "{a}[{a}[:, 1].argsort()]",
    "torch.where({a} > 0, {a}, {c})", "{a} + {b}", "{a}[{a}[:, 0].nonzero()[:, 0]]", "{a}.cumsum(0)", "{a}.softmax(0)", "{a}.t().contiguous().t() * 1.5", "zeroed({a}, {c})",
    "{a}.view(-1, 2).reshape(-1, 4)", "torch.ones({n}, 4)", "{a}[{n} - 1].expand(2, 4) + 0", ("F.pad({a}, (0, 0, 0, "
        "{n}))"), "{a}.index_select(0, k % {a}.shape[0])", "{a}.max(0)[0][None] + {a}",
    "x[k][:{n}]", "torch.repeat_interleave({a}, 2, dim=0)", "{a}.new_zeros({a}.shape[0], 4) + {b}", "{a}.unique(dim=0)", "stepped({a}, {n})", "{a}[-{n}:]", "{a}.split([{n}, {a}.shape[0] - {n}])[1]",
    "{a} * ({n} / 3)", "{a} / float({n})", "{a} * (1.0 / ({m} * 0.5 + {n}))", "{a} / max({n}, 1)", "{a}.new_full((2, 4), {n} / 7)", "{a} - {a}.shape[0] ** 0.5", "{a} + {m} / {n}",
)  # fmt: skip
NUMBERS = (
    "{a}.shape[0]", "{n} + 1", "{n} * 2 - 3", "i.item()", "int(j)", "({a}[:, 0] > {c}).sum().item()", "len({a})", "k.tolist()[1]", "{n} // 2", "{a}.numel()", "k.max().item()", "{n} - {m}",
    "max({n}, 2)", "min({n}, {m})", "abs({n})", "torch.bincount(k)[0].item()", "{n} % 3", "max({n}, {m}, 1)", "int({a}.shape[0] * 0.5)", "int({n} / 2)", "min({a}.shape[0], {n})", "round({a}.shape[0] / 4)",
)  # fmt: skip
STATEMENTS = (
    "if {n} > 2:\n    {r} = {a} * 3", "torch._check({n} >= 0)", "{r} = {a}.clone()\nif {r}.shape[0] > 1:\n    {r}[0] = {c}", "{r} = {a}\nfor _ in range(min({n}, 3)):\n    {r} = {r} + 1",
)  # fmt: skip
HEAD = """
def zeroed(a, c):
    out = a.clone()
    out[a[:, 0] > c] = 0
    return out

def stepped(a, n):
    out = a.clone()
    out[:n] += 1
    return out

def program(x, y, i, j, k, w):
    F = torch.nn.functional
    n0, n1 = 2, i.item()
    r0, r1 = x, y
"""


def write_program(rng: random.Random, statements: int) -> str:
    lines: list[str] = []
    rows, numbers = 2, 2
    for _ in range(statements):
        parts: dict[str, Any] = {
            "a": f"r{rng.randrange(rows)}", "b": f"r{rng.randrange(rows)}", "n": f"n{rng.randrange(numbers)}", "m": f"n{rng.randrange(numbers)}",
            "c": rng.choice(["-9.0", "-0.5", "0.0", "0.7", "9.0"]),
        }  # fmt: skip
        kind = rng.random()
        if kind < 0.65:
            lines.append(f"r{rows} = " + rng.choice(ROWS).format(**parts))
            rows += 1
        elif kind < 0.9:
            lines.append(f"n{numbers} = " + rng.choice(NUMBERS).format(**parts))
            numbers += 1
        else:
            text = rng.choice(STATEMENTS)
            if "{r}" in text:
                lines.append(f"r{rows} = {parts['a']}")
                parts["r"] = f"r{rows}"
                rows += 1
            lines += text.format(**parts).split("\n")
    lines.append(f"return [{', '.join(f'r{k}' for k in range(2, rows))}], [{', '.join(f'n{k}' for k in range(numbers))}]")
    return HEAD + "".join(f"    {line}\n" for line in lines)


def compiled_text(text: str, name: str = "<random>") -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), scope)
    return scope["program"]  # type: ignore[no-any-return]


def arguments(rng: random.Random) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x, y = torch.randn(6, 4, generator=generator), torch.randn(5, 4, generator=generator)
    small = [torch.randint(rng.choice([0, -3]), 4, (), generator=generator) for _ in range(2)]
    return [x, y, *small, torch.randint(0, 5, (3,), generator=generator), torch.randn(4, 4, generator=generator)]


def outcome(fn: Callable[..., Any], args: list[torch.Tensor]) -> Any:
    try:
        return fn(*[a.clone() for a in args])
    except Exception as exc:
        return exc


def differ(want: Any, got: Any, exact: bool = True) -> str:
    """Where two outcomes differ; nothing where they do not."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        alike = type(want) is type(got) and str(want) == str(got)
        return "" if alike else f"{type(want).__name__} {want} / {type(got).__name__} {got}"
    for a, b in zip([*want[0], *want[1]], [*got[0], *got[1]], strict=True):
        if isinstance(a, torch.Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{a.shape} {a.dtype} / {b.shape} {b.dtype}"
            if not (torch.equal(a.nan_to_num(77.0), b.nan_to_num(77.0)) if exact else torch.allclose(a, b, 1e-4, 1e-4, equal_nan=True)):
                return f"{a} / {b}"
        elif type(a) is not type(b) or a != b:
            return f"{a!r} / {b!r}"
    return ""
