"""Texts that tell numbers which only data tell, or which change from call to call: the graph goes on, and they are what Python makes."""

from __future__ import annotations

import contextlib
import io
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import Unsupported, capture

SPECIAL = (0.0, -0.0, 1.5, -2.25e-7, 1e22, math.inf, -math.inf, math.nan, 123456.789)
TELLING = {
    "f-string": "f'loss {a:.3f} after {n} of {b!r:>12}'",
    "nested": "f'{f\"<{a:.2e}>\":>20}|{n:03d}'",
    "percent": "'%s %.4f %8.2e %r %%' % (n, a, b, a)",
    "percent of integers": "'[%d/%3d] %.4f %x %s' % (n, 7, a, n, t)",
    "percent of one": "'loss %.3g' % a",
    "format": "'{:.3f} {!s} {}'.format(a, n, b)",
    "numbered": "'{1:.3f} {0}'.format(a, b)",
    "str": "str(a) + ' ' + repr(n)",
    "joined": "', '.join([f'{a:.1f}', 'x', str(n)])",
    "joined by a generator": "'-'.join(f'{v:.2f}' for v in (a, b))",
    "said twice": 'f\'{f"{a:.1f}" + "!"} {t}\'',
    "of a tensor": "f'{x[0]:.4f} {x.sum()}'",
    "of a truth": "f'{t} {t!r}'",
}


def program(text: str) -> Any:
    names: dict[str, Any] = {}
    lines = ["    a, b, n, t = x[0].item(), x[1].item(), k.item(), (x[0] > 0).item()", "    y = x * 2", f"    said = {text}"]
    exec("\n".join(["def program(x, k):", *lines, "    print(said, a)", "    return y + 1, said, [said]"]), names)
    return names["program"]


def run(function: Any, *args: Any) -> Any:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        found = function(*args)
    return found, said.getvalue()


@pytest.mark.parametrize("name", TELLING)
def test_texts_are_what_python_makes(name: str) -> None:
    plain, breaks = program(TELLING[name]), []
    compiled = capture(program(TELLING[name]), "eager", on_break=breaks.append, fullgraph=True)
    for k, (a, b) in enumerate(zip(SPECIAL, reversed(SPECIAL), strict=True)):
        args = torch.tensor([a, b], dtype=torch.float64), torch.tensor(k - 3)
        assert same(run(compiled, *args), run(plain, *args))
    assert not breaks


SPECS = [
    "",
    ".3f",
    "8.2e",
    "+.1f",
    "010.4g",
    ">12",
    "<9.1f",
    "^15",
    "%",
    ".0%",
    "n",
    "_.2f",
    ",.1f",
    "d",
    "x",
    "c",
    "s",
    ".2s",
    "{",
    "5",
    "05d",
]
CONVERSIONS = ["%s", "%r", "%.3f", "%e", "%g", "%d", "%i", "%x", "%c", "%5s", "%-8.2f|", "%*d", "%a", "%%", "%q"]


def at_random(seed: int) -> str:
    """A text of some numbers, with formats that may refuse them."""
    rng = random.Random(seed)
    names = ["a", "b", "n", "t", "k", "i", "s", "x[0]"]
    kind = rng.choice(["f", "%", "format", "str"])
    if kind == "f":
        return "f'" + " ".join(f"{{{rng.choice(names)}{rng.choice(['', '!r', '!s'])}:{rng.choice(SPECS[:-4])}}}" for _ in range(2)) + "'"
    if kind == "%":
        parts = [rng.choice(CONVERSIONS) for _ in range(2)]
        given = [rng.choice(names[:-1]) for _ in range(rng.choice([1, 2, 2, 2, 3]))]
        return f"{' '.join(parts)!r} % ({', '.join(given)},)"
    if kind == "format":
        fields = [f"{{{rng.choice(['', '0', '1'])}:{rng.choice(SPECS)}}}" for _ in range(2)]
        return f"{' '.join(fields)!r}.format({rng.choice(names)}, {rng.choice(names)})"
    return f"{rng.choice(['str', 'repr'])}({rng.choice(names)}) + {rng.choice(['s', repr('!'), 'str(n)'])}"


@pytest.mark.parametrize("first", range(0, 160, 20))
@pytest.mark.filterwarnings("ignore")
def test_random_texts(first: int) -> None:
    for seed in range(first, first + 20):
        text, names = at_random(seed), {}
        lines = ["    a, n, t = x[0].item(), x[1].long().item(), (x[0] > 0).item()", "    b = a * 2", "    y = x + i"]
        try:
            exec("\n".join(["def program(x, k, i, s):", *lines, f"    said = {text}", "    return y, said, said[:3], s in said"]), names)
        except SyntaxError:
            continue
        compiled = capture(names["program"], "eager")
        for turn in range(4):
            x = torch.tensor([turn - 1.5, turn * 40.0 - 20], dtype=torch.float64)
            args = x, turn * 0.3, turn * 7 + 2, "ab"[: turn % 3]
            assert same(outcome(compiled, *args), outcome(names["program"], *args)), text


def test_what_needs_to_know_a_text_ends_the_graph() -> None:
    def decides(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        said = f"{x.sum().item():.1f}"
        return x + len(said), (said == "3.0", said.split("."), {said: 1}, said in ("3.0",), said * 2, bool(said))

    compiled = capture(decides, "eager")
    for x in (torch.ones(3), torch.ones(3) * 4, torch.ones(3)):
        assert same(compiled(x), decides(x))
    with pytest.raises(Unsupported):
        capture(decides, "eager", fullgraph=True)(torch.ones(3))


def test_formats_that_raise_do_so_where_the_program_does() -> None:
    log: list[str] = []

    def raises(x: torch.Tensor, number: object) -> torch.Tensor:
        a = x.sum().item()
        try:
            log.append("%d of %s" % (a, number))  # noqa: UP031
        except (ValueError, OverflowError) as error:
            log.append(str(error))
        try:
            log.append(f"{a:d}")
        except ValueError as error:
            log.append(str(error))
        return x * 2

    compiled, plain = capture(raises, "eager"), raises
    for value in (1.0, math.nan, math.inf, 2.5):
        assert same(compiled(torch.full((1,), value), 2), plain(torch.full((1,), value), 2))
    assert log[0::4] == log[2::4] and log[1::4] == log[3::4]


def test_numbers_that_change_from_call_to_call_are_told() -> None:
    def tells(x: torch.Tensor, step: int, rate: float, of: str) -> torch.Tensor:
        print(f"step {step} of {of}: rate {rate:.2e} loss {x.mean().item():.3f}")
        return x * rate

    translations: list[object] = []
    compiled = capture(tells, "eager", on_translation=translations.append)
    before = 0
    for step in range(16):
        args = torch.arange(4.0) + step, step + 2, 0.1 * step, str(step)
        assert same(run(compiled, *args), run(tells, *args))
        before = len(translations) if step < 10 else before
    assert len(translations) == before


def test_numbers_of_numpy_are_told() -> None:
    def tells(a: Any) -> Any:
        return f"{np.mean(a):.3f} {a.max()} {np.sum(a)!r}" + f" {a.sum():.2f}", a * 2

    compiled = capture(tells, "eager", fullgraph=True)
    for k in range(3):
        for dtype in (np.float64, np.float32, np.int64):
            given = (np.arange(4) * 1.5 + k).astype(dtype)
            found, want = compiled(given), tells(given)
            assert found[0] == want[0] and np.array_equal(found[1], want[1])
