"""Graph breaks while a constructor, a getter, an operator or another method of the data model runs: its frame goes on, and the caller's
after it."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture


class Asking:
    """Every method has tensor operations on both sides of a break."""

    def __init__(self, x: Any, log: Any = None) -> None:
        self.log = log if log is not None else []
        self.x = x * 2
        self.y = self.x + self.x.sum().tolist()

    def asked(self, name: str) -> Any:
        self.log.append(name)
        return round(self.x.sum().tolist(), 3)

    @property
    def norm(self) -> Any:
        return (self.x + 1) / self.asked("norm")

    @norm.setter
    def norm(self, value: Any) -> None:
        self.y = value * 2 + self.asked("set norm")

    def __add__(self, other: Any) -> Any:
        if isinstance(other, str):
            return NotImplemented if self.asked("refused") else None
        return (self.y - 1) * self.asked("add") + (other.y if isinstance(other, Asking) else other)

    def __radd__(self, other: Any) -> Any:
        return (self.y - 2) * self.asked("radd") + other

    def __imul__(self, other: Any) -> Any:
        self.y = (self.y * other) + self.asked("imul")
        return self if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self.asked("mul") if other != 3 else NotImplemented

    def __neg__(self) -> Any:
        return -self.y + self.asked("neg")

    def __eq__(self, other: Any) -> Any:
        return self.asked("eq") > 0 if isinstance(other, Asking) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return (self.x + self.asked("lt")).sum() if isinstance(other, Asking) else NotImplemented

    def __getitem__(self, key: Any) -> Any:
        return self.y[key] + self.asked("get")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.y = self.y * value + self.asked(f"set {key}")

    def __delitem__(self, key: Any) -> None:
        self.y = self.y - self.asked(f"del {key}")

    def __iter__(self) -> Any:
        self.y = self.y + 1 + self.asked("iter")
        return iter([self.y, self.x]) if self.log else 3

    def __enter__(self) -> Any:
        return self.y + 2 - self.asked("enter")

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
        self.y = self.y * 3 - self.asked("exit")
        return kind is KeyError


class Counting:
    def __init__(self, x: Any) -> None:
        self.x, self.turns = x, 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self.turns += 1
        self.x = self.x * 2
        if self.x.sum().tolist() > 30 or self.turns > 3:
            raise StopIteration
        return self.x + 1


class Told(Asking):
    """What builtin functions ask; ``wrong``: what they do not take is given."""

    def __init__(self, x: Any, wrong: Any = None) -> None:
        super().__init__(x)
        self.wrong = wrong

    def told(self, name: str, result: Any) -> Any:
        self.y = self.y + self.asked(name)
        return result if self.wrong is None else self.wrong

    def __len__(self) -> int:
        return self.told("len", 3)

    def __contains__(self, item: Any) -> Any:
        return self.told("contains", item > 2)

    def __abs__(self) -> Any:
        return self.told("abs", self.y + 1)

    def __hash__(self) -> int:
        return self.told("hash", 5)

    def __repr__(self) -> str:
        return self.told("repr", "told")

    def __int__(self) -> int:
        return self.told("int", 7)

    def __float__(self) -> float:
        return self.told("float", 0.5)

    def __index__(self) -> int:
        return self.told("index", 2)

    def __reversed__(self) -> Any:
        return self.told("reversed", iter([1]))


class Truth(Told):
    def __bool__(self) -> bool:
        return self.told("bool", True)

    def __next__(self) -> Any:
        return self.told("next", 4)


class Formatted(Told):
    def __format__(self, spec: str) -> str:
        return self.told("format", "[" + spec + "]")


class NotNone:
    def __init__(self, x: Any) -> None:
        return x.sum().tolist()  # noqa: PLE0101


class Guarded(Asking):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "z":
            value = (value + 1) * self.asked("setattr")
        super().__setattr__(name, value)


def suppressed(x: Any) -> Any:
    v = Asking(x)
    with v as w:
        w = w + 1
        raise KeyError
    return w, v.y, v.log


def not_suppressed(x: Any) -> Any:
    v = Asking(x)
    with v as w:
        raise ValueError(len(v.log))
    return w


def stored(x: Any) -> Any:
    v = Guarded(x)
    v.norm = x + 1
    v.z = v.y + 1
    v[1] = 4
    del v[2]
    return v.z + 1, v.y, v.log


def in_place(x: Any) -> Any:
    v = Asking(x)
    v *= 2
    w = v
    v *= 2.5
    return w.y + 1, v, w.log


def iterated(x: Any) -> Any:
    v = Asking(x, [1])
    for z in v:
        x = x + z
    for z in Counting(x):
        x = x + z
    return x


def not_iterable(x: Any) -> Any:
    v = Asking(x)
    v.log = ()
    v.asked = lambda name: 1  # type: ignore[method-assign]
    return [z for z in v]


def refused(x: Any) -> Any:
    v = Asking(x)
    try:
        return v * 3
    except TypeError as exc:
        return str(exc), v.log, x + 1


def compared(x: Any) -> Any:
    v, w = Asking(x), Asking(-x)
    return v == w, v != w, v < w, v == 1, v != 1, v.log, w.log


def builtins(x: Any, wrong: Any = None) -> Any:
    found = []
    for ask in (len, bool, abs, hash, repr, str, int, float, iter, next, reversed, operator.index, operator.truth):
        v = Truth(x, wrong)
        try:
            result = ask(v)
            result = list(result) if ask in (reversed, iter) else result
        except (TypeError, ValueError) as exc:
            result = str(exc)
        found.append((result, v.y + 1, v.log))
    return found


def branches(x: Any) -> Any:
    log = []
    for v in (Truth(x), Told(x), Truth(x, False), Told(x, 0), Told(x, -1), Truth(x, 1)):
        try:
            log.append("yes" if v else "no")
            log.append("no" if not v else "yes")
            log.append((v or 1) is v)
            log.append((v and 1) is v)
            log.append(not v)
        except (TypeError, ValueError) as exc:
            log.append(str(exc))
        log += [v.y + 1, v.log]
    return log


def inside(x: Any) -> Any:
    v = Told(x)
    return 3 in v, 1 in v, 3 not in v, v.y + 1, v.log


PROGRAMS = {
    "builtins": builtins,
    "builtins that are given texts": lambda x: builtins(x, "text"),
    "builtins that are given negative numbers": lambda x: builtins(x, -1),
    "branches": branches,
    "inside": inside,
    "length": lambda x: len(Told(x)) + x,
    "absolute": lambda x: abs(Told(x)) + x,
    "text": lambda x: (str(Told(x)), repr(Told(x)), x + 1),
    "hashed": lambda x: (hash(Told(x)), x + 1),
    "truth": lambda x: x + 1 if Truth(x) else x - 1,
    "formatted": lambda x: (f"{Told(x)} {Told(x)!r} {Told(x)!s}", format(Told(x)), x + 1),
    "format": lambda x: (f"{Formatted(x)}", f"{Formatted(x):>4}", x + 1),
    "empty": lambda x: x + 1 if not Told(x) else x - 1,
    "contained": lambda x: (3 in Told(x), x + 1),
    "constructor": lambda x: Asking(x + 1).y + 1,
    "getter": lambda x: Asking(x).norm + 1,
    "left operand": lambda x: (Asking(x) + 1) * 2,
    "right operand": lambda x: (1 + Asking(x)) * 2,
    "tensor and object": lambda x: (Asking(x) + Asking(x)) * 2,
    "sign": lambda x: -Asking(x) + 1,
    "item": lambda x: Asking(x)[1] + 1,
    "no constructor": lambda x: NotNone(x),
    "nobody adds": lambda x: Asking(x) + "a",
    "suppressed": suppressed,
    "not suppressed": not_suppressed,
    "stored": stored,
    "in place": in_place,
    "iterated": iterated,
    "not iterable": not_iterable,
    "refused": refused,
    "compared": compared,
}


def outcome(fn: Any) -> Any:
    try:
        return fn(torch.tensor([1.0, 2.0, 0.5]))
    except Exception as exc:
        return type(exc).__name__, str(exc)


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_results_are_those_of_the_plain_function(fn: Any) -> None:
    want = outcome(fn)
    compiled = capture(fn, "eager")
    for _ in range(2):
        assert same(outcome(compiled), want)


SHORT = ["length", "absolute", "text", "hashed", "truth", "empty", "contained", "formatted"]


@pytest.mark.parametrize("name", ["constructor", "getter", "left operand", "right operand", "sign", "item", "suppressed", "stored", *SHORT])
def test_no_instruction_of_the_caller_breaks(name: str) -> None:
    breaks: list[Any] = []
    compiled = capture(PROGRAMS[name], "eager", on_break=breaks.append)
    outcome(compiled)
    assert breaks and {reason.stack[0][2] for reason in breaks} <= {"asked", "__init__"}  # innermost first
    assert all(len(reason.stack) > 1 for reason in breaks)


def test_what_comes_before_is_one_graph() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append([str(node.target) for node in gm.graph.nodes if node.op in ("call_function", "call_method")])
        return gm.forward

    capture(PROGRAMS["constructor"], backend)(torch.ones(3))
    assert len(graphs[0]) == 3 and len(graphs) == 3  # x + 1, * 2, sum; + item; + 1


class Key:
    """Compared by a key function that ``sorted`` calls: no frame that could go on."""

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def total(self) -> Any:
        return (self.x * 2).sum().tolist()


def test_getters_called_by_native_code_are_captured() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    def fn(x: Any) -> Any:
        return sorted([Key(x), Key(-x)], key=lambda k: k.total)[0].x + 1

    x = torch.tensor([1.0, 2.0])
    assert torch.equal(capture(fn, backend)(x), fn(x))
    assert any("mul" in gm.code for gm in graphs)


class NoEnter:
    def __exit__(self, *args: Any) -> None: ...


class NoExit:
    def __enter__(self) -> None: ...


@pytest.mark.parametrize("kind", [NoEnter, NoExit])
def test_methods_of_with_statements_are_those_of_the_class(kind: Any) -> None:
    def fn(x: Any) -> Any:
        manager = kind()
        manager.__enter__ = manager.__exit__ = lambda *args: None
        with manager:
            return x + 1

    assert outcome(capture(fn)) == outcome(fn)
