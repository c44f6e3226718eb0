"""Generic functions (``functools.singledispatch``) that captured code makes, registers with, calls and hands out."""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture


def called(x: torch.Tensor) -> Any:
    @functools.singledispatch
    def kind(value: Any) -> str:
        return "object"

    @kind.register
    def _(value: torch.Tensor) -> torch.Tensor:
        return value + 1

    @kind.register(int)
    @kind.register(float)
    def _(value: Any) -> str:
        return "number"

    @kind.register
    def _(value: list | tuple) -> list[Any]:
        return [kind(each) for each in value]

    return kind([x, (1, True, 2.0), "s", {}]), kind.__name__, kind.dispatch(bool)(1), len(kind.registry)


def registered_late(x: torch.Tensor) -> Any:
    @functools.singledispatch
    def name(value: Any, by: int = 1) -> Any:
        return "object"

    before = name(x)
    name.register(torch.Tensor, lambda value, by=1: value * by)
    return before, name(x, 2), name(x, by=3)


def abstract(x: torch.Tensor) -> Any:
    class Shape(abc.ABC):
        pass

    class Square(Shape):
        pass

    @functools.singledispatch
    def area(value: Any) -> Any:
        return x

    area.register(Shape, lambda value: x * 2)
    area.register(Sequence, lambda value: x * len(value))
    return area(Square()), area([1, 2, 3]), area(1)


class Method:
    @functools.singledispatchmethod
    def encoded(self, value: Any) -> Any:
        raise TypeError(type(value).__name__)

    @encoded.register
    def _(self, value: torch.Tensor) -> Any:
        return value.mean()

    @encoded.register
    def _(self, value: dict) -> Any:
        return {key: self.encoded(each) for key, each in value.items()}


def methods(x: torch.Tensor) -> Any:
    return Method().encoded({"a": x, "b": {"c": x + 1}})


def refused(x: torch.Tensor) -> Any:
    @functools.singledispatch
    def kind(value: Any) -> Any:
        return x

    said = []
    for give in (lambda: kind.register(3), lambda: kind.register("int", lambda value: value), kind):
        try:
            give()
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


@pytest.mark.parametrize("program", [called, registered_late, abstract, methods, refused], ids=lambda program: program.__name__)
def test_as_eager(program: Callable[..., Any]):
    compiled = capture(program, "eager", fullgraph=True)
    for _ in range(2):
        assert same(outcome(program, torch.ones(2)), outcome(compiled, torch.ones(2)))


def test_one_that_is_handed_out_is_a_generic_function():
    def made(x: torch.Tensor) -> Any:
        @functools.singledispatch
        def kind(value: Any) -> Any:
            return "object"

        kind.register(int, lambda value: x * value)
        kind(1)
        return kind

    compiled = capture(made, "eager")
    for _ in range(2):
        kind = compiled(torch.ones(2))
        assert kind("s") == "object"
        assert torch.equal(kind(3), torch.full((2,), 3.0))
        kind.register(str, lambda value: value * 2)
        assert kind("s") == "ss"
        assert len(kind.registry) == 3
        assert kind.dispatch(bool)(True).tolist() == [1.0, 1.0]


def test_weak_dictionaries_of_the_program_end_graphs():
    import weakref

    def program(x: torch.Tensor) -> Any:
        table = weakref.WeakKeyDictionary()
        table[Method] = 2
        return x * table[Method]

    assert torch.equal(capture(program, "eager")(torch.ones(2)), torch.full((2,), 2.0))


def test_classes_of_captured_code_are_told_by_errors_of_keys():
    def program(x: torch.Tensor) -> Any:
        class Key:
            pass

        for key in (Key, type("Other", (), {})):
            try:
                {}[key]
            except KeyError as error:
                yield error.args[0] is key, x + 1

    def listed(x: torch.Tensor) -> Any:
        return list(program(x))

    assert same(capture(listed, "eager", fullgraph=True)(torch.ones(2)), listed(torch.ones(2)))
