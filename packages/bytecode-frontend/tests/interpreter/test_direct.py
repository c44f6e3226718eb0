"""Functions that are nothing but a graph run without Python: which are, and that their results and failures are the plain call's."""

from __future__ import annotations

import collections
import dataclasses
import traceback

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture

SINGLE = object()
LOG: list[str] = []


@dataclasses.dataclass
class Pair:
    left: object
    right: object = None


class Output(collections.OrderedDict):
    """As the outputs of transformers: a dictionary whose items are attributes too."""

    def __init__(self, **items):
        super().__init__()
        for name, item in items.items():
            super().__setitem__(name, item)
            self.__dict__[name] = item


class Table(dict):
    pass


def one(a, b):
    return a + b


def several(a, b):
    return a + b, [a - b, {"x": a * b, "y": None, 3: (True, "text", ...)}]


def shared(a, b):
    c = a + b
    inner = [c]
    return inner, inner, c


def inputs(a, b):
    return {"a": a, "sum": a + b, "b": (b,)}


def objects(a, b):
    return Pair(a + b, Pair(a - b))


def outputs(a, b):
    return Output(first=a + b, second=[a - b], third=None)


def tables(a, b):
    table = Table()
    table["x"] = a + b
    return table


def nothing(a, b):
    return None, a * b


def with_default(a, b, c=2):
    return a * c + b


def starred(a, *rest, **named):
    return a + rest[0], len(named)


def of_the_program(a, b):
    return a + b, SINGLE


DIRECT = [one, several, shared, inputs, objects, outputs, tables, nothing, with_default, starred, of_the_program]


def stores(a, b):
    LOG.append("x")
    return a + b


def frozen(a, b):
    return frozenset({"x"}), {a + b}


def local(a, b):
    return lambda: a + b


THROUGH_PYTHON = [stores, frozen, local]


def identities(result):
    """Which of the objects in a result are one."""
    seen, order = {}, []

    def look(value):
        order.append(seen.setdefault(id(value), len(seen)))
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            look(part)
        for part in getattr(value, "__dict__", {}).values() if not isinstance(value, torch.Tensor) else ():
            look(part)

    look(result)
    return order


def pair():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


@pytest.mark.parametrize("function", DIRECT, ids=lambda function: function.__name__)
def test_results_are_those_of_the_plain_call(function):
    compiled = capture(function, fullgraph=True)
    plain = function(*pair())
    first = compiled(*pair())
    assert compiled.entries[0].direct is not None
    second = compiled(*pair())
    for result in (first, second):
        assert same(result, plain) and type(result) is type(plain)
        assert identities(result) == identities(plain)
    assert not isinstance(first, (list, dict)) or first is not second
    a, b = pair()
    result = compiled(a, b)
    assert function is not inputs or (result["a"] is a and result["b"][0] is b)
    assert compiled.entries[0].hits == 2


@pytest.mark.parametrize("function", THROUGH_PYTHON, ids=lambda function: function.__name__)
def test_what_needs_python_runs_it(function):
    compiled = capture(function, fullgraph=True)
    for _ in range(2):
        LOG.clear()
        compiled(*pair())
        assert LOG == ["x"] * (function is stores)
    assert compiled.entries[0].direct is None


def test_a_module_with_many_parameters_that_change():
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(20)])

    def call(module, x):
        return module(x), x

    compiled = capture(call, fullgraph=True)
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    for step in range(4):
        result, given = compiled(model, x)
        assert given is x and torch.equal(result, model(x))
        result.sum().backward()
        assert model[0].weight.grad is not None
        if step == 1:
            model[3].weight = torch.nn.Parameter(torch.ones(4, 4))
        if step == 2:
            model[5].bias.data = torch.full((4,), 2.0)
    assert len(compiled.entries) == 1 and compiled.entries[0].direct is not None


class Broken(RuntimeError):
    pass


def failing_backend(gm, example_inputs):
    def run(*inputs):
        raise Broken("the graph")

    return run


def raises(a, b):
    c = a + b
    return c & 3


@pytest.mark.parametrize("fullgraph", [True, False])
def test_where_the_function_raises_the_exception_is_its_own(fullgraph):
    compiled = capture(raises, fullgraph=fullgraph)
    for _ in range(2):
        with pytest.raises(NotImplementedError) as caught:
            compiled(*pair())
        lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name == "raises"]
        assert lines == ["return c & 3"] and caught.value.__context__ is None


def test_where_only_the_graph_raises(caplog):
    compiled = capture(several, failing_backend)
    for _ in range(2):
        assert same(compiled(*pair()), several(*pair()))
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    strict = capture(with_default, failing_backend, fullgraph=True)
    for _ in range(2):
        with pytest.raises(Broken, match="the graph"):
            strict(pair()[0], b=pair()[1], c=3)


class Runner:
    """What a backend may give: a call that is made directly, and what to do where that fails."""

    def __init__(self, forward):
        self.forward, self.calls = forward, []

    def __call__(self, *inputs):
        raise AssertionError("not called")

    @property
    def direct(self):
        return self.run, self.recover

    def run(self, *inputs):
        self.calls.append("run")
        if inputs[0].shape[0] == 3 and len(self.calls) > 1:
            raise Broken("once more")
        return self.forward(*inputs)

    def recover(self, error, inputs):
        self.calls.append(str(error))
        return list(self.forward(*inputs))


def test_what_a_backend_gives_may_be_called_directly():
    made = []
    compiled = capture(one, lambda gm, example_inputs: made.append(Runner(gm.forward)) or made[0], fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(*pair()), one(*pair()))
    assert made[0].calls == ["run", "run", "once more"]


def test_sizes_that_change():
    def scaled(a, b):
        return a * a.shape[0] + b.shape[1], a.shape[0]

    compiled = capture(scaled, fullgraph=True, dynamic=True)
    for rows in (3, 5, 7):
        a = torch.ones(rows, 4)
        assert same(compiled(a, a), scaled(a, a))
    assert len(compiled.entries) == 1


def test_resumed_functions_give_their_results():
    def broken(a, b):
        c = a + b
        if c.sum().item() > 0:
            return c * 2, [a]
        return c * 3, [b]

    compiled = capture(broken)
    for sign in (1, -1, 1, -1):
        a = torch.ones(2, 2) * sign
        assert same(compiled(a, a), broken(a, a))
