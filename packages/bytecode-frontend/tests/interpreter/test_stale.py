"""No result of a state that is gone: a scenario with changes between its calls, of a function as it is and of its captured form."""

from __future__ import annotations

import array
import functools
import logging
import math
import operator
import os
import tempfile
import types
import uuid
from typing import Any, Callable

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

SCENARIOS: list[Callable[[Any], Any]] = []


def scenario(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCENARIOS.append(run)
    return run


def tensor() -> torch.Tensor:
    return torch.randn(4, generator=torch.Generator().manual_seed(0))


class Patched(torch.nn.Module):
    k = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def helper(self, x):
        return x * 2

    def forward(self, x):
        x = self.helper(self.linear(x)) * self.k
        if hasattr(self, "optional"):
            x = x + self.optional
        other = getattr(self, "other", None)
        return x if other is None else x * other


@scenario
def attributes_of_an_instance_hide_those_of_its_class(compiled):
    module = Patched()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.helper = lambda x: x * 100
    yield run(tensor())
    del module.helper
    module.linear.forward = lambda x: x
    yield run(tensor())
    del module.linear.forward
    module.k = 10
    yield run(tensor())
    module.__dict__["forward"] = lambda x: x - 1
    yield run(tensor())


@scenario
def attributes_that_a_module_has_not_yet(compiled):
    module = Patched()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.optional = 5
    yield run(tensor())
    module.other = 7.0
    yield run(tensor())
    del module.optional
    module.register_buffer("optional", torch.ones(4))
    yield run(tensor())
    del module.other
    module.register_parameter("other", torch.nn.Parameter(torch.ones(4) * 3))
    yield run(tensor())


class Slots:
    __slots__ = ("count", "other")


class MoreSlots(Slots):
    __slots__ = ("extra",)


@scenario
def slots_that_are_filled_and_emptied(compiled):
    for owner in (Slots(), MoreSlots()):
        run = compiled(lambda x, owner: x * getattr(owner, "count", 2) + hasattr(owner, "other"))
        for name, value in (("count", 3), ("other", 1), ("count", None), ("other", None), ("count", 5)):
            yield run(tensor(), owner)
            setattr(owner, name, value) if value is not None else delattr(owner, name)
        yield run(tensor(), owner)
    owner = Slots()

    def counts(x):
        owner.count = getattr(owner, "count", 0) + 1
        return x * owner.count

    run = compiled(counts)
    for _ in range(3):
        yield run(tensor())


@scenario
def names_in_the_dictionary_of_a_module(compiled):
    module = torch.nn.Identity()
    run = compiled(lambda x: (x * len([k for k in module.__dict__ if k.startswith("q_")]), len(vars(module))))
    for name in ("q_1", "r", "q_2"):
        yield run(tensor())
        setattr(module, name, 1)
    yield run(tensor())


class Delegating(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.extra = {"scale": 3.0}

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            extra = self.__dict__.get("extra", {})
            return extra[name] if name in extra else getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x) * self.scale + self.out_features


@scenario
def attributes_that_getattr_gave(compiled):
    module = Delegating()
    run = compiled(lambda x: module(x))
    yield run(tensor())
    module.extra["scale"] = 4.0
    yield run(tensor())
    module.scale = 5.0
    yield run(tensor())
    del module.scale
    module.inner = torch.nn.Linear(4, 2)
    yield run(tensor())


class Number:
    """An object that C functions ask for its value."""

    def __init__(self, value):
        self.value = value

    def __int__(self):
        return self.value

    __index__ = __trunc__ = __len__ = __hash__ = __int__

    def __float__(self):
        return float(self.value)

    def __eq__(self, other):
        return isinstance(other, Number) and self.value == other.value

    def __str__(self):
        return f"N{self.value}"

    def __iter__(self):
        return iter(range(self.value))


ASKED = [
    "int(o)", "float(o)", "complex(o)", "math.floor(o)", "math.sqrt(o)", "'%s' % o", "'{}'.format(o)", "'{0.value}'.format(o)", "f'{o}'", "[5, 6, 7, 8, 9][o]",
    "range(o)", "bytes(o)", "'a' * int(o)", "x[:int(o)]", "x[o]", "torch.full((2,), float(o))", "hex(o)", "chr(o)", "round(2.34567, o)", "'%d' % o", "int(str(int(o)))",
    "torch.tensor([int(i) for i in o])", "torch.zeros(o.value)", "operator.index(o)", "operator.attrgetter('value')(o)", "hash(o)", "len(o)", "sum(o)",
]  # fmt: skip


@pytest.mark.parametrize("text", ASKED)
def test_functions_in_c_ask_objects_that_change(text: str) -> None:
    run = eval(f"lambda x, o: ({text}, x + 1)", {"math": math, "operator": operator, "torch": torch})

    def results(fn: Callable[..., Any]) -> Any:
        number = Number(2)
        yield fn(tensor(), number)
        number.value = 3
        yield fn(tensor(), number)
        yield fn(tensor(), Number(1))

    assert same(list(results(capture(run, "eager"))), list(results(run)))


@scenario
def keywords_of_a_partial(compiled):
    partial = functools.partial(lambda x, a, **more: (x * a, more), a=2)
    run = compiled(lambda x: (partial(x), partial.keywords))
    yield run(tensor())
    partial.keywords["a"] = 10
    yield run(tensor())
    partial.keywords["b"] = 3
    yield run(tensor())


@scenario
def levels_of_a_logger(compiled):
    said = []
    logger = logging.Logger("levels")
    logger.manager = logging.getLogger().manager
    logger.addFilter(lambda record: said.append(record.getMessage()))

    @compiled
    def run(x):
        logger.info("informed")
        logger.error("failed")
        return x + 1

    for level in ("INFO", "ERROR", "CRITICAL", "INFO"):
        logger.setLevel(level)
        yield run(tensor())
    yield said


@scenario
def numbers_in_a_log_record(compiled):
    said = []
    logger = logging.Logger("numbers")
    logger.addFilter(lambda record: said.append(record.getMessage()))

    @compiled
    def run(x, n):
        logger.error("%d and %s", n, n + 1)
        return x + 1, (n + 1) is (1 + n), n is None

    for n in (1, 2, 3, 3):
        yield run(tensor(), n)
    yield said


@scenario
def numbers_that_change_beside_floats(compiled):
    run = compiled(lambda x, n: (x + 1, n == 3.0, 3.0 == n, n < 2.5, n // 2.0, 7.5 % n, n != 3.0))
    for n in (1, 2, 3, 4, 3):
        yield run(tensor(), n)


@scenario
def classes_registered_with_a_single_dispatch(compiled):
    chosen = functools.singledispatch(lambda value: "object")
    chosen.register(int, lambda value: "int")
    run = compiled(lambda x: (chosen(1), chosen("s"), chosen(x), x + 1))
    yield run(tensor())
    chosen.register(str, lambda value: "str")
    yield run(tensor())
    chosen.register(torch.Tensor, lambda value: "tensor")
    yield run(tensor())


@scenario
def files_and_directories(compiled):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "file")
    run = compiled(lambda x: (os.path.exists(path), os.path.basename(path), x + 1))
    for _ in range(3):
        yield run(tensor())
        open(path, "w").close()
    os.remove(path)
    yield run(tensor())
    os.rmdir(folder)


@scenario
def random_names(compiled):
    run = compiled(lambda x: (str(uuid.uuid4()), x + 1))
    yield run(tensor())[0] != run(tensor())[0]


@scenario
def names_of_a_module_through_its_dictionary(compiled):
    @compiled
    def run(x, step):
        global MADE
        if step == 0:
            MADE = x * 2
        if step == 1:
            del MADE
        if step == 2:
            globals()["MADE"] = x
        return "MADE" in globals(), globals().get("MADE"), x + 1

    for step in (0, 1, 2, 3, 1):
        yield run(tensor(), step)


class First:
    def method(self, x):
        return x + 1


class Second:
    def method(self, x):
        return x + 2


@scenario
def the_class_of_an_object(compiled):
    held = First()
    run = compiled(lambda x: (held.method(x), type(held).__name__, isinstance(held, Second)))
    yield run(tensor())
    held.__class__ = Second
    yield run(tensor())


@scenario
def the_bases_of_a_class(compiled):
    class Derived(First):
        pass

    held = Derived()
    run = compiled(lambda x: held.method(x))
    yield run(tensor())
    Derived.__bases__ = (Second,)
    yield run(tensor())


@scenario
def the_content_of_buffers(compiled):
    raw, numbers = bytearray(b"abc"), array.array("i", [1, 2])
    run = compiled(lambda x: (x * len(raw), raw[0], numbers[1] * x, sum(numbers), bytes(raw), bool(raw)))
    yield run(tensor())
    raw[0] = 100
    raw.append(1)
    numbers[1] = 50
    yield run(tensor())


@scenario
def writes_into_a_buffer(compiled):
    raw = bytearray(b"abc")

    @compiled
    def run(x):
        raw[0] = raw[0] + 1
        return x * raw[0]

    yield run(tensor())
    yield run(tensor())
    yield bytes(raw)


@scenario
def an_attribute_that_a_function_gets_later(compiled):
    def counts(x):
        counts.calls = getattr(counts, "calls", 0) + 1
        return x * counts.calls

    def told(x):
        return x * getattr(counts, "factor", 2), hasattr(counts, "factor")

    run, ask = compiled(counts), compiled(told)
    for _ in range(3):
        yield run(tensor())
        yield ask(tensor())
    counts.factor = 5
    yield ask(tensor())
    del counts.factor
    yield ask(tensor())


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_what_changed_since_the_last_call_is_seen(run: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    want = list(run(lambda fn: fn))
    torch.manual_seed(0)
    got = list(run(lambda fn: capture(fn, "eager")))
    assert same(got, want)


class Wrapping(dict):
    changes: list[Any] = []

    def __getitem__(self, key):
        return ("read", dict.__getitem__(self, key))

    def __setitem__(self, key, value):
        self.changes.append(key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key):
        self.changes.append(("deleted", key))
        dict.__delitem__(self, key)


class Listing(list):
    def append(self, value):
        super().append(("appended", value))

    def __getitem__(self, i):
        return ("read", super().__getitem__(i))


class Choosing(set):
    def add(self, value):
        super().add(value * 2)


def test_containers_with_methods_of_their_own() -> None:
    """Their methods run once, when the program calls them: not again when changes are stored, nor when parts are read for the graph."""

    def run(x, d, items, chosen):
        d["a"] = 1
        dict.__setitem__(d, "b", x)
        del d["q"]
        items.append(x)
        chosen.add(3)
        return d["a"], d.get("t") + x, list(d.items()), items[0], list.__getitem__(items, 1) + x, len(items), 6 in chosen, sorted(chosen)

    def outcome(fn: Callable[..., Any]) -> Any:
        Wrapping.changes.clear()
        d, items, chosen = Wrapping(q=1, t=tensor()), Listing([1, tensor()]), Choosing({1})
        results = fn(tensor(), d, items, chosen)
        return results, dict(d.items()), list(items), sorted(chosen), list(Wrapping.changes)

    compiled = capture(run, "eager")
    for _ in range(2):
        assert same(outcome(compiled), outcome(run))


SWITCH = types.SimpleNamespace(on=False, level=1)


def switched_for_a_while(x):
    before = SWITCH.level
    SWITCH.on = True
    SWITCH.level = 3
    x = x * SWITCH.level
    SWITCH.on = False
    SWITCH.level = before
    return x


def test_what_is_put_back_is_not_written():
    texts = []
    compiled = capture(switched_for_a_while, "eager", fullgraph=True, on_translation=lambda t: texts.append(t.text))
    x = torch.ones(2)
    try:
        for SWITCH.on, SWITCH.level in ((False, 1), (False, 1), (True, 1), (False, 2), (True, 2)):
            level = SWITCH.level
            assert torch.equal(compiled(x), x * 3)
            assert (SWITCH.on, SWITCH.level) == (False, level)
        assert "setitem" not in texts[0].lower()
    finally:
        SWITCH.on, SWITCH.level = False, 1


def test_attributes_of_classes_of_modules_are_assumed_without_a_module():
    class Net(torch.nn.Module):
        scale = 2

    class Derived(Net):
        pass

    def f(x):
        return x * Derived.scale + hasattr(Net, "flag")

    compiled = capture(f, fullgraph=True)
    for change in (lambda: None, lambda: setattr(Net, "scale", 3), lambda: setattr(Derived, "scale", 5), lambda: setattr(Net, "flag", 1)):
        change()
        assert same(compiled(torch.ones(2)), f(torch.ones(2)))


def test_attributes_of_classes_of_modules_come_and_go():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * getattr(self, "extra", 3) + hasattr(type(self), "extra")

    net = Net()
    compiled = capture(lambda x: net(x), fullgraph=True)
    for extra in (7, None, 9, None, 5, 9):
        delattr(Net, "extra") if extra is None else setattr(Net, "extra", extra)
        for _ in range(2):
            assert same(compiled(torch.ones(2)), net(torch.ones(2)))


class Plain:
    pass


ONE, OTHER = Plain(), Plain()
KEPT = {ONE, 3}
NUMBERED = {ONE: 1, OTHER: 2}
FIRST, SECOND = torch.ones(2), torch.ones(2)
TENSORS = {SECOND: "second"}

IDENTITIES = [
    lambda x, o: x + (o in KEPT),
    lambda x, o: (x, id(o)),
    lambda x, o: (x, hash(o)),
    lambda x, o: x + len({o, ONE}),
    lambda x, o: x * NUMBERED[o],
    lambda x, o: x * NUMBERED.get(o, 5),
    lambda x, o: (x, [k is o for k in KEPT], {o: 1}.get(ONE)),
    lambda x, o: (x, KEPT - {o} == KEPT, id(o) in (id(ONE), 3)),
]


@pytest.mark.parametrize("function", IDENTITIES)
def test_which_object_is_asked_for_is_assumed(function):
    for order in ((ONE, OTHER, ONE), (OTHER, ONE, OTHER)):
        compiled = capture(function, fullgraph=True)
        for o in order:
            assert same(compiled(torch.ones(2), o), function(torch.ones(2), o))


@pytest.mark.parametrize(
    "function",
    [
        lambda t, u: (t + 1, TENSORS.get(t)),
        lambda t, u: (t + 1, t in TENSORS),
        lambda t, u: (t + u, len({t, u})),
        lambda t, u: (t + 1, id(t)),
    ],
)
def test_which_tensor_is_asked_for_is_assumed(function):
    for order in ((FIRST, SECOND, FIRST), (SECOND, FIRST)):
        compiled = capture(function, fullgraph=True)
        for t in order:
            assert same(compiled(t, SECOND), function(t, SECOND))
