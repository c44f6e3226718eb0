"""Random programs over Python's features, as text: ``program(Random)`` gives one, ``outcomes`` what several calls of it do.

A program is a function of two tensors, a list, a dictionary, numbers, an object, a module and an iterator. It is written by choosing from
rows (``EXPRESSIONS`` by kind, ``STATEMENTS``), each of which may ask for others. It may fail: then the exception is what is compared.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import io
import itertools
import math
import operator
import typing
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from alike import same

SMALL = range(-2, 5)


# --- what programs use --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: Any
    k: int = 1
    items: list[Any] = dataclasses.field(default_factory=list)

    def scaled(self, by: Any) -> Point:
        return dataclasses.replace(self, x=self.x * by, k=self.k + 1)


class Pair(typing.NamedTuple):
    first: Any
    second: Any = 2

    def total(self) -> Any:
        return self.first + self.second


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def next(self) -> Color:
        return Color.BLUE if self is Color.RED else Color.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Listing(type):
    """A metaclass whose classes are containers."""

    def __iter__(cls) -> Any:
        Base.shared.append("walked")
        return iter([4, 5, 6])

    def __contains__(cls, value: Any) -> bool:
        return value == 4

    def __getitem__(cls, key: Any) -> Any:
        return key * 2

    @property
    def total(cls) -> int:
        Base.shared.append("total")
        return 15


class Listed(metaclass=Listing):
    pass


class Doubling:
    """A data descriptor."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else getattr(instance, self.name, 3)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance, self.name, value * 2)


class Base:
    shared: typing.ClassVar[list[Any]] = []
    factor = 2

    def __init__(self, k: int = 1) -> None:
        self.k = k

    def step(self, x: Any) -> Any:
        self.k += 1
        return x * self.factor

    def __enter__(self) -> Any:
        self.shared.append("in")
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.shared.append(kind.__name__ if kind else "out")
        return kind is KeyError


class Ranked(Base):
    """Tells what it is compared with."""

    def __lt__(self, other: Any) -> bool:
        Base.shared.append((self.k, other.k))
        return self.k < other.k


class Box(Base):
    doubled = Doubling()

    def __init__(self, k: int = 1) -> None:
        super().__init__(k)
        self.content = [k]

    def step(self, x: Any) -> Any:
        return super().step(x) + self.k

    @property
    def size(self) -> int:
        return len(self.content)

    @size.setter
    def size(self, value: int) -> None:
        self.content = [0] * (value % 4)

    @functools.cached_property
    def cached(self) -> int:
        self.shared.append("cached")
        return self.k * 10

    @classmethod
    def made(cls, k: int) -> Box:
        return cls(k)

    @staticmethod
    def plus(x: Any, y: Any = 1) -> Any:
        return x + y

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "cached":
            raise AttributeError(name)
        return len(name)

    def __add__(self, other: Any) -> Any:
        return self.k + other

    def __radd__(self, other: Any) -> Any:
        return other - self.k

    def __iadd__(self, other: Any) -> Any:
        self.content.append(other)
        return self

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Box) and self.k == other.k

    def __hash__(self) -> int:
        return hash(self.k)

    def __lt__(self, other: Any) -> Any:
        return self.k < other.k if isinstance(other, Box) else NotImplemented

    def __getitem__(self, key: Any) -> Any:
        return self.content[key] if isinstance(key, int) else key

    def __setitem__(self, key: Any, value: Any) -> None:
        self.content[key] = value

    def __contains__(self, value: Any) -> bool:
        return value == self.k

    def __iter__(self) -> Any:
        return iter(self.content[:3])

    def __len__(self) -> int:
        return len(self.content)

    def __call__(self, x: Any, *rest: Any, by: Any = 1, **more: Any) -> Any:
        return x * by + len(rest) + len(more)

    def __index__(self) -> int:
        return self.k % 3

    def __str__(self) -> str:
        return f"Box {self.k}"

    def __repr__(self) -> str:
        return f"Box({self.k})"


class Asking(Base):
    """Its methods ask tensors for numbers: graphs break while they run."""

    def __init__(self, x: Any) -> None:
        super().__init__(2)
        self.x = x * 2
        self.y = self.x + round(self.x.sum().item(), 2)

    def asked(self) -> Any:
        self.shared.append(self.k)
        self.k += 1
        return round(self.x.sum().item(), 2) % 5

    @property
    def tripled(self) -> Any:
        return self.y * 3 - self.asked()

    @tripled.setter
    def tripled(self, value: Any) -> None:
        self.y = self.y + self.asked() * value

    def __add__(self, other: Any) -> Any:
        return self.y + self.asked() + other if not isinstance(other, int) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return self.asked() * other + self.y

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if self.asked() > 2 else self.y - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.y * self.asked()

    def __getitem__(self, key: Any) -> Any:
        return self.y * key + self.asked() if key < 3 else self.y[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.y = self.y + key * self.asked() + value

    def __iter__(self) -> Any:
        return iter([self.y, self.x + self.asked()])

    def __enter__(self) -> Any:
        super().__enter__()
        return self.y + self.asked()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.y = self.y - self.asked()
        return super().__exit__(kind, value, traceback)

    def __bool__(self) -> bool:
        return self.asked() > 2

    def __lt__(self, other: Any) -> Any:
        return self.asked() < other.asked()


class Steps:
    """An iterator in Python whose steps break graphs."""

    def __init__(self, x: Any, upto: int) -> None:
        self.x, self.left = x, upto % 4

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        self.left -= 1
        if self.left < 0 or self.x.sum().item() > 50:
            raise StopIteration
        self.x = self.x * 2
        return self.x + 1


class Table(dict):
    def __missing__(self, key: Any) -> Any:
        self[key] = 7
        return 8

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value if isinstance(value, torch.Tensor) else ("set", value))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.named = torch.nn.ModuleDict({"relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh()})
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(4))
        self.calls = 0

    @property
    def width(self) -> int:
        return self.layers[0].out_features

    def forward(self, x: Any, name: str = "relu", *, upto: int = 2) -> Any:
        self.calls += 1
        if self.training:
            self.seen += x.detach()
        for layer in self.layers[:upto]:
            x = self.named[name](layer(x)) * self.scale
        return x


class Made(ValueError):
    """An error with a constructor of its own."""

    def __new__(cls, *args: Any) -> Any:
        made = super().__new__(cls, *args)
        made.count = len(args)
        return made


class Stop(Exception):
    def __init__(self, why: Any, code: int = 3) -> None:
        super().__init__(why, code)
        self.code = code


@contextlib.contextmanager
def logged(log: list[Any], name: str) -> Any:
    log.append(name)
    try:
        yield len(log)
    except ZeroDivisionError:
        log.append("divided")
    finally:
        log.append("end")


def deco(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) + 1

    return wrapper


@functools.lru_cache
def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.singledispatch
def kind(value: Any) -> str:
    return "object"


kind.register(int, lambda value: "int")
kind.register(torch.Tensor, lambda value: "tensor")


@torch.compiler.disable
def opaque(x: Any) -> Any:
    return x + 0.5


def helper(z: Any, k: Any = 2, *rest: Any, extra: Any = None, **more: Any) -> Any:
    z = z - k
    if extra is not None:
        z = z + extra
    return z * 2 if len(rest) + len(more) else z + k


def counting(n: int, log: list[Any]) -> Any:
    try:
        for i in range(n % 5):
            got = yield i
            if got:
                log.append(got)
    except ValueError:
        yield 99
    return "done"


def pulling(x: Any, n: int, log: list[Any]) -> Any:
    """A generator with breaks in its body."""
    try:
        for i in range(n % 4):
            x = x * 2 + i
            log.append(round(x.sum().item(), 1))
            yield x - 1
    finally:
        log.append("pulled")


def flowing(x: Any, n: int, log: list[Any]) -> Any:
    """A generator that nothing happens to when it is dropped."""
    for i in range(n % 4):
        x = x * 2 + i
        log.append(i)
        yield x - 1


def namespace() -> dict[str, Any]:
    """New globals of a program."""
    used = (
        collections, contextlib, copy, functools, itertools, math, operator, torch, Point, Pair, Color, Base, Box, Table, Stop, logged, deco, fib, kind,
        opaque, helper, counting, Asking, Steps, pulling, flowing, heapq, bisect, Level, Listed, Ranked, Made,
    )  # fmt: skip
    return {
        "__name__": "program",
        **{thing.__name__: thing for thing in used},
        "F": torch.nn.functional,
        "SCALE": 2,
        "LOG": [],
        "TABLE": {"a": 1, "b": [2]},
    }


# --- writing --------------------------------------------------------------------------------------------------------------------------

Row = Callable[["Writer"], Any]
EXPRESSIONS: dict[str, list[str]] = {
    # tensors of four numbers; {t} {n} {c} {s} {l} {o}: an expression of that kind, {v}: a tensor variable, {i}: a small number
    "t": [
        "{v}", "{v}", "{v}", "inner({t})", "{t} * SCALE", "({t} + {t})", "({t} - {n})", "({t} * {n})", "torch.relu({t})", "{t}.abs()", "helper({t}, k={n})", "helper({t}, {n}, 1, extra={t})",
        "(l[-1] if l and isinstance(l[-1], torch.Tensor) else {t})", "d.get('t', {t})", "({t} if {c} else {t})", ("sum([{t} for q in "
            "range({i})], start={t})"),
        "o.step({t})", "net({t})", "net({t}, 'tanh', upto={i})", "o({t}, by={n})", "o({t}, *l[:1], z=1)", "Box.plus({t}, {n})", "Point({t}, {n}).scaled({n}).x",
        "Pair({t}, {n}).total()", "functools.reduce(operator.add, [{t}, {t}])", ("functools.partial(helper, "
            "k={n})({t})"), "deco(lambda q: q * {n})({t})",
        "torch.stack([{t}, {t}]).sum(0)", "torch.cat([{t}[:2], {t}[2:]])", "{t}.view(2, 2).t().reshape(-1)", "{t}[[3, 2, 1, 0]]", "{t}.clone()", "F.softmax({t}, dim=-1)",
        "torch.where({t} > 0, {t}, {t})", "(lambda q, *r, w={t}: q + w)({t}, 1)", ("max([{t}, {t}], key=lambda q: "
            "q.shape[0])"), "torch.full((4,), float({n}))", "{t}.new_zeros({t}.shape)",
        "opaque({t})", "[q for q in ({t}, {t})][{i} % 2]", "dict(z={t})['z']", "next(iter([{t}]))", "copy.copy({t})", "{t} * SCALE", "{t}.roll({i})", "torch.arange(4) * {n} + {t}",
        "getattr({t}, 'neg')()", "operator.add({t}, {n})", "({t}, {t})[{i} % 2]", "(w := {t})", ("net.layers[{i} % "
            "3]({t})"), "{t}.chunk(2)[{i} % 2].repeat(2)", "{t}.detach()",
        "sum(itertools.islice(itertools.repeat({t}), 2))", "[*map(torch.sin, [{t}])][0]", "{t}.double().float()", ("{t}.expand(2, "
            "4)[1]"), "torch.nan_to_num({t} / {t})",
        "Asking({t}).tripled", "(Asking({t}) + {t})", "(Asking({t}) + {n})", "({n} * Asking({t}))", "(Asking({t}) - {n})", "({t} - Asking({t}))", "Asking({t})[{i}]", "sum(Steps({t}, {i}), {t})", "sum(Asking({t}), {t})",
        "min([Asking({t}), Asking({t})]).y", "(Asking({t}) or Asking({t})).y", "sum(pulling({t}, {n}, l), {t})", ("[*pulling({t}, 2, "
            "l)][-1]"), "next(flowing({t}, 1, l))", "({t} * {f})", "({t} + {f})", "torch.full_like({t}, {f})",
        "({t} * Level({i} % 2 + 1))", "{t}[[Level.LOW, Level.HIGH, 0, 3]]", ("{t}.view(Level.HIGH, "
            "-1)[Level.LOW].repeat(Level.HIGH)"), "next(itertools.islice(itertools.cycle([{t}, {t}]), abs({i}), None))",
        "list(itertools.accumulate([{t}, {t}], operator.sub))[-1]", "operator.itemgetter({i} % 2)([{t}, {t}])", "operator.attrgetter('x')(Point({t}))", "operator.methodcaller('step', {t})(o)",
    ],
    "n": [
        "{i}", "n", "m", "{i}", "len(l)", "len(d)", "({n} + {n})", "({n} * {n})", "({n} - {n})", "({n} // {n})", "({n} % {n})", "{t}.shape[0]", "int({t}.sum().item() * 4) % 7",
        "next(source, {n})", "d.setdefault({n}, {n})", "min({n}, {n})", "max({n}, {n}, key=lambda q: -q)", "o.k", "o.size", "o.missing", "len(o)", "o.doubled", "o.cached", "fib(abs({n}) % 9)",
        "sum(range({i}))", "sum(q for q in range({i}) if q != {n})", "{n} if {c} else {n}", "o + {n}", "{n} + o", "SCALE", "TABLE['a']", "len(TABLE['b'])", "net.calls", "net.width",
        "int({c})", "abs({n})", "({n}) ** 2 % 50", "math.floor({n} / 2)", "len({s})", "{s}.count('a')", "(lambda: {n})()", "[5, 6, 7][o]", "ord({s}[:1] or 'z')", "Color.BLUE.value",
        "len(set([{n}, {n}]))", "collections.Counter({s})['a']", "{t}.dim()", "{t}.numel()", ("sorted([{n}, "
            "{n}])[0]"), "int('7') + {n}", "~{n}", "({n} & 3)", "({n} << 1) % 31", "-{n}",
        "len([q for q in l if not isinstance(q, str)])", "hash(({i}, 'a')) == hash(({i}, 'a'))", "divmod({n}, 3)[1]", "round({n} / 3)", "math.prod([2, {n}]) % 91", "Box.made({n}).k", "o[0]",
        "heapq.nsmallest(1, [{n}, {n}])[0]", "bisect.bisect([1, 3, 5], {n})", "int({f}) % 7", "getattr(o, 'absent' + str({i}), {n})", "(n := {n})", "Base.factor", "len(net.layers)", "(Level.HIGH + {n})", "[3, 4, 5][Level(1)]", "[*Listed][{i} % 3]", "Listed[{n}]", "Listed.total", "sorted([Ranked({n}), Ranked({n}), Ranked(1)], reverse={c})[0].k",
        "len({{1: {n}, 2: 3}}.keys() - [{n}])", "len(l[o:])", "len([1, 2] * o)", "operator.attrgetter('k')(o)", ("max([Ranked({n}), "
            "Ranked({n})], key=operator.attrgetter('k')).k"), "sum(1 for _ in net.parameters())", "len(list(zip(l, d)))",
    ],
    "c": [
        "{n} < {n}", "n > 1", "{t}.sum() > {i}", "{n} == {n}", "not {n}", "n in (1, 2)", "n > 0 and {t}.max() > 0 or {n}", "{n} in o", "o == Box({n})", "r < {f}", "r == {f}", "{f} > 1", "o < Box({n})", "isinstance({n}, int)",
        "isinstance({t}, torch.Tensor)", "{s} < 'b'", "'a' in {s}", "any(q > {n} for q in [1, 2])", "all([{n}, {n}])", ("Color.RED is "
            "Color(1)"), "hasattr(o, '_zz')", "callable({n})", "bool(l)", "{n} is None",
        "d.get({n}) is not None", "'t' in d", "{t} is {v}", "torch.is_grad_enabled()", "{n} in Listed", "Level.LOW < {n}", "{{{n}}} in [{{1}}, {{2}}]", "{t}.dtype == torch.float32", "0 <= {n} < 5", "kind({n}) == 'int'", "{n} != {n}", "net.training", "o",
    ],
    "f": [
        "r", "0.5", "float({n})", "(r + {n})", "(r * {f})", "(r - {f})", "-r", "abs({f})", "max(r, {f})", "round({f}, 1)", "({n} / 4)", "math.sqrt(abs({f}))", "math.tanh({f})", "min({f}, 1.5)", "({f} if {c} else r)", "r ** 2", "{f} % 3",
    ],
    "s": [
        "'abc'", "'a'", "'b'", "str({n})", "f'{{{n}}}-{{{n}!r:>4}}'", "'%s/%d' % ({s}, {n})", "{s} + {s}[:1]", "'{{}}'.format({n})", "','.join(map(str, [{n}, {n}]))", "{s}.upper()", "{s}.replace('a', 'b')[:9]", "str(o)",
        "type({t}).__name__", "repr({s})[:9]", "kind({t})", "Color.RED.name", "str(list({t}.shape))", "f'{{o}}{{o!r}}'", "inner.__name__", "str(type({n}).__name__)", "{s} * 2", "f'{{Level.HIGH}}{{Level.LOW:>3}}'", "str(Level({i} % 2 + 1))", "ascii({s})",
    ],
    "l": [
        "[{n}, 1]", "list(range({i}))", "l[:1]", "[{n}, {t}]", "[q * 2 for q in range({i})]", "[*l[:2], {n}]", "list(d)[:2]", "sorted([{n}, {n}, 1], reverse=True)", "list(zip([1, 2], [{t}, {t}]))", "list(counting({n}, l))",
        "list(enumerate([{n}]))", "[q for r in [[1], [{n}]] for q in r]", "list(map(lambda q: q + {n}, [1, 2]))", ("list(filter(None, [{n}, "
            "0, 1]))"), "list(reversed([{n}, {t}]))", "list(o)", "[(q, r) for q, r in d.items()][:1]",
        "list(itertools.chain([{n}], [{t}]))", "list(itertools.accumulate([1, {n}]))", ("list(dict.fromkeys([{n}, "
            "{n}]))"), "list({s})", "[{t}] * ({i} % 3)", "list(itertools.product([1, {n}], repeat=2))[:3]", "copy.deepcopy([{n}, [{n}]])",
        "list({{1: {n}, 2: 3}}.values())", "[*{{{n}, 1}}]", "list(collections.OrderedDict(a={n}, b=2).items())", "list(collections.deque([{n}, 2, 3], maxlen=2))", "[None, ...]", "[not_there for not_there in []]",
    ],
}  # fmt: skip
#: Statements on one line.
SIMPLE = [
    "{v} = {t}", "{v} = {t}", "{v} += {t}", "{v} *= {n}", "{v}.add_({n})", "{v}.mul_({t})", "{v}[{i} % 4] = {n}", "{v}[1:3] += 1", "m = ({n}) % 97", "n += 1", "m -= {n}",
    "l.append({t})", "l.append({n})", "l.extend({l})", "l.insert(0, {n})", "l.pop()", "l.pop(0)", "l[0] = {t}", "l[{i} % 2:] = {l}", "del l[0]", "l.reverse()", "l += {l}", "l.clear()", "l.remove(1)",
    "d[{n}] = {t}", "d['t'] = {t}", "d[{s}] = {n}", "d.update({{{n}: {n}}})", "d.update(z={t})", "d.pop(1)", "d.pop('t', None)", "del d[{n}]", "d |= {{'or': {n}}}", "d.setdefault('l', []).append({n})",
    "o.k = {n}", "o.size = {n}", "o.doubled = {n}", "o.fresh = {t}", "del o.fresh", "o.content.append({n})", "o += {n}", "o[0] = {t}", "setattr(o, 'by_name', {n})", "o.shared.append({n})", "o.__dict__['direct'] = {n}",
    "keep({t})", "bump()", "m = bump()", "print({s}, {n}, l[:1] if all(not isinstance(q, torch.Tensor) for q in l[:1]) else 0)", "print(f'{{m}} {{n:3d}} {{o}}')", "LOG.append({n})", "TABLE['a'] = {n}", "TABLE['b'].append({n})", "table['q'] = {t}", "m = table[{n}][1] if isinstance(table[{n}], tuple) else table[{n}]",
    "p, (q, *r), *_ = {n}, ({t}, {n}, 3), 4\n    l.extend(r)\n    t = t + p + q", "t, m = {t}, {n}", "x = y = {t}", "{v}, t = t, {v}", "w = {t}.view(-1)\n    w.add_(1)", "w = {v}[:2]\n    w *= 2",
    "point = Point({t}, {n}, {l})\n    point.k += 1\n    l.append(point.scaled({n}).k)", "pair = Pair({t})._replace(second={n})\n    t = pair.first + pair[1]", "color = Color({i} % 2 + 1).next\n    l.append(color.name)",
    "net.calls += {n}", "net.seen.mul_(2)", "net.extra = {t}", "b = opaque(b)", "gen = counting({n}, l)\n    m = next(gen, {n})\n    l.extend(gen)",
    "gen = counting({n}, l)\n    next(gen, 0)\n    try:\n        m = gen.send({n})\n    except StopIteration as e:\n        l.append(e.value)", "gen = (q + {n} for q in range({i}))\n    l.append(next(gen, -1))\n    m = sum(gen)",
    "f = lambda q, k={n}: q + k + m\n    m = f(m) % 89", "q = d.copy()\n    q['copy'] = {n}\n    m = len(q)", "k = list(d)\n    l.append(len(k))", "assert {n} != {n}, {s}", "SCALE = {i}",
    "made = type(o)({n})\n    l.append(made.k)\n    t = made.step(t)", "q = collections.deque(l, maxlen=3)\n    q.appendleft({n})\n    l[:] = q", "q = collections.defaultdict(list)\n    q[{n}].append({t})\n    m = len(q)",
    "first, *rest = {l} or [0]\n    l.append(len(rest))", "s = {s}\n    l.append(s[::-1])", "s = set(range({i}))\n    s.add({n})\n    s -= {{1}}\n    l.append(sorted(s))", "x = {t}; x.requires_grad_(False); t = x * 2",
    "def local(q, *, k={n}, **kw):\n        return q * k + len(kw)\n    t = local({t}, z=1)", "def outer(q):\n        total = q\n        def add(r):\n            nonlocal total\n            total = total + r\n            return total\n        return add\n    add = outer({t})\n    add({n})\n    t = add({t})",
    "it = iter(l)\n    l.append(sum(1 for _ in it))", "import math as mm\n    m = mm.floor({n})", "h = [inner, helper]\n    t = h[{i} % 2]({t})", "t = deco(helper)({t}, {n})", "with torch.no_grad(): t = net({t})", "t = (net if {c} else o)({t})",
    "t = torch.stack([t, *[q for q in l if isinstance(q, torch.Tensor)][:2]]).mean(0)", "a, b = b, a", "a.copy_({t})", "q = Asking({t})\n    q.tripled = {n}\n    t = q.y", "q = Asking({t})\n    q[{i}] = {t}\n    t = q.y + q.k", "q = flowing({t}, {n}, l)\n    t = next(q, t)\n    {v} = {t}\n    t = t + sum(q)", "r = {f}", "r += {n}", "r = r * {f}", "l.append({f})",
    "heapq.heappush(q := [1, 4, 6], {n})\n    m = q[0] + heapq.heappop(q)", "q = flowing({t}, {n}, l)\n    t = next(q, t)\n    del q", "q = pulling({t}, 3, l)\n    next(q)\n    m = int(t.sum().item()) % 7\n    q.close()", "q = sorted([Box({n}), Box({n}), Box(1)])\n    m = q[0].k",
    "class Local(Base):\n        k, other = 4, {n}\n        def step(self, x):\n            return super().step(x) + self.other\n    t = Local({n}).step(t)", "b.zero_()", "q = itertools.chain(l, [{n}])\n    next(q, 0)\n    b = opaque(b)\n    l.append({n})\n    m = len(list(q))", "q = reversed(l)\n    next(q, 0)\n    b = opaque(b)\n    l[:1] = [{n}]\n    l.extend(list(q)[:1])",
    "q = itertools.accumulate([1, {n}, 2], lambda y, z: l.append(y) or y + z)\n    next(q)\n    b = opaque(b)\n    m = sum(q) % 97", "q = itertools.islice(l, 1, None, 2)\n    next(q, 0)\n    b = opaque(b)\n    l.append({n})\n    m = len(list(q))",
    "q = itertools.takewhile(lambda z: z != {n}, itertools.count(1))\n    next(q, 0)\n    b = opaque(b)\n    l.append(list(itertools.islice(q, 4)))", "q = itertools.pairwise([1, {n}, {t}])\n    next(q)\n    b = opaque(b)\n    t = t + next(q)[1]",
    "l.sort(key=lambda q: (l.append(1), 0)[1])", "q = [Ranked({n}), Ranked(2), Ranked({n})]\n    q.sort()\n    m = q[0].k", "try:\n        raise Made({n}, {s})\n    except ValueError as e:\n        l.append((e.count, e.args[0]))", "t = a.view(2, 2)[0].repeat(2)",
]  # fmt: skip
LEAVING = [
    "return t, {n}",
    "raise ValueError({n})",
    "raise KeyError({s})",
    "raise Stop({n})",
    "raise Stop({n}, {n}) from ValueError({i})",
    "1 / 0",
    "l[99]",
    "d['nowhere']",
    "None.attribute",
    "t + torch.ones(3)",
    "int('x')",
]
#: Blocks: head lines, with {block} for a body.
BLOCKS = [
    "if {c}:\n{block}", "if {c}:\n{block}\nelse:\n{block}", "if {c}:\n{block}\nelif {c}:\n{block}\nelse:\n{block}", "for i in range({i}):\n{loop}", "for i, x in enumerate([{t}, {n}]):\n    t = t + x * i\n{loop}",
    "for i in range({i}):\n{loop}\nelse:\n{block}", "for k in [k for k in d if k != {n}][:3]:\n{loop}", "for q in Steps({t}, {i}):\n    t = t + q\n{loop}", "for q in flowing({t}, {n}, l):\n    t = t + q\n{loop}", "with Asking({t}) as q:\n    t = t + q\n{risky}", "for x in counting({n}, l):\n    m = (m + x) % 97\n{loop}", "for q in {l}:\n    l.append(str(type(q).__name__))\n{loop}", "for q in o:\n{loop}",
    "turns = 0\nwhile turns < 4 and ({c}):\n    turns += 1\n{loop}", "turns = 0\nwhile (turns := turns + 1) < {i}:\n{loop}\nelse:\n{block}", "try:\n{risky}\nexcept ValueError as e:\n    l.append(str(e))\n{block}", "try:\n{risky}\nfinally:\n{block}",
    "try:\n{risky}\nexcept (KeyError, IndexError) as e:\n    l.append(type(e).__name__)\nexcept Stop as e:\n    m = e.code\n    l.append(e.args[1:])\nelse:\n{block}\nfinally:\n    l.append('f')", "try:\n{risky}\nexcept Exception as e:\n    l.append(repr(e)[:40])\n    raise RuntimeError({s}) from e",
    "try:\n{risky}\nexcept ZeroDivisionError:\n{block}\n    raise", "with torch.no_grad():\n{block}", "with o:\n{risky}", "with o as same, logged(l, {s}) as count:\n    m = count\n{risky}", "with contextlib.suppress(KeyError, ZeroDivisionError):\n{risky}", "with contextlib.ExitStack() as stack:\n    stack.enter_context(logged(l, 'stack'))\n    stack.callback(l.append, {n})\n{risky}",
    "match {l}:\n    case [int(q), *r]:\n        l.append(q)\n    case []:\n        m = 0\n    case _:\n        m = 1", "match {n}:\n    case 0 | 1:\n        m = 5\n    case q if q > 2:\n        m = q % 7\n    case _:\n        t = t + 1",
    "match Point({t}, {n}):\n    case Point(k=1):\n        m = 1\n    case Point(x=q, k=k):\n        t = q + k", "match d:\n    case {{'t': q, **r}}:\n        m = len(r)\n    case _:\n        m = 2", "for x, y in zip([{t}, {t}], {l}):\n    t = t + x\n{loop}", "for j in range({i}):\n    for k in range({i}):\n        if {c}: {leave_loop}\n        t = t + k\n{loop}",
]  # fmt: skip
HEAD = """
def program(a, b, l, d, n, o, net, source, table, r=0.5):
    global SCALE
    m, t = 1, a + b
    def inner(z):
        nonlocal m
        m += 1
        return z * m
    def keep(z):
        d['kept'] = z
    def bump():
        global SCALE
        SCALE += 1
        return SCALE
"""
FOOT = """    return a, t, n, m, l[:3], {**d}, torch.is_grad_enabled(), SCALE, r
"""


class Writer:
    """Chooses rows and fills them."""

    def __init__(self, choices: Random) -> None:
        self.choices = choices
        self.depth = 0
        self.loops = 0

    def expression(self, kind: str) -> str:
        """An expression of a kind; the deeper it stands, the simpler."""
        rows = EXPRESSIONS[kind]
        simple = self.depth > 2 or self.depth > 0 and self.choices.random() < 0.5
        self.depth += 1
        text = self.fill(self.choices.choice(rows[:3] if simple else rows))
        self.depth -= 1
        return text if text.isidentifier() or text.isdigit() or kind == "l" else f"({text})"

    def fill(self, row: str) -> str:
        """A row with its parts in braces chosen; doubled braces become single ones."""
        out, i = [], 0
        while i < len(row):
            if row.startswith(("{{", "}}"), i):
                out.append(row[i])
                i += 2
            elif row[i] == "{":
                end = row.index("}", i)
                name, _, rest = row[i + 1 : end].partition("!")
                out.append(self.part(name))
                i = end + 1
            else:
                out.append(row[i])
                i += 1
        return "".join(out)

    def part(self, name: str) -> str:
        if name == "v":
            return self.choices.choice(("a", "b", "t"))
        if name == "i":
            return str(self.choices.choice(SMALL)) if self.choices.random() < 0.9 else "3"
        if name == "leave_loop":
            return self.choices.choice(("break", "continue"))
        return self.expression(name)

    def block(self, depth: int, loop: bool, risky: bool = False) -> list[str]:
        lines = [line for _ in range(self.choices.randint(1, 3)) for line in self.statement(depth - 1, loop)]
        if loop and self.choices.random() < 0.4:
            lines += [f"if {self.expression('c')}: {self.choices.choice(('break', 'continue'))}"]
        if risky and self.choices.random() < 0.6:
            lines += (
                [f"if {self.expression('c')}: {self.fill(self.choices.choice(LEAVING))}"]
                if self.choices.random() < 0.7
                else [self.fill(self.choices.choice(LEAVING))]
            )
        return ["    " + line for line in lines]

    def statement(self, depth: int, loop: bool) -> list[str]:
        if depth <= 0 or self.choices.random() < 0.62:
            if self.choices.random() < 0.04:
                return [f"if {self.expression('c')}: {self.fill(self.choices.choice(LEAVING))}"]
            return [line.removeprefix("    ") if k else line for k, line in enumerate(self.fill(self.choices.choice(SIMPLE)).split("\n"))]
        lines = []
        self.loops += 1
        for line in self.choices.choice(BLOCKS).replace("turns", f"turns{self.loops}").split("\n"):  # no loop counts for another
            if line in ("{block}", "{loop}", "{risky}"):
                lines += self.block(depth, loop or line == "{loop}", line == "{risky}")
            else:
                lines.append(self.fill(line))
        return lines


def program(choices: Random) -> str:
    """The text of a random program."""
    writer = Writer(choices)
    lines = [line for _ in range(choices.randint(2, 6)) for line in writer.statement(3, False)]
    return HEAD + "".join(f"    {line}\n" for line in lines) + FOOT


def compiles(text: str) -> bool:
    """Whether the text is a program at all: a row may land where Python has no place for it."""
    try:
        compile(text, "<program>", "exec")
    except SyntaxError:
        return False
    return True


# --- running ----------------------------------------------------------------------------------------------------------------------------


def state(globals_: dict[str, Any]) -> Any:
    return {k: v for k, v in globals_.items() if k in ("SCALE", "LOG", "TABLE")}, list(Base.shared), Base.factor


def outcomes(make: Callable[[Any], Any], text: str) -> list[Any]:
    """What five calls of a program do, with changes of the world between them. ``make`` compiles the function, or leaves it as it is."""
    globals_ = namespace()
    exec(compile(text, "<program>", "exec"), globals_)
    function = make(globals_["program"])
    torch.manual_seed(0)
    net, box = Net(), Box(2)
    results = []
    for turn, n in enumerate((1, 1, 3, 1, 2)):
        torch.manual_seed(n)
        Base.shared.clear()
        Base.factor = 2 if turn < 4 else 3
        globals_["LOG"].clear()
        if turn in (2, 3):
            globals_["SCALE"] = 2
            net.train(turn == 3)
            box.k = turn
        a, b = torch.randn(4), torch.randn(4)
        items: list[Any] = [1, torch.ones(4)]
        d: dict[Any, Any] = {1: 2, "t": torch.ones(4)}
        source, table = iter([5, 6, 7]), Table(q=1)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                result = function(a, b, items, d, n, box, net, source, table, n / 4 + turn % 2)
            except Exception as error:
                result = type(error).__name__, str(error), type(error.__context__).__name__, type(error.__cause__).__name__
            finally:
                grad = torch.is_grad_enabled()
                torch.set_grad_enabled(True)
        parts = (
            result,
            a,
            b,
            items,
            d,
            list(source),
            grad,
            vars(box),
            dict(table),
            said.getvalue(),
            net.calls,
            net.seen,
            vars(net).get("extra"),
            state(globals_),
        )
        results.append(copy.deepcopy(detached(parts)))
    return results


def detached(value: Any) -> Any:
    """The same with tensors that no longer know how they were made (only those can be copied)."""
    if isinstance(value, torch.Tensor):
        return value.detach() if not value.is_leaf else value
    if type(value) in (list, tuple):
        return type(value)(map(detached, value))
    if type(value) is dict:
        return {k: detached(v) for k, v in value.items()}
    return value


def difference(make: Callable[[Any], Any], text: str) -> str | None:
    """What is not the same, None when everything is."""
    want, got = outcomes(lambda function: function, text), outcomes(make, text)
    for turn, (wanted, found) in enumerate(zip(want, got)):
        for part, (w, f) in enumerate(zip(wanted, found)):
            if not same(w, f, parts=(Point, Base)):
                return f"call {turn}, part {part}\nwant {w}\ngot  {f}"
    return None


def shrunk(make: Callable[[Any], Any], text: str) -> str:
    """The program with all lines removed that the difference does not need."""
    lines = text.split("\n")
    width = len(lines) // 2
    while width:
        i = 0
        while i < len(lines):
            fewer = [*lines[:i], *lines[i + width :]]
            candidate = "\n".join(fewer)
            keeps = "def program" in candidate and compiles(candidate) and difference(make, candidate) is not None
            lines, i = (fewer, i) if keeps else (lines, i + width)
        width //= 2
    return "\n".join(lines)
