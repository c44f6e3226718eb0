"""What a capture assumes is checked: after any of these changes the next call gives what the plain function gives."""

from __future__ import annotations

import functools
import logging
import math
import random
import sys
import traceback
import types
import warnings
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture

SCALE = 2
TABLE = {"a": 1, "b": [2, 3]}


def helper(x, k=1, *, m=1):
    return x * k + m


def other_helper(x, k=1, *, m=1):
    return x - k - m


class Base:
    factor = 3

    def method(self, x):
        return x * self.factor

    @property
    def double(self):
        return self.factor * 2

    @staticmethod
    def still(x):
        return x + 1


class Derived(Base):
    pass


def uses_everything(x, obj):
    y = helper(x) * SCALE + TABLE["a"] + len(TABLE["b"])
    y = torch.relu(y) + math.sqrt(4.0)
    return obj.method(y) + obj.double + obj.still(y) + torch.nn.functional.gelu(x)


def changes(monkeypatch):
    module = globals()
    yield lambda: monkeypatch.setitem(module, "SCALE", 5)
    yield lambda: monkeypatch.setitem(TABLE, "a", 7)
    yield lambda: TABLE["b"].append(4)
    yield lambda: monkeypatch.setattr(helper, "__defaults__", (4,))
    yield lambda: monkeypatch.setattr(helper, "__kwdefaults__", {"m": 9})
    yield lambda: monkeypatch.setitem(helper.__kwdefaults__, "m", 10)
    yield lambda: monkeypatch.setattr(helper, "__code__", other_helper.__code__)
    yield lambda: monkeypatch.setitem(module, "helper", other_helper)
    yield lambda: monkeypatch.setattr(Base, "factor", 8)
    yield lambda: monkeypatch.setattr(Derived, "factor", 9, raising=False)
    yield lambda: monkeypatch.setattr(Base, "method", lambda self, x: x - 1)
    yield lambda: monkeypatch.setattr(Derived, "method", lambda self, x: x - 2, raising=False)
    yield lambda: monkeypatch.setattr(Derived, "double", 11, raising=False)
    yield lambda: monkeypatch.setattr(Base, "still", staticmethod(lambda x: x * 3))
    yield lambda: monkeypatch.setattr(torch, "relu", torch.abs)
    yield lambda: monkeypatch.setattr(math, "sqrt", lambda v: v + 0.5)
    yield lambda: monkeypatch.setattr(torch.nn.functional, "gelu", torch.sin)


def test_everything_used_is_guarded(monkeypatch):
    x, obj = torch.linspace(-2, 2, 5), Derived()
    compiled = capture(uses_everything, "eager", fullgraph=True)

    def check():
        want = uses_everything(x, obj)
        assert torch.equal(compiled(x, obj), want)
        assert torch.equal(compiled(x, obj), want)

    check()
    for change in changes(monkeypatch):
        change()
        compiled.remove(compiled.entries[0]) if len(compiled.entries) > 5 else None
        check()
    obj.factor = 0.5
    check()
    obj.method = lambda y: y * 100
    check()


def test_nothing_is_compiled_again_without_a_change():
    x, obj = torch.linspace(-2, 2, 5), Base()
    compiled = capture(uses_everything, "eager", fullgraph=True)
    compiled(x, obj)
    for _ in range(3):
        compiled(x, Base())
    assert len(compiled.entries) == 1


def speaks(x, items, log):
    print("shape", x.shape, items, sep="|")
    items.append(3)
    print(items, f"{x.dtype}")
    warnings.warn("careful", RuntimeWarning)
    warned_from_callee()
    log.info("n=%d %s", len(items), str(items))
    items.append(4)
    return x + 1


def warned_from_callee():
    warnings.warn("callee", stacklevel=2)


def heard(fn, capsys, caplog):
    caplog.clear()
    with warnings.catch_warnings(record=True) as seen, caplog.at_level(logging.INFO):
        warnings.simplefilter("always")
        log = logging.getLogger("speaks")
        fn(torch.ones(2), [1, 2], log)
    records = [(r.getMessage(), r.lineno, r.funcName, r.pathname) for r in caplog.records if r.name == "speaks"]
    return capsys.readouterr().out, [(str(w.message), w.category, w.lineno, w.filename) for w in seen], records


@pytest.mark.parametrize("fullgraph", [True, False])
def test_words_come_out_as_they_were_said(capsys, caplog, fullgraph):
    compiled = capture(speaks, "eager", fullgraph=fullgraph)
    want = heard(speaks, capsys, caplog)
    for _ in range(2):
        assert heard(compiled, capsys, caplog) == want
    assert len(compiled.entries) == 1


def test_tensors_are_printed_as_they_were(capsys):
    def fn(x):
        print(x)
        x.add_(1)
        return x * 2

    fn(torch.zeros(2))
    want = capsys.readouterr().out
    capture(fn, "eager")(torch.zeros(2))
    assert capsys.readouterr().out == want


def test_a_call_with_keywords_alone_is_replayed(capsys):
    def fn(x):
        print(end="!")
        return x * 2

    assert fn(1) == 2 == capture(fn, "eager")(1) and capsys.readouterr().out == "!!"


def test_cached_functions_answer_from_their_cache():
    calls = []

    @functools.lru_cache
    def table(n):
        calls.append(n)
        return {"n": n}

    def fn(x):
        return x * table(3)["n"], table(3)

    x = torch.ones(2)
    want = fn(x)
    compiled = capture(fn, "eager", fullgraph=True)
    for _ in range(2):
        got = compiled(x)
        assert torch.equal(got[0], want[0]) and got[1] is want[1]
    assert calls == [3]


def noisy(x):
    return x + torch.rand(3) + float(str(random.random())) * 0 + torch.randn(()).item()


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_capture_takes_no_random_numbers(fullgraph):
    compiled = capture(noisy, "eager", fullgraph=fullgraph)
    x = torch.zeros(3)
    torch.manual_seed(3)
    random.seed(3)
    want, after = noisy(x), (torch.rand(1), random.random())
    torch.manual_seed(3)
    random.seed(3)
    if fullgraph:
        with pytest.raises(Unsupported):
            compiled(x)
        torch.manual_seed(3) if torch.rand(1) is None else None
        torch.manual_seed(3)
        assert torch.equal(noisy(x), want)
    else:
        assert torch.equal(compiled(x), want)
        assert (torch.rand(1), random.random()) == after


def test_global_state_is_seen():
    compiled = capture(lambda x: (x * 2, torch.is_grad_enabled(), torch.get_default_dtype()), "eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    assert compiled(x)[1] and compiled(x)[0].requires_grad
    with torch.no_grad():
        assert not compiled(x)[1] and not compiled(x)[0].requires_grad
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x)[2] is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_mapping_proxy_contents_are_seen():
    table: dict[str, Any] = {"k": 2}
    proxy = types.MappingProxyType(table)

    def fn(x):
        return x * proxy["k"]

    compiled = capture(fn, "eager", fullgraph=True)
    x = torch.ones(2)
    for entries in (1, 2):
        for _ in range(2):
            assert torch.equal(compiled(x), fn(x))
        assert len(compiled.entries) == entries
        table["k"] = 3


def test_dictionaries_of_classes_are_seen(monkeypatch):
    compiled = capture(lambda x: x * vars(Base)["factor"] + len(vars(Derived)), "eager", fullgraph=True)
    x = torch.ones(2)
    size = len(vars(Derived))
    for _ in range(2):
        assert torch.equal(compiled(x), x * 3 + size)
    assert len(compiled.entries) == 1
    monkeypatch.setattr(Base, "factor", 4)
    monkeypatch.setattr(Derived, "more", 1, raising=False)
    assert torch.equal(compiled(x), x * 4 + size + 1)


def test_a_number_that_is_not_assumed_any_more_as_right_operand():
    given = iter([0, 1, 0, 1, 0, 1, -1, -2, -3, -4, 0, 1])

    @torch.compiler.disable
    def read():
        return next(given)

    def f(x):
        try:
            return 10 - read(), x + 1
        except TypeError as exc:
            return str(exc), x

    compiled = capture(f)
    assert [compiled(torch.ones(1))[0] for _ in range(12)] == [10, 9, 10, 9, 10, 9, 11, 12, 13, 14, 10, 9]


def test_where_the_stack_has_no_room_for_a_capture_the_function_runs(caplog):
    def f(x):
        return x * 2 + 1

    def deep(n, fn):
        return fn(torch.ones(1)) if n == 0 else deep(n - 1, fn)

    compiled, room, used, limit = capture(f), 40, len(traceback.extract_stack()), sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(used + 100 + room)
        assert deep(100, compiled).item() == 3
    finally:
        sys.setrecursionlimit(limit)
    assert compiled(torch.ones(1)).item() == 3 and not caplog.records
