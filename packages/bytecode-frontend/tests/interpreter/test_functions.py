"""Differential: a function against its captured form: result, changed arguments, exception; first call and a second one that hits."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from typing import Any

import pytest
import torch
from alike import same

from conftest import outcome
from opmill_bytecode_frontend import Unsupported, capture


@dataclasses.dataclass
class Pair:
    left: Any
    right: int = 3

    def product(self) -> Any:
        return self.left * self.right


Named = collections.namedtuple("Named", "a b")


class Vector:
    def __init__(self, t: Any) -> None:
        self.t = t

    def __add__(self, other: Any) -> Vector:
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __getitem__(self, i: int) -> Any:
        return self.t[i]

    def __len__(self) -> int:
        return 4

    @property
    def total(self) -> Any:
        return self.t.sum()


@contextlib.contextmanager
def plus_one(n: int) -> Any:
    yield n + 1


def arithmetic(a, b):
    return a + b * 2 - a[1:, :1]


def closures(a, b):
    def inner(z):
        return z + a

    return inner(a), [inner(i) for i in (a, b)]


def list_argument(a, b, items=None):
    items = [1, 2] if items is None else items
    items.append(a + 1)
    items[0] = 5
    return len(items), items


def generators(a, b):
    def g(n):
        for i in range(n):
            yield a + i

    return sum(g(3)), list(zip(g(2), "ab"))


def caught(a, b):
    try:
        if a.shape[0] == 4:
            raise ValueError("bad", 3)
    except ValueError as e:
        return a + e.args[1], str(e)


def uncaught(a, b):
    raise KeyError("zz", a.shape[0])


def dataclass_made(a, b):
    p = Pair(a, right=4)
    p.extra = 7
    return p.product() + p.extra, p


def no_grad(a, b):
    with torch.no_grad():
        c = a * 2
    return c, torch.is_grad_enabled()


def context_manager(a, b):
    with plus_one(3) as k:
        return a * k


def named_tuple(a, b):
    n = Named(a, 1)
    return n, n.a + n.b


def user_object(a, b):
    v = 1 + Vector(a) + 2
    return v[0], len(v), v.total, bool(v)


def in_place(a, b):
    a.add_(1)
    a[0] = 3
    c = a.view(-1)
    c.mul_(2)
    return c


def text(a, b):
    return f"{a.shape} {a.dtype!r:>20} {3:04d}", sorted([3, 1, 2], key=lambda q: -q), {k: v for k, v in zip("ab", a.shape)}


def containers(a, b):
    d = collections.deque(maxlen=2)
    d.extend([a, 1, b])
    e = collections.defaultdict(list)
    e["q"].append(a)
    return d, e, collections.OrderedDict(z=1, y=a), {1, 2} | {3}


def several_results(a, b):
    v, i = a.max(dim=0)
    r = torch.max(a, 1)
    return v, i, r.values, r.indices, torch.finfo(a.dtype).min


def partials(a, b):
    return functools.partial(torch.add, a)(2), functools.reduce(lambda p, q: p + q, [a, b, a])


WHOLE = [
    arithmetic, closures, list_argument, generators, caught, uncaught, dataclass_made, no_grad, context_manager, named_tuple, user_object, in_place,
    text, containers, several_results, partials,
]  # fmt: skip


def branch(a, b):
    c = a * 2
    c = c + 1 if c.sum() > 0 else c - 1
    return c * 3


def item(a, b):
    return a * a.sum().tolist()


def in_loop(a, b):
    for _ in range(3):
        a = a + a.sum().tolist()
    return a


def in_with(a, b):
    with torch.no_grad():
        c = a * 2
        s = c.sum().tolist()
        c = c + s
    return c, torch.is_grad_enabled()


def in_try(a, b):
    try:
        raise ValueError(a.sum().tolist())
    except ValueError:
        return a * 2


def break_raises_in_try(a, b):
    try:
        c = a + int("x" if a.sum().tolist() == a.sum().tolist() else "1")
    except ValueError as e:
        return a * 2, str(e)
    return c


def helper(a):
    c = a + 1
    return c * 2 if c.sum() > 0 else c * 3


def in_callee(a, b):
    return helper(a * 2) - 1


def with_cells(a, b):
    k = 3

    def f(z):
        nonlocal k
        k += 1
        return z * k

    c = f(a)
    s = c.sum().tolist()
    return f(c) + s, k


def while_loop(a, b):
    i = 0
    while a.abs().sum() < 100 and i < 20:
        a = a.abs() * 2
        i += 1
    return a, i


BROKEN = [branch, item, in_loop, in_with, in_try, break_raises_in_try, in_callee, with_cells, while_loop]


def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)


@pytest.mark.parametrize("fn", WHOLE, ids=lambda f: f.__name__)
def test_whole(fn):
    compiled = capture(fn, "eager", fullgraph=True)
    want = outcome(fn, inputs())
    assert same(want, outcome(compiled, inputs()))
    entries = len(compiled.entries)
    assert same(want, outcome(compiled, inputs()))
    assert len(compiled.entries) == entries


@pytest.mark.parametrize("fn", BROKEN, ids=lambda f: f.__name__)
def test_broken(fn):
    breaks = []
    compiled = capture(fn, "eager", on_break=breaks.append)
    want = outcome(fn, inputs())
    assert same(want, outcome(compiled, inputs()))
    assert same(want, outcome(compiled, inputs()))
    assert breaks


def test_fullgraph_raises_a_numbered_refusal():
    with pytest.raises(Unsupported, match=r"FE\d+") as caught_:
        capture(item, "eager", fullgraph=True)(*inputs())
    assert "test_functions.py" in caught_.value.where


def test_captured_function_with_no_trace_after_a_refusal():
    state = {"n": 0}

    def fn(a):
        state["n"] += 1
        return a * a.sum().tolist()

    with pytest.raises(Unsupported):
        capture(fn, "eager", fullgraph=True)(inputs()[0])
    assert state == {"n": 0}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.scale = 2

    def forward(self, x):
        for layer in self.layers[:2]:
            x = torch.relu(layer(x))
        return {"out": x * self.scale}


def test_module_changes_are_seen():
    net = Net()
    compiled = capture(Net.forward, "eager", fullgraph=True)
    x = inputs()[0]

    def check():
        assert same(compiled(net, x), net(x))

    check()
    net.scale = 3
    check()
    net.layers[0].weight = torch.nn.Parameter(torch.ones(4, 4))
    check()
    with torch.no_grad():
        net.layers[1].weight.mul_(2)
        check()
    net.layers[0].register_forward_hook(lambda m, i, o: o + 1)
    check()
    net.layers[0] = torch.nn.Identity()
    check()
    net.double()
    x = x.double()
    check()


def test_defaults_are_looked_at_where_arguments_do_not_fit():
    def made():
        def f(a, b=2, *, c=3):
            return a, b, c

        return f

    def program(function, x):
        try:
            return function(), x + 1
        except TypeError as error:
            return str(error), x + 1

    captured, plain, twin = capture(program, "eager"), made(), made()
    for defaults in ((2,), (1, 2), None, (1, 2), (7,)):
        plain.__defaults__ = twin.__defaults__ = defaults
        assert captured(twin, torch.ones(1))[0] == program(plain, torch.ones(1))[0]


def later() -> Any:
    return early + 1  # type: ignore[name-defined] # noqa: F821


def names_of_functions(x: torch.Tensor) -> Any:
    made: dict[str, Any] = {}
    exec("def given(): return thing()", {"thing": lambda: 3}, made)
    table = later.__globals__
    table.update(made["given"].__globals__)
    table["early"] = x.sum()
    table.setdefault("other", 5)
    seen = later(), thing(), other, sorted(made["given"].__globals__), (lambda: 0).__globals__ is table  # type: ignore[name-defined] # noqa: F821
    for name in ("early", "thing", "other"):
        del table[name]
    return *seen, "early" in globals()


def test_names_of_functions() -> None:
    """The dictionary of a function's names is its module's: what is put there is found by the name."""
    for program in names_of_functions, capture(names_of_functions):
        assert program(torch.ones(2)) == (3, 3, 5, ["__builtins__", "thing"], True, False)


def real(x: torch.Tensor, factor: int = 2) -> torch.Tensor:
    return x * factor


def given_a_code() -> Any:
    def thin(*args: Any, __own: Any = None, **kwargs: Any) -> Any:
        __own.__code__, __own.__defaults__, __own.__kwdefaults__ = real.__code__, real.__defaults__, None
        torch.compiler.disable(len)(args)
        return __own(*args, **kwargs)

    thin.__kwdefaults__["__own"] = thin
    return thin


def test_given_a_code_with_other_parameters() -> None:
    """Decorators that make the function when it is first called put its code into the one that was there."""
    function, x = given_a_code(), torch.ones(2)
    compiled, caller = capture(function), capture(lambda f, x: f(x) + f(x, 3) + f(factor=4, x=x))
    for given in ({}, {"factor": 3}, {"factor": 4}):
        assert same(compiled(x, **given), x * given.get("factor", 2))
    assert same(compiled(factor=5, x=x), x * 5)
    for _ in range(2):
        assert same(caller(given_a_code(), x), x * 9)
