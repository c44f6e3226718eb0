"""``opmill.compile`` and ``torch.compile`` in compiled code: what they make is read as what it was made of, and who keeps it has a compiled
one."""

from __future__ import annotations

import pytest
import torch

import opmill
from opmill.compile import record_of


def sine(x):
    return x.sin()


LINEAR = torch.nn.Linear(3, 3)
KEPT: dict = {}


def each_time(x):
    return opmill.compile(sine)(x) + torch.compile(sine)(x) + opmill.compile(lambda y: y + 1)(x)


def decorated(x):
    @opmill.compile
    def first(y):
        return y.sin() + x

    @opmill.compile(fullgraph=True)
    def second(y):
        return y.cos() + x

    @torch.compile(mode="max-autotune")
    def third(y):
        return y.exp() + x

    return first(x) + second(x) + third(x)


def of_a_module(x):
    compiled = opmill.compile(LINEAR)
    return compiled(x), isinstance(compiled, torch.nn.Linear), compiled.weight.shape, compiled.in_features


def kept(x):
    if "sine" not in KEPT:
        KEPT["sine"] = opmill.compile(sine, backend="eager")
    return KEPT["sine"](x)


def twice(x):
    return opmill.compile(opmill.compile(sine))(x), opmill.compile(sine, disable=True) is sine, opmill.compile(sine) is sine


def unknown_mode(x):
    try:
        opmill.compile(sine, mode="nothing")
    except ValueError as error:
        return x * 2, str(error)


PROGRAMS = [each_time, decorated, of_a_module, kept, twice, unknown_mode]


@pytest.mark.parametrize("program", PROGRAMS)
def test_read_as_what_it_was_made_of(program):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.linspace(-1, 1, 3)
    compiled = opmill.compile(program, backend=backend, fullgraph=True)
    with torch.compiler.set_stance("force_eager"):  # torch's own compiler is not what is tested
        KEPT.clear()
        want = [program(x) for _ in range(3)]
    KEPT.clear()
    got = [compiled(x) for _ in range(3)]
    assert str(got) == str(want)
    assert len(graphs) == (2 if program is kept else 1)


def test_what_is_kept_is_compiled():
    def makes(x):
        return x * 2, opmill.compile(sine, backend="eager"), opmill.compile(backend="eager"), opmill.compile(LINEAR, backend="eager")

    x = torch.ones(3)
    y, function, decorator, module = opmill.compile(makes, backend="eager", fullgraph=True)(x)
    assert torch.equal(y, x * 2)
    for made, plain in ((function, sine), (decorator(sine), sine), (module, LINEAR)):
        assert record_of(made) is not None
        assert torch.equal(made(x), plain(x))


def test_what_is_no_function_runs_as_it_is():
    def wrong(x):
        try:
            opmill.compile(3)
        except TypeError as error:
            return x * 2, str(error)

    x = torch.ones(3)
    assert str(opmill.compile(wrong, backend="eager")(x)) == str(wrong(x))
