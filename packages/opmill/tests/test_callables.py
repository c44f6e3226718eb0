"""Every kind of callable that compile() takes."""

import asyncio
import functools
import inspect

import pytest
import torch

import opmill

X = torch.linspace(-2, 2, 6)


def affine(x, scale=2.0, *, offset=1.0):
    """Scales and shifts."""
    return x * scale + offset


def test_a_function_and_what_is_known_of_it():
    compiled = opmill.compile(affine, backend="eager")
    assert torch.equal(compiled(X), affine(X)) and torch.equal(compiled(X, offset=3.0), affine(X, offset=3.0))
    assert compiled.__name__ == "affine" and compiled.__doc__ == "Scales and shifts." and compiled.__wrapped__ is affine
    assert inspect.signature(compiled) == inspect.signature(affine)


def test_wrong_arguments_raise_pythons_own_error():
    compiled = opmill.compile(affine, backend="eager")
    with pytest.raises(TypeError, match=r"affine\(\) got an unexpected keyword argument 'shift'"):
        compiled(X, shift=1)
    with pytest.raises(TypeError, match=r"affine\(\) missing 1 required positional argument: 'x'"):
        compiled()


def test_as_a_decorator_with_and_without_arguments():
    @opmill.compile
    def bare(x):
        return x.relu() + 1

    @opmill.compile(backend="eager", fullgraph=True)
    def given(x):
        return x.relu() + 1

    assert torch.allclose(bare(X), X.relu() + 1) and torch.equal(given(X), X.relu() + 1)


class Shift:
    """Callable, with a compiled method, static method and class method."""

    base = 10.0

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x + self.by

    @opmill.compile(backend="eager")
    def method(self, x):
        return x - self.by

    @opmill.compile(backend="eager")
    @staticmethod
    def static(x):
        return x * 3

    @opmill.compile(backend="eager")
    @classmethod
    def of_class(cls, x):
        return x + cls.base


def test_methods_in_a_class():
    one, other = Shift(1.0), Shift(2.0)
    assert torch.equal(one.method(X), X - 1) and torch.equal(other.method(X), X - 2) and torch.equal(Shift.method(one, X), X - 1)
    assert torch.equal(one.static(X), X * 3) and torch.equal(Shift.static(X), X * 3)
    assert torch.equal(one.of_class(X), X + 10) and torch.equal(Shift.of_class(X), X + 10)


def test_a_bound_method_and_a_callable_object_follow_their_object():
    shift = Shift(1.0)
    for compiled in (opmill.compile(shift.__call__, backend="eager"), opmill.compile(shift, backend="eager")):
        shift.by = 1.0
        assert torch.equal(compiled(X), X + 1)
        shift.by = 4.0
        assert torch.equal(compiled(X), X + 4)


def test_a_partial_a_builtin_and_a_lambda():
    assert torch.equal(opmill.compile(functools.partial(affine, scale=3.0), backend="eager")(X), X * 3 + 1)
    assert torch.equal(opmill.compile(torch.add, backend="eager")(X, X), X + X)
    assert torch.equal(opmill.compile(lambda x: x * 4, backend="eager")(X), X * 4)


def test_a_module_class_compiles_all_its_instances():
    @opmill.compile(backend="eager")
    class Halved(torch.nn.Module):
        def forward(self, x):
            return x / 2

    assert isinstance(Halved, type) and torch.equal(Halved()(X), X / 2)


def test_a_class_without_call_is_refused():
    with pytest.raises(TypeError, match="OM001"):
        opmill.compile(type("Plain", (), {}))


def test_compiling_twice_compiles_the_function():
    once = opmill.compile(affine, backend="eager")
    assert opmill.compile(once, backend="eager").__wrapped__ is affine


def test_reset_compiles_again():
    graphs = []
    compiled = opmill.compile(affine, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    compiled(X), compiled(X)
    assert len(graphs) == 1
    opmill.reset()
    assert torch.equal(compiled(X), affine(X)) and len(graphs) == 2


def test_a_disabled_function_is_called_as_it_is():
    seen = []

    @opmill.disable
    def plain(x):
        seen.append(opmill.is_compiling())
        return x + 1

    @opmill.compile(backend="eager")
    def outer(x):
        return plain(x * 2) * 3

    assert torch.equal(outer(X), (X * 2 + 1) * 3) and seen == [False]
    [found] = opmill.explain(outer)(X).breaks
    assert found.code.startswith("FE") and "plain" in found.what


def test_is_compiling_is_true_only_while_captured():
    def asks(x):
        return x + 1 if opmill.is_compiling() else x - 1

    assert torch.equal(asks(X), X - 1)
    assert torch.equal(opmill.compile(asks, backend="eager")(X), X + 1)


def test_compiled_inside_of_compiled_code(caplog):
    @opmill.compile(backend="eager")
    def outer(x):
        inner = opmill.compile(affine, backend="eager")
        return inner(x) + 1

    assert torch.equal(outer(X), affine(X) + 1) and torch.equal(outer(X), affine(X) + 1) and not caplog.records


def test_coroutines_and_generators():
    async def doubled(x):
        await asyncio.sleep(0)
        return x * 2

    def multiples(x):
        for k in range(3):
            yield x * k

    x = torch.randn(3)
    torch.testing.assert_close(asyncio.run(opmill.compile(doubled, backend="eager")(x)), x * 2)
    torch.testing.assert_close(list(opmill.compile(multiples, backend="eager")(x)), list(multiples(x)))


def test_transforms_of_what_was_compiled_and_compiled_transforms():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled, model, x = opmill.compile(lambda x: x.sin() * 2, backend=backend), torch.nn.Linear(3, 3), torch.randn(4, 3)
    torch.testing.assert_close(torch.vmap(compiled)(x), x.sin() * 2)
    torch.testing.assert_close(torch.func.grad(lambda t: compiled(t).sum())(x), x.cos() * 2)
    torch.testing.assert_close(torch.jit.trace(compiled, x)(x + 1), (x + 1).sin() * 2)
    parameters = {name: value.detach() + 1 for name, value in model.named_parameters()}
    called = opmill.compile(lambda given, x: torch.func.functional_call(model, given, (x,)), backend=backend, fullgraph=True)
    torch.testing.assert_close(called(parameters, x), torch.func.functional_call(model, parameters, (x,)))
    scripted = torch.jit.script(torch.nn.Linear(3, 3))
    torch.testing.assert_close(opmill.compile(lambda x: scripted(x) + 1, backend=backend)(x), scripted(x) + 1)
    assert len(graphs) >= 3
