"""What the variables of a function hold that raises lives as long as the traceback: generators that end late, objects that tell. Random
programs."""

from __future__ import annotations

import gc
import random
import types
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

OTHERS = """
import contextlib, gc, weakref

NOTES, KEPT = [], []

def B(*given):
    if given and given[0] == "raise": raise OSError("b")
    return gc.isenabled()

class Tells:
    def __init__(self, name): self.name = name
    def __del__(self): NOTES.append("gone " + self.name)

class Entered:
    def __enter__(self): NOTES.append("in"); return self
    def __exit__(self, *exc): NOTES.append("out")

@contextlib.contextmanager
def managed():
    try: yield
    finally: NOTES.append("managed")

def lasting(name, n):
    try:
        yield n
        yield n + 1
    finally: NOTES.append("closed " + name)

def held(name, n):
    with Entered():
        yield n
        yield n + 1
"""
MAKING = (
    ["{v} = lasting('{v}', n)", "NOTES.append(next({v}))"],
    ["{v} = lasting('{v}', n)", "next({v})", "{v} = [{v}, 1]"],
    ["{v} = held('{v}', n)", "next({v})"],
    ["{v} = lasting('{v}', n)", "next({v})", "{v}_ = lambda: {v}"],
    ["{v} = Tells('{v}')"],
    ["{v} = Tells('{v}')", "KEPT.append(weakref.ref({v}, lambda r: NOTES.append('dead')))"],
    ["{v} = (k for k in lasting('{v}', n))", "next({v})"],
    ["for {v} in lasting('{v}', n): break"],
)
RAISING = (
    ["if n > 2: raise OSError('o')"],
    ["if n > 2: raise KeyError(n) from OSError('o')"],
    ["if n > 2: B('raise')"],
    ["if n > 2: x[10]"],
    ["if n > 2: {}[n]"],
    ["assert n < 3"],
    ["if n > 1: x = inner(x, n)"],
)
DOING = (["NOTES.append(n)"], ["B()"], ["x = x + 1"], ["pass"], ["x = x * 2", "B(x)"], ["KEPT.append(n)"])
AROUND = (
    ["try:", "{}", "except OSError as e:", "    NOTES.append(type(e).__name__)", "    {}", "NOTES.append('behind')"],
    ["try:", "{}", "except (KeyError, IndexError) as e:", "    B(1)", "    NOTES.append('handling')"],
    ["try:", "{}", "except OSError as e:", "    KEPT.append(e)", "    {}"],
    ["try:", "{}", "except Exception as e:", "    {}", "    raise RuntimeError('r') from e"],
    ["try:", "{}", "except Exception:", "    {}", "    raise"],
    ["try:", "{}", "finally:", "    NOTES.append('finally')", "    {}"],
    ["with contextlib.suppress(KeyError):", "{}"],
    ["with Entered():", "{}"],
    ["with managed():", "{}", "    {}"],
    ["try:", "{}", "except* OSError as e:", "    NOTES.append('group')"],
    ["try:", "{}", "except* OSError as e:", "    {}", "    raise"],
    ["for k in held('loop', n):", "{}"],
    ["for k in lasting('loop', n):", "{}", "    {}"],
    ["for k in held('loop', n):", "{}", "    if n > 2: break", "NOTES.append('behind')"],
    ["for k in map(str, lasting('loop', n)):", "    {}", "    break", "else:", "{}"],
    ["if n:", "{}"],
)


def body(rng: random.Random, name: str, depth: int, raising: bool) -> list[str]:
    """Statements: some make what tells when it goes, one may raise, under blocks that let exceptions through or not."""
    lines: list[str] = []
    for k in range(rng.randint(0, 2)):
        lines += rng.choice(DOING)
        lines += [line.format(v=f"{name}{k}") for line in rng.choice(MAKING)]
    lines += rng.choice(DOING)
    if depth and rng.random() < 0.8:
        inside = body(rng, f"{name}w", depth - 1, raising)
        for line in rng.choice(AROUND):
            indented = len(line) - len(line.lstrip())
            if line == "{}":
                lines += ["    " + each for each in inside]
            elif "{}" in line:
                lines += [" " * indented + each for each in rng.choice(DOING)]
            else:
                lines.append(line)
    elif raising:
        lines += rng.choice(RAISING if name.startswith("v") else RAISING[:-1])
    if rng.random() < 0.3:
        lines += rng.choice(DOING)
    return lines


def drawn(seed: int) -> str:
    """The text of a program: ``program`` and what it calls."""
    rng = random.Random(seed)
    inner = [*body(rng, "i", rng.randint(0, 1), True), "if n > 3: raise OSError('i')", "return x"]
    outer = [*body(rng, "v", rng.randint(0, 2), True), *rng.choice(DOING), "return x"]
    parts = ["def inner(x, n):", *["    " + line for line in inner], "def program(x, n):", *["    " + line for line in outer]]
    return "\n".join([OTHERS, *parts, ""])


def told(program: Any, space: dict[str, Any]) -> list[Any]:
    """What a program notes, and when, in five calls."""
    seen: list[Any] = space["NOTES"]
    for n in (2, 3, 3, 4, 2):
        try:
            seen.append(program(torch.ones(2), n).tolist())
        except Exception as exc:
            seen.append((type(exc).__name__, str(exc)))
        seen.append("dropped")
        space["KEPT"].clear()
        seen.append("forgotten")
        gc.collect()
        seen.append("called")
    return seen


def differs(seed: int) -> str:
    """Where what is noted differs; empty where it does not."""
    text, found = drawn(seed), []
    code = compile(text, "<drawn>", "exec")
    for captured in (False, True):
        space = types.ModuleType("drawn").__dict__
        exec(code, space)
        gc.collect()
        gc.disable()
        try:
            found.append(told(capture(space["program"], "eager") if captured else space["program"], space))
        finally:
            gc.enable()
    return "" if found[0] == found[1] else f"{text}\nplain    {found[0]}\ncaptured {found[1]}"


@pytest.mark.parametrize("seed", [3, 41, 77, 132, *range(200, 212), *range(2000, 2024)])
def test_what_frames_hold_goes_with_the_traceback(seed: int) -> None:
    assert not differs(seed)
