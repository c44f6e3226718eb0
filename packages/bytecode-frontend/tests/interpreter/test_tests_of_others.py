"""Programs after other people's tests, each called several times: results and exceptions are eager's, and the capture meets no error of its
own."""

from __future__ import annotations

import collections
import functools
import inspect
import logging
import pickle
import re

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture
from opmill_bytecode_frontend.values.base import Raised


@pytest.fixture
def agrees(caplog):
    """``agrees(f, *calls)``: of each call's arguments, made anew for the plain run by ``calls``, the captured function makes the same."""
    caplog.set_level(logging.DEBUG, "opmill.internal")

    def check(f, *calls):
        compiled = capture(f, "eager")
        for call in calls:
            assert outcome(compiled, call()) == outcome(f, call())
        assert not [each for each in caplog.records if is_internal(each)], caplog.text

    return check


def outcome(f, args):
    try:
        return told(f(*args))
    except Exception as exc:
        return type(exc).__name__, re.sub("0x[0-9a-f]+", "0x", str(exc))


def is_internal(record):
    """Whether a log tells of an error of the capture itself; what it found that it may not do is none."""
    return record.levelno >= logging.WARNING or (record.exc_info and not isinstance(record.exc_info[1], (Unsupported, Raised)))


def told(value):
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(told, value)
    return value


# --- assert statements as pytest writes them anew: variables whose names are no identifiers -------------------------------------------


def rewritten(x, much):
    assert x.sum().item() > 0
    y = x * 2
    assert y.shape == x.shape and torch.allclose(y, x + x), "not twice"
    assert (y + 1).sum().item() < much, f"more than {much}"
    return y


def rewritten_in_a_loop(x, much):
    for i in range(3):
        x = x + i
        assert x.max().tolist() < much
        assert isinstance(x, torch.Tensor) and x.min().tolist() > 0
    return x


@pytest.mark.parametrize("f", [rewritten, rewritten_in_a_loop])
def test_rewritten_assert_statements(agrees, f):
    assert any(not name.isidentifier() for name in f.__code__.co_varnames)
    agrees(f, *(lambda x=x, much=much: (torch.full((2,), x), much) for x in (1.0, 2.0, -1.0) for much in (100, 4)))


# --- modules that have no parts yet -------------------------------------------------------------------------------------------------


class Late(torch.nn.Module):
    def __init__(self, scale):
        self.check(scale)
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def check(self, scale):
        if scale.item() < 0:
            raise ValueError(f"{scale} is less than nothing")


def made_late(x):
    made = Late(x.sum())
    return x * 2, sorted(made._modules), sorted(made.__dict__)


def never_made(x):
    late = Late.__new__(Late)
    late.check(x.sum())
    return x + 1, sorted(late.__dict__)


def made_in_builtins(x):
    made = functools.reduce(lambda before, each: [*before, Late(each)], [x.sum(), x.sum() + 1], [])
    return x * 2, [sorted(each._modules) for each in made], list(map(Late, [x.sum() - 1]))[0].training


def loaded(x):
    made = pickle.loads(pickle.dumps(Late(x.sum())))
    return x * 2, sorted(made._modules), made.training


@pytest.mark.parametrize("f", [made_late, never_made, made_in_builtins, loaded])
def test_modules_whose_init_has_not_been_run(agrees, f):
    agrees(f, *(lambda x=x: (torch.full((2,), x),) for x in (1.0, 2.0, -1.0)))


@torch.compiler.disable
def elsewhere(x):
    return x


class InPieces(torch.nn.Module):
    """Its ``__init__`` runs as a frame of its own where a builtin calls the class, and is cut before and after there are parts."""

    def __init__(self, x):
        self.early = 3
        elsewhere(x)
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.n = elsewhere(x).shape[0]
        self.register_buffer("twice", x * 2)
        self.out = self(x)

    def forward(self, x):
        return self.linear(x) + self.twice


class TooEarly(torch.nn.Module):
    def __init__(self, x):
        kind = torch.nn.Parameter if x.sum().item() > 4 else lambda _: torch.nn.ReLU()
        self.part = kind(x)
        super().__init__()


class Nothing(torch.nn.Module):
    def __init__(self, x):
        elsewhere(x)
        self.kept = x + 1
        self.missing


@pytest.mark.parametrize("kind", [InPieces, TooEarly, Nothing])
def test_init_of_modules_in_pieces(agrees, kind):
    def f(x):
        torch.manual_seed(0)
        made = functools.reduce(lambda _, each: kind(each), [x + 1], None)
        return sorted(made.__dict__), [name for name, _ in made.named_parameters()], made.out, made.early

    agrees(f, *(lambda x=x: (torch.full((2, 2), x),) for x in (1.0, -1.0, 1.0)))


# --- functions that show another signature than they have ---------------------------------------------------------------------------


def shown(signature):
    """The signature of another function, or one that is none at all."""

    def decorate(f):
        f.__signature__ = inspect.signature(signature) if callable(signature) else signature
        return f

    return decorate


SIGNATURES = [lambda x, more=None, *, by=3: 0, lambda: 0, lambda *x, **y: 0, lambda *, args, kwargs: 0, "x -> y"]


@pytest.mark.parametrize("signature", SIGNATURES, ids=range(len(SIGNATURES)))
def test_signatures_that_are_shown(agrees, signature):
    @shown(signature)
    def gathering(*args, **kwargs):
        elsewhere(args[0])
        return torch.stack(args) * kwargs.get("by", 2), sorted(kwargs)

    @shown(signature)
    def plain(x, /, y=2, *rest, by=1, **kwargs):
        elsewhere(x)
        return x * by + y, len(rest), sorted(kwargs)

    for f in (gathering, plain):
        calls = [((1.0,), {}), ((1.0, 2.0), {"by": 5}), ((1.0, 2.0, 3.0), {"x": 5, "other": 6}), ((1.0,), {"y": 1}), ((), {"x": 1.0})]
        for args, kwargs in calls:
            agrees(lambda xs, f=f, kwargs=kwargs: f(*xs, **kwargs), lambda args=args: ([torch.full((2,), a) for a in args],))
            mine, theirs = ([torch.full((2,), a) for a in args] for _ in range(2))
            assert outcome(lambda *xs, f=f: capture(f, "eager")(*xs, **kwargs), mine) == outcome(lambda *xs, f=f: f(*xs, **kwargs), theirs)


# --- tensors of another rank at the same place --------------------------------------------------------------------------------------


def test_strides_of_more_dimensions_than_there_are(agrees):
    def f(x):
        return x + 1, x.dim()

    x = torch.arange(24.0).reshape(4, 6)
    agrees(f, *(lambda x=x: (x,) for x in (x, x.t(), x[:, ::2], x[:, ::3], x[0], x[0, ::2], x[0, ::3], x[0, 0], x[:, :, None], x[1, 2])))


# --- lists that were there, as arguments of NumPy ---------------------------------------------------------------------------------


class Kept:
    def __init__(self):
        self.rows = []

    def more(self, row):
        self.rows.append(row)
        return np.stack(self.rows) * 2, np.asarray(self.rows).sum(0), np.concatenate(self.rows)


def test_lists_that_grow_as_arrays(agrees):
    mine, theirs = Kept(), Kept()
    compiled = capture(Kept.more, "eager")
    for i in range(5):
        assert told(compiled(mine, np.full(3, float(i)))) == told(theirs.more(np.full(3, float(i))))
    agrees(lambda rows: (rows.append(np.ones(2)), np.stack(rows))[1], *(lambda n=n: ([np.zeros(2)] * n,) for n in (1, 2, 3)))


# --- containers of modules that are made in captured code ---------------------------------------------------------------------------


def in_a_list(owner, part):
    owner.kept = torch.nn.ModuleList([part, owner.first])


def in_a_sequence(owner, part):
    owner.kept = torch.nn.Sequential(owner.first, part)


def in_a_dict(owner, part):
    owner.kept = torch.nn.ModuleDict({"part": part, "first": owner.first})


def in_a_named_sequence(owner, part):
    owner.kept = torch.nn.Sequential(collections.OrderedDict(first=owner.first, part=part))


def nested(owner, part):
    owner.kept = torch.nn.ModuleList([torch.nn.Sequential(part), torch.nn.ModuleDict({"a": torch.nn.ModuleList([part, part])})])


def a_slice(owner, part):
    owner.kept = torch.nn.ModuleList([owner.first, part, part])[1:]


@pytest.mark.parametrize("change", [in_a_list, in_a_sequence, in_a_dict, in_a_named_sequence, nested, a_slice])
def test_containers_hold_what_each_call_gives(change):
    """Each call makes another container, of its own modules, whether these look alike or not."""

    def f(x, owner, part):
        change(owner, part)
        return x + 1

    compiled, kept = capture(f, "eager"), []
    for width in (2, 2, 3, 2):
        owner, part = torch.nn.Module(), torch.nn.Linear(3, width)
        owner.first = torch.nn.Linear(2, 2)
        compiled(torch.ones(1), owner, part)
        mine = [*owner.kept.named_modules()], [*map(id, owner.parameters())]
        f(torch.ones(1), owner, part)
        theirs = [*owner.kept.named_modules()], [*map(id, owner.parameters())]
        assert mine[1] == theirs[1] and [name for name, _ in mine[0]] == [name for name, _ in theirs[0]]
        assert list(map(type, dict(mine[0]).values())) == list(map(type, dict(theirs[0]).values()))
        kept.append(mine[0][0][1])
    assert len(set(map(id, kept))) == len(kept)


class Deep(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, n))


def test_modules_made_in_a_loop_with_breaks():
    def f(x, n):
        made = []
        for i in range(n):
            elsewhere(x)
            made.append(Deep(i + 2).net(x).shape)
        return made

    compiled = capture(f, "eager")
    for n in (1, 3):
        assert compiled(torch.ones(2, 3), n) == f(torch.ones(2, 3), n)


# --- what explanations show of the program's objects --------------------------------------------------------------------------------


class Telling(torch.nn.Module):
    asked = 0

    def extra_repr(self):
        Telling.asked += 1
        return str(torch.rand(1))

    def __repr__(self):
        return f"telling {self.extra_repr()}"

    def scaled(self, x):
        return x * 2


@pytest.mark.filterwarnings("ignore")
def test_explanations_run_nothing_of_the_program():
    """Why a call fits nothing is told without asking the program's objects how they look: that may draw numbers, or count."""

    def f(x, call, others):
        return call(x) + torch.rand(1), len(others), id(call) > 0

    why: list = []
    compiled = capture(f, "eager", on_recapture=lambda _, failures: why.extend(map(str, failures)))
    torch.manual_seed(0)
    for i in range(12):
        made = Telling()
        compiled(torch.ones(1), functools.partial(made.scaled) if i % 2 else made.scaled, [made, (made,), {"a": made}][: i % 4])
    drawn = torch.rand(1)
    torch.manual_seed(0)
    torch.rand(12)
    assert why and not Telling.asked and torch.equal(drawn, torch.rand(1))
