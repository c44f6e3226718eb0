"""Random programs about one object: captured code changes it and asks it, with graph breaks between (``random_objects.toml``)."""

from __future__ import annotations

import array
import asyncio
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import heapq
import importlib.util
import io
import itertools
import json
import logging
import math
import operator
import pickle
import queue
import random
import re
import statistics
import string
import struct
import sys
import textwrap
import threading
import tomllib
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

NAMES = (
    asyncio, bisect, copy, decimal, fractions, gc, heapq, itertools, json, logging, math, operator, pickle, queue, re, statistics, string,
    struct, textwrap, threading, typing, warnings,
)  # fmt: skip
"""What programs name of these."""

POINTS = torch.tensor([-1.0, 2.0])
CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("CONTEXT", default=0)
RAISED = (Exception, GeneratorExit)
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclasses.dataclass(frozen=True)
class Kind:
    """Texts: how an object is made, what changes it, what is asked of it."""

    make: str
    changes: list[str]
    reads: list[str]
    others: list[str] = dataclasses.field(default_factory=list)
    """Texts of other objects that a later call may get."""
    around: list[str] = dataclasses.field(default_factory=list)
    """Heads of blocks that statements may stand in."""


KINDS = {
    name: Kind(**row)
    for file in sorted(Path(__file__).parent.glob("random_objects*.toml"))
    for name, row in tomllib.loads(file.read_text()).items()
}
CALLS = 4


# --- what the programs are about ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Record:
    a: Any = 1
    b: list[Any] = dataclasses.field(default_factory=list)

    def total(self) -> Any:
        return self.a, len(self.b)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Managed:
    k = 1

    def __init__(self) -> None:
        self._a: Any = 1

    @property
    def a(self) -> Any:
        return self._a

    @a.setter
    def a(self, value: Any) -> None:
        self._a = (value, "set")

    @a.deleter
    def a(self) -> None:
        self._a = "deleted"

    @functools.cached_property
    def c(self) -> Any:
        self.n = getattr(self, "n", 0) + 1
        return "c", self.n

    @classmethod
    def cm(cls) -> int:
        return cls.k

    @staticmethod
    def sm(x: Any) -> Any:
        return (x,)


class Answering:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return "got", name

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = ("put", value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)


class Missing(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        self[key] = ("missing", key)
        return self[key]


class Noting(list[Any]):
    def append(self, value: Any) -> None:
        super().append((value,))
        self.n = len(self)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Bits(enum.Flag):
    X = 1
    Y = 2
    Z = 4


class Base:
    a = 1

    def m(self) -> Any:
        return self.a


class Link:
    def __init__(self) -> None:
        self.v = 1
        self.nxt: Link | None = None


def a_function() -> Callable[..., Any]:
    def f(a: Any, b: Any = 2, *, c: Any = 3) -> Any:
        return a, b, c

    return f


def closures() -> types.SimpleNamespace:
    n, seen = 0, list[int]()

    def inc(k: int = 1) -> int:
        nonlocal n
        n += k
        seen.append(n)
        return n

    return types.SimpleNamespace(inc=inc, get=lambda: (n, tuple(seen)))


def a_generator() -> Iterator[int]:
    k = 0
    while k < 6:
        try:
            got = yield k
        except ValueError:
            got = 100
        k += 1 if got is None else got
    return "end"


def a_module() -> types.ModuleType:
    module = types.ModuleType("made")
    module.__dict__.update(a=1, f=lambda: module.a)
    return module


def a_class() -> type:
    return type("Made", (Base,), {"b": 2})


@torch.compiler.disable
def broken() -> None:
    """Where a graph ends."""


# --- programs ----------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Program:
    """``names`` gives the names of a process that has just begun: classes, functions and globals as they were written, ``program``
    (a function of an object and a tensor), ``make``, and ``between``, what is done before each call but the first."""

    source: str
    names: Callable[[], dict[str, Any]]


def fresh(source: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("random_objects_made", Path(__file__).with_name("random_objects_made.py"))
    assert spec and spec.loader
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    names = {**globals(), **vars(made)}
    exec(source, names)
    return names


def program(name: str, seed: int) -> Program:
    """A function of an object and a tensor. What it raises is noted, and it goes on."""
    kind, rng = KINDS[name], random.Random(f"{name} {seed}")
    breaks = rng.random() < 0.5

    def drawn(texts: list[str]) -> str:
        return rng.choice(texts).format(n=rng.randrange(4), k=rng.choice("abc"))

    def around(block: list[str]) -> list[str]:
        """The block in a context, which may end with an exception."""
        lines = [drawn(kind.around), *(f"    {line}" for line in block)]
        if breaks and rng.random() < 0.3:
            lines.insert(rng.choice([1, len(lines)]), "    broken()")
        if rng.random() < 0.3:
            lines.append(f"    raise ValueError({rng.randrange(4)})")
        return lines

    lines = ["def program(o, x):", "    seen = []"]
    if rng.random() < 0.25:
        lines.append(f"    o = {kind.make}")
    for _ in range(rng.randrange(3, 9)):
        chance = rng.random()
        if chance < 0.5:
            block = [drawn(kind.changes)]
        elif chance < 0.93:
            block = [f"seen.append({drawn(kind.reads)})"]
        else:
            block = ["for _ in range(2):", f"    {drawn(kind.changes)}", f"    seen.append({drawn(kind.reads)})"]
        while kind.around and rng.random() < 0.4 and len(block) < 12:
            block = around(block)
        if breaks and rng.random() < 0.3:
            lines.append("    broken()")
        lines += ["    try:", *(f"        {line}" for line in block), "    except RAISED as error:"]
        lines.append("        seen.append((type(error).__name__, str(error)[:60]))")
        if rng.random() < 0.3:
            lines.append("    x = x + 1")
    own = random.Random(f"between {name} {seed}")
    lines += ["    return seen, x, o", "", f"def make(): return {kind.make}", *between(kind, own), ""]
    source = "\n".join(lines)
    return Program(source, lambda: fresh(source))


def between(kind: Kind, rng: random.Random) -> Iterator[str]:
    """Functions that change the object, or give another one, before the second call and so on: nothing, in half of the programs."""
    changing = rng.random() < 0.5
    yield "between = []"
    for call in range(1, CALLS):
        lines = []
        for _ in range(rng.randrange(3) if changing else 0):
            text = rng.choice(kind.changes).format(n=rng.randrange(4), k=rng.choice("abc"))
            lines += ["    try:", f"        {text}", "    except RAISED: pass"]
        if changing and rng.random() < 0.3:
            lines.append(f"    o = {rng.choice([kind.make, *kind.others])}")
        size = rng.choice(["(2,)", "(2,)", "(3, 2)", "(1, 2)"]) if changing else "(2,)"
        dtype = rng.choice(["", "", "", ", dtype=torch.float64", ", dtype=torch.int64"]) if changing else ""
        yield from (
            f"def between_{call}(o):",
            *lines,
            f"    return o, torch.full({size}, {call}.0{dtype})",
            f"between.append(between_{call})",
        )


def outcome(drawn: Program, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function) -> list[str]:
    """What calls with one object give, and how they leave it."""
    for cls, attribute in ((Record, "a"), (Managed, "k"), (Base, "a")):
        setattr(cls, attribute, 1)
    CONTEXT.set(0)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    decimal.setcontext(decimal.Context())
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    names = drawn.names()
    function = wrapped(names["program"])
    given, x, results = names["make"](), torch.full((2,), 0.0), []
    for change in [None, *names["between"]]:
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        if change:
            given, x = change(given)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = function(given, x)
        ambient = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        ambient += torch.are_deterministic_algorithms_enabled(), torch.initial_seed(), int(torch.get_rng_state().sum())
        ambient += (random.getstate()[1][:2], printed.getvalue())
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        own = shown(names.get("HISTORY")), names.get("COUNT")
        told = shown(result), shown(given), Record.a, Managed.k, Base.a, ambient, own
        results.append(ADDRESS.sub("0x", str(told)))
    return results


# --- what is compared --------------------------------------------------------------------------------------------------------------

BY_REPR = (int, float, str, bytes, bytearray, type(None), complex, torch.dtype, np.dtype, np.generic, enum.Enum, range)
DATES = (datetime.datetime, datetime.timedelta)


def shown(value: Any, outer: tuple[int, ...] = ()) -> Any:
    """All of an object that programs may see, as a text or tuples of texts; addresses are left out."""
    if id(value) in outer or len(outer) > 8:
        return "..."

    def part(each: Any) -> Any:
        return shown(each, (*outer, id(value)))

    name = type(value).__name__
    if isinstance(value, (*BY_REPR, *DATES)):
        return name, repr(value)
    for types_, show in SHOWN:
        if isinstance(value, types_):
            return name, show(value, part)
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(value, types.ModuleType):
        return name, part({k: v for k, v in vars(value).items() if not k.startswith(("_lock", "_cache"))})
    return name


def _tensor(t: torch.Tensor, part: Callable[[Any], Any]) -> Any:
    return t.dtype, tuple(t.shape), t.stride(), t.requires_grad, t.detach().tolist(), part(t.grad) if t.is_leaf else "", part(vars(t))


def _module(m: nn.Module, part: Callable[[Any], Any]) -> Any:
    own = {k: v for k, v in vars(m).items() if "hook" not in k and k not in ("_parameters", "_buffers", "_modules")}
    tables = part(dict(m._parameters)), part(dict(m._buffers)), [(k, part(v)) for k, v in m._modules.items()]
    return m.training, tables, len(m._forward_hooks), part(own)


def _slots(o: Slotted, part: Callable[[Any], Any]) -> Any:
    found = []
    for name in Slotted.__slots__:
        with contextlib.suppress(AttributeError):
            found.append((name, part(getattr(o, name))))
    return found


SHOWN: list[tuple[Any, Callable[[Any, Callable[[Any], Any]], Any]]] = [
    (torch.Tensor, _tensor),
    (np.ndarray, lambda a, part: (a.dtype, a.shape, a.strides, a.tolist())),
    (nn.Module, _module),
    (dict, lambda d, part: [(part(k), part(v)) for k, v in list(d.items())]),
    ((list, tuple, collections.deque), lambda items, part: [part(v) for v in items]),
    ((set, frozenset), lambda items, part: sorted(map(repr, items))),
    (BaseException, lambda e, part: (part(e.args), part(vars(e)), repr(e.__cause__))),
    (type, lambda c, part: (c.__name__, sorted(k for k in vars(c) if not k.startswith("__")))),
    (types.FunctionType, lambda f, part: (f.__name__, part(f.__defaults__), part(f.__kwdefaults__), part(vars(f)))),
    (random.Random, lambda r, part: r.getstate()[1][:3]),
    (torch.Generator, lambda g, part: int(g.get_state().sum())),
    (np.random.Generator, lambda g, part: str(g.bit_generator.state)),
    (array.array, lambda a, part: (a.typecode, list(a))),
    (functools.partial, lambda p, part: (part(p.func), part(p.args), part(p.keywords))),
    (io.StringIO, lambda s, part: (s.getvalue(), s.tell())),
    (types.SimpleNamespace, lambda n, part: part(vars(n))),
    (torch.optim.Optimizer, lambda o, part: (part(o.param_groups), part(list(o.state.values())))),
    (weakref.WeakValueDictionary, lambda d, part: sorted(d)),
    (Slotted, _slots),
]
