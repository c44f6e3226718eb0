"""Random small programs, captured against plain: control flow, containers, closures, changes in place, graph breaks, exceptions."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend import capture

TENSORS = ("a", "b", "t")
NUMBERS = ("n", "m")
NAMES = st.sampled_from(TENSORS)
SMALL = st.integers(-2, 4)


@st.composite
def tensor(draw: Any, depth: int = 2) -> str:
    kind = draw(st.integers(0, 12 if depth else 1))
    sub = tensor(depth - 1)
    if kind <= 1:
        return draw(NAMES)
    if kind <= 4:
        return f"({draw(sub)} {draw(st.sampled_from('+-*'))} {draw(st.one_of(sub, number(depth - 1)))})"
    return {
        5: lambda: f"torch.relu({draw(sub)})",
        6: lambda: f"{draw(sub)}.abs()",
        7: lambda: f"inner({draw(sub)})",
        8: lambda: f"helper({draw(sub)}, k={draw(number(depth - 1))})",
        9: lambda: f"(l[-1] if l and isinstance(l[-1], torch.Tensor) else {draw(sub)})",
        10: lambda: f"d.get('t', {draw(sub)})",
        11: lambda: f"({draw(sub)} if {draw(condition(depth - 1))} else {draw(sub)})",
        12: lambda: f"sum([{draw(sub)} for q in range({draw(st.integers(0, 2))})], start={draw(sub)})",
    }[kind]()


@st.composite
def number(draw: Any, depth: int = 1) -> str:
    kind = draw(st.integers(0, 8 if depth > 0 else 2))
    sub = number(depth - 1)
    return {
        0: lambda: str(draw(SMALL)),
        1: lambda: draw(st.sampled_from(NUMBERS)),
        2: lambda: f"len({draw(st.sampled_from('ld'))})",
        3: lambda: f"({draw(sub)} {draw(st.sampled_from(['+', '-', '*', '//', '%']))} {draw(sub)})",
        4: lambda: f"{draw(tensor(0))}.shape[0]",
        5: lambda: f"int({draw(tensor(0))}.sum().item() * 4) % 7",
        6: lambda: f"next(source, {draw(sub)})",
        7: lambda: f"d.setdefault({draw(sub)}, {draw(sub)})",
        8: lambda: f"min({draw(sub)}, {draw(sub)})",
    }[kind]()


@st.composite
def condition(draw: Any, depth: int = 1) -> str:
    return {
        0: lambda: f"{draw(number(depth))} < {draw(number(0))}",
        1: lambda: f"{draw(tensor(0))}.sum() > {draw(SMALL)}",
        2: lambda: f"not {draw(number(depth))}",
        3: lambda: f"{draw(number(0))} in l[:1]" if depth > 1 else "n in (1, 2)",
        4: lambda: f"n > 0 and {draw(tensor(0))}.max() > 0 or {draw(number(0))}",
    }[draw(st.integers(0, 4))]()


@st.composite
def statement(draw: Any, depth: int, loop: bool) -> list[str]:
    def block(inside: bool = loop) -> list[str]:
        lines = [line for _ in range(draw(st.integers(1, 3))) for line in draw(statement(depth - 1, inside))]
        return ["    " + line for line in lines]

    simple = {
        0: lambda: [f"{draw(NAMES)} = {draw(tensor())}"],
        1: lambda: [f"{draw(st.sampled_from(NUMBERS))} = ({draw(number())}) % 97"],
        2: lambda: [f"{draw(NAMES)} {draw(st.sampled_from(['+=', '-=', '*=']))} {draw(tensor(1))}"],
        3: lambda: [f"{draw(NAMES)}.{draw(st.sampled_from(['add_', 'mul_']))}({draw(number())})"],
        4: lambda: [f"l.append({draw(st.one_of(tensor(), number()))})"],
        5: lambda: [f"d[{draw(st.sampled_from(['1', repr('t'), 'n']))}] = {draw(tensor(1))}"],
        6: lambda: [f"{draw(NAMES)}[{draw(SMALL)}] = {draw(number())}"],
        7: lambda: ["n += 1"],
        8: lambda: [f"l.pop({draw(st.sampled_from(['', '0']))})"],
        9: lambda: [f"p, (q, *r) = {draw(number())}, ({draw(tensor(1))}, {draw(number())}, 3)", "l.extend(r); t = t + p + q"],
        10: lambda: [f"keep({draw(tensor(1))})"],
        11: lambda: [f"if {draw(condition())}: {draw(st.sampled_from(['break', 'continue'] if loop else ['return t, n']))}"],
        12: lambda: [f"if {draw(condition())}: raise {draw(st.sampled_from(['ValueError', 'KeyError']))}(n)"],
        13: lambda: [f"t = {draw(tensor())}", "view = t.view(-1)", "view.add_(1)"],
    }
    nested = {
        14: lambda: [f"if {draw(condition())}:", *block(), *(["else:", *block()] if draw(st.booleans()) else [])],
        15: lambda: [f"for i in range({draw(st.integers(0, 4))}):", *block(True)],
        16: lambda: [f"for i, x in enumerate([{draw(tensor(1))}, {draw(number())}]):", "    t = t + x * i", *block(True)],
        17: lambda: ["try:", *block(), "except ValueError as e:", "    l.append(str(e))", *block(), *(["finally:", *block(False)] if draw(st.booleans()) else [])],
        18: lambda: ["with torch.no_grad():", *block()],
        19: lambda: [f"for x in numbers({draw(number())}):", "    m = (m + x) % 97", *block(True)],
        20: lambda: [f"turns{depth} = 0", f"while turns{depth} < 5 and ({draw(condition())}):", f"    turns{depth} += 1", *block(True)],
        21: lambda: ["with Suppress(l):", *block()],
        22: lambda: [f"for key in [k for k in d if k != {draw(SMALL)}][:3]:", *block(True)],
    }
    choices = {**simple, **nested} if depth else simple
    return choices[draw(st.sampled_from(sorted(choices)))]()


HEADER = """
def program(a, b, l, d, n, source):
    m, t = 1, a + b
    def inner(z):
        nonlocal m
        m += 1
        return z * m
    def keep(z):
        d['kept'] = z
    def numbers(k):
        for j in range(k % 4):
            l.append(j)
            yield j
"""


@st.composite
def programs(draw: Any) -> str:
    lines = [line for _ in range(draw(st.integers(2, 6))) for line in draw(statement(2, False))]
    return HEADER + "".join(f"    {line}\n" for line in lines) + "    return a, t, n, m, l[:2], {**d}, torch.is_grad_enabled()\n"


class Suppress:
    def __init__(self, log: Any) -> None:
        self.log = log

    def __enter__(self) -> Any:
        self.log.append("in")
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(kind.__name__ if kind else None)
        return kind is KeyError


def helper(z: Any, k: int = 2) -> Any:
    z = z - k
    return z * 2 if z.sum() > 0 else z + k


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and bool(a == b)


def outcome(fn: Any, n: int) -> Any:
    torch.manual_seed(n)
    a, b = torch.randn(4), torch.randn(4)
    items: list[Any] = [1, torch.ones(4)]
    table: dict[Any, Any] = {1: 2, "t": torch.ones(4)}
    source = iter([5, 6, 7])
    try:
        result = fn(a, b, items, table, n, source)
    except Exception as exc:
        result = (type(exc).__name__, str(exc), type(exc.__context__).__name__)
    finally:
        grad = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
    return result, a, b, items, table, list(source), grad


def compare(text: str) -> None:
    namespace: dict[str, Any] = {"torch": torch, "helper": helper, "Suppress": Suppress}
    exec(compile(text, "<program>", "exec"), namespace)
    plain = namespace["program"]
    compiled = capture(plain, "eager")
    for n in (1, 1, 3):
        want, got = outcome(plain, n), outcome(compiled, n)
        assert same(got, want), f"{text}\nn={n}\nwant {want}\ngot  {got}"


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=int(os.environ.get("OPMILL_FUZZ", "40")), deadline=None, derandomize="OPMILL_FUZZ" not in os.environ, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(programs())
def test_random_programs(text: str) -> None:
    compare(text)


#: Programs that were wrong once.
FOUND: list[str] = []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", FOUND)
def test_programs_that_were_wrong_once(body: str) -> None:
    compare(HEADER + body)
