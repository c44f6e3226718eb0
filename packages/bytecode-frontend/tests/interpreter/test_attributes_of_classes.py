"""Captured code that assigns to attributes of classes, functions and modules of before the call: read, changed and left as eager would."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any, Callable
from unittest import mock

import pytest
import torch

from opmill_bytecode_frontend import capture


class Setup:
    """What one run works with: classes, a function and a module of its own, so that two runs can be compared."""

    def __init__(self) -> None:
        class Meta(type):
            def __setattr__(cls, name: str, value: Any) -> None:
                super().__setattr__(name, value if name == "log" else value * 10)
                super().__setattr__("log", [*cls.log, name])

        class Counter:
            n = 0
            label = "a"

            @property
            def twice(self) -> int:
                return self.n * 2

        class Derived(Counter):
            pass

        class Logged(metaclass=Meta):
            log: list[str] = []

        class Sized(type):
            @property
            def size(cls) -> int:
                return cls.kept

            @size.setter
            def size(cls, value: int) -> None:
                cls.kept = value * 2

        class Measured(metaclass=Sized):
            kept = 1

        class Net(torch.nn.Module):
            total = 0

            def __init__(self) -> None:
                super().__init__()
                self.steps = 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.steps += 1
                type(self).total += 2
                return x * self.steps + self.total

        def counted(x: torch.Tensor) -> torch.Tensor:
            counted.calls += 1  # type: ignore[attr-defined]
            return x + counted.calls  # type: ignore[attr-defined]

        counted.calls = 0  # type: ignore[attr-defined]
        self.Counter, self.Derived, self.Logged, self.Measured, self.counted, self.net = Counter, Derived, Logged, Measured, counted, Net()
        self.module = types.ModuleType("told")
        self.module.n = 3  # type: ignore[attr-defined]

    def state(self) -> Any:
        def own(cls: type) -> list[Any]:
            return [(k, repr(v)) for k, v in vars(cls).items() if k[:2] != "__" and not isinstance(v, property)]

        return [
            own(self.Counter),
            own(self.Derived),
            own(self.Logged),
            own(self.Measured),
            vars(self.counted),
            self.net.steps,
            type(self.net).total,
            vars(self.module).get("n"),
        ]


def counter(s: Setup) -> Any:
    C = s.Counter

    def f(x: torch.Tensor) -> Any:
        C.n += 1
        return x * C.n, C().n, C().twice

    return f


def counter_of_base(s: Setup) -> Any:
    C, D = s.Counter, s.Derived

    def f(x: torch.Tensor) -> Any:
        before = D.n
        D.n += 1
        C.n += 2
        return x * D.n + C.n, before, D().n, super(D, D()).n

    return f


def through_type_of_self(s: Setup) -> Any:
    o = s.Derived()

    def f(x: torch.Tensor) -> Any:
        type(o).n = type(o).n + 1
        o.__class__.label = "b" + o.label[:3]
        return x + o.n, o.label, hasattr(o, "other")

    return f


def deleted(s: Setup) -> Any:
    C, D = s.Counter, s.Derived

    def f(x: torch.Tensor) -> Any:
        D.n = 7
        had = D().n
        del D.n
        try:
            del D.n
        except AttributeError as exc:
            told = str(exc)
        delattr(C, "label") if hasattr(C, "label") else None
        return x + D.n, had, told, getattr(D(), "label", None), "label" in vars(D)

    return f


def tensors_and_objects(s: Setup) -> Any:
    C, D = s.Counter, s.Derived

    def f(x: torch.Tensor) -> Any:
        C.last = x * 2
        C.kept = [C.last, {"n": C.n}]
        D.made = C()
        D.made.x = x
        C.kept.append(D.made)
        return C.last + 1, C().kept[0], D.made.last, D().made is C.kept[-1]

    return f


def tensor_changed_in_place(s: Setup) -> Any:
    C = s.Counter
    C.total = torch.zeros(2)  # type: ignore[attr-defined]

    def f(x: torch.Tensor) -> Any:
        C.total += x
        before = C.total
        C.total = C.total * 2
        before.add_(1)
        return C.total + before, C.total is before

    return f


def raised_between(s: Setup) -> Any:
    C = s.Counter

    def f(x: torch.Tensor) -> Any:
        C.n += 1
        if C.n % 2:
            raise ValueError(C.n)
        C.n += 10
        return x * C.n

    return f


def caught(s: Setup) -> Any:
    C = s.Counter

    def f(x: torch.Tensor) -> Any:
        told = []
        for change in (
            lambda: setattr(int, "x", 5),
            lambda: C().twice.x,
            lambda: delattr(C, "none"),
            lambda: C.none,
            lambda: setattr(C(), "twice", 3),
        ):
            try:
                change()
            except (TypeError, AttributeError) as exc:
                told.append((type(exc).__name__, str(exc)))
        return told, x + 1

    return f


def by_metaclass(s: Setup) -> Any:
    L, C = s.Logged, s.Counter

    def f(x: torch.Tensor) -> Any:
        L.k = 2
        L.k += 1
        type.__setattr__(C, "by", 4)
        return x * L.k, L.log, C.by

    return f


def of_function(s: Setup) -> Any:
    counted = s.counted

    def f(x: torch.Tensor) -> Any:
        y = counted(x)
        counted.last = y
        counted.__dict__["seen"] = counted.calls
        if hasattr(counted, "once"):
            del counted.once
        else:
            counted.once = True
        return y + counted.calls, sorted(vars(counted)), getattr(counted, "none", 4), counted.last

    return f


def of_module(s: Setup) -> Any:
    told = s.module

    def f(x: torch.Tensor) -> Any:
        told.n += 1
        told.new = x
        del told.new
        return x * told.n, hasattr(told, "new")

    return f


def methods(s: Setup) -> Any:
    C, D = s.Counter, s.Derived

    def given(self: Any) -> int:
        return 4

    def f(x: torch.Tensor) -> Any:
        C.method = lambda self, k=2: x * k
        D.method = given
        one = C().method(), D().method(), super(D, D()).method(3), C.method(None, 5), D().method.__name__
        D.method = C.method
        C.n, D.helper = 7, abs
        two = D().method(), D().n, D().helper(-2)
        del C.method, D.method, C.n, D.helper
        C.n = 0
        return one, two, hasattr(D, "method")

    return f


def patched(s: Setup) -> Any:
    C = s.Counter
    C.get = lambda self: 1  # type: ignore[attr-defined]

    def f(x: torch.Tensor) -> Any:
        before = C.get  # type: ignore[attr-defined]
        C.get = lambda self: before(self) + 4  # type: ignore[attr-defined]
        try:
            return x * C().get()
        finally:
            C.get = before  # type: ignore[attr-defined]

    return f


def seen_in_dictionaries(s: Setup) -> Any:
    C = s.Counter

    def f(x: torch.Tensor) -> Any:
        before = vars(C)
        first = "new" in before, before["n"]
        C.n += 1
        C.new = x
        second = before["n"], before["new"] * C.n, list(before)[-1] == "new"
        del C.new
        with mock.patch.object(C, "label", "patched"):
            third = C.label, C().label
        return first, second, third, "new" in before, before.get("new"), C.label

    return f


def by_property_of_metaclass(s: Setup) -> Any:
    M = s.Measured

    def f(x: torch.Tensor) -> Any:
        M.size = M.size + 1
        return x * M.size

    return f


def of_neural_network(s: Setup) -> Any:
    net = s.net
    return lambda x: net(x)


def with_break(s: Setup) -> Any:
    C = s.Counter

    def f(x: torch.Tensor) -> Any:
        C.n += 1
        y = x * C.n
        torch._C._get_tracing_state()
        str(y.sum().item())
        C.n += 1
        return y + C.n, C.n

    return f


PROGRAMS = [
    counter,
    counter_of_base,
    through_type_of_self,
    deleted,
    tensors_and_objects,
    tensor_changed_in_place,
    raised_between,
    caught,
    by_metaclass,
    of_function,
    of_module,
    of_neural_network,
    by_property_of_metaclass,
    methods,
    patched,
    seen_in_dictionaries,
    with_break,
]


def runs(program: Callable[[Setup], Any], how: Callable[[Any], Any]) -> list[Any]:
    setup = Setup()
    f = how(program(setup))
    told = []
    for _ in range(5):
        try:
            result = repr(f(torch.ones(2)))
        except ValueError as exc:
            result = repr(exc)
        told.append((result.replace(hex(id(setup)), ""), repr(setup.state())))
    return told


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_and_state_are_those_of_the_plain_function(program: Any) -> None:
    assert without_addresses(runs(program, capture)) == without_addresses(runs(program, lambda f: f))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in (raised_between, with_break)])
def test_captured_whole(program: Any) -> None:
    assert without_addresses(runs(program, lambda f: capture(f, fullgraph=True))) == without_addresses(runs(program, lambda f: f))


def without_addresses(told: Any) -> Any:
    import re

    return re.sub("0x[0-9a-f]+", "", repr(told))


@pytest.mark.parametrize(
    "program",
    [
        counter,
        counter_of_base,
        tensor_changed_in_place,
        of_function,
        of_module,
        of_neural_network,
        by_property_of_metaclass,
        methods,
        patched,
    ],
)
def test_what_counts_calls_is_not_captured_anew_by_each(program: Any) -> None:
    made: list[Any] = []
    f = capture(program(Setup()), fullgraph=True, on_translation=made.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            f(torch.ones(2))
    assert len(made) <= 4


def test_a_failed_capture_leaves_classes_as_they_are() -> None:
    setup = Setup()
    C = setup.Counter

    def f(x: torch.Tensor) -> Any:
        C.n = 9
        type.__setattr__(C, "k", 5)
        return open("/nowhere/at/all")

    before = setup.state()
    with pytest.raises(Exception, match="open"):
        capture(f, fullgraph=True)(torch.ones(2))
    assert setup.state() == before


def test_what_a_class_has_not_is_assumed() -> None:
    setup = Setup()
    C, D = setup.Counter, setup.Derived
    o = D()

    def f(x: torch.Tensor) -> Any:
        return x + (1 if hasattr(C, "flag") else 0), getattr(o, "other", 0), D.n, super(D, o).n

    compiled = capture(f, fullgraph=True)
    for change in (
        lambda: None,
        lambda: setattr(C, "flag", 1),
        lambda: setattr(C, "other", 5),
        lambda: setattr(D, "n", 8),
        lambda: setattr(C, "n", 4),
        lambda: delattr(C, "flag"),
    ):
        change()
        assert repr(compiled(torch.ones(2))) == repr(f(torch.ones(2)))


@pytest.mark.parametrize("registered", [False, True])
def test_classes_of_modules_without_a_file_are_the_programs(registered, monkeypatch):
    module = types.ModuleType("made_at_a_prompt")
    if registered:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(  # noqa: S102
        "class E:\n    kept = 1\n\ndef f(x):\n    return x + 1, E.kept, getattr(E, 'extra', None), E().kept, hasattr(E(), 'extra')\n",
        vars(module),
    )
    compiled, x = capture(module.f), torch.ones(1)
    for change in (lambda: None, lambda: setattr(module.E, "extra", 5), lambda: setattr(module.E, "kept", 6)):
        change()
        assert compiled(x)[1:] == module.f(x)[1:]
