"""What Python changed between the versions that opmill runs on: each is as the running one has it, values, messages and warnings."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import re
import sys
import warnings
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture

CASES: dict[str, Callable[[torch.Tensor], Any]] = {}


def case(fn: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    CASES[fn.__name__] = fn
    return fn


def raised(fn: Callable[[], Any]) -> Any:
    """What a call gives, or the exception it ends with: what that says and knows."""
    try:
        return fn()
    except Exception as exc:
        return type(exc).__name__, str(exc), getattr(exc, "name", None), getattr(exc, "obj", None) is None


class Color(enum.Enum):
    RED = 1


class Slotted:
    __slots__ = ("here",)

    def method(self) -> None: ...


class Setting(Slotted):
    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


class Deleting(Slotted):
    __slots__ = ()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)


class Open:
    pass


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2


@case
def what_a_closed_generator_returns(x):
    def numbers(ends):
        try:
            yield 1
        except GeneratorExit:
            if ends == "returns":
                return 5
            if ends == "raises":
                raise ValueError("in the end") from None
            if ends == "goes on":
                yield 2

    def outer():
        got = yield from numbers("returns")
        return got * 2

    told = []
    for ends in ("returns", "falls", "raises", "goes on"):
        it = numbers(ends)
        next(it)
        told += [raised(it.close), raised(it.close)]
    unstarted, delegating = numbers("returns"), outer()
    next(delegating)
    return told, unstarted.close(), raised(delegating.close), x + 1


@case
def keywords_that_are_not_taken(x):
    def f(first, /, second, *, third=1): ...

    cell = 3

    def g(second=1):
        return cell

    calls = [lambda: f(1, secnd=2), lambda: f(first=1, second=2), lambda: g(secod=1), lambda: g(1, thrid=2), lambda: g(1, second=2, a=1)]
    calls += [
        lambda: copy.copy(),
        lambda: copy.copy(1, wrong=2),
        lambda: Point(1, z=2),
        lambda: "a b".split(max_split=1),
        lambda: sorted([], keyy=None),
        lambda: print(sepp=""),
    ]
    return [raised(each) for each in calls], x + 1


@case
def attributes_that_have_no_place(x):
    told = []
    for cls in (Slotted, Setting, Deleting, Open, int, list):
        for name in ("method", "absent"):
            for change in (lambda o, n: setattr(o, n, 1), delattr):
                if cls is not Open or change is delattr:
                    told.append(raised(lambda c=change, k=cls, n=name: c(k(), n)))
    return told, raised(lambda: Slotted().here), x + 1


@case
def locals_that_were_asked_for_before(x):
    a = 1
    first = locals()
    first["a"], first["more"] = 5, 6
    gone = 3
    second = locals()
    del gone
    third = locals()
    return a, sorted(first), sorted(second), sorted(third), first is third, "gone" in third, [sorted(locals()) for i in range(2)], x + 1


@case
def an_inverted_bool(x):
    is_three = x.shape[0] == 3
    return ~is_three, operator.invert(is_three), is_three.__invert__(), ~x.shape[0], x + 1


@case
def members_of_an_enumeration(x):
    return raised(lambda: 1 in Color), raised(lambda: 7 in Color), Color.RED in Color, x + 1


@case
def warnings_of_functions_that_compute(x):
    return re.sub("a", "b", "aaa", 1), next(copy.copy(itertools.count(3))), x + 1


@case
def warnings_that_the_program_records(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        re.sub("a", "b", "aaa", 1)
    return [str(each.message) for each in seen], x + 1


@case
def names_of_classes_in_messages(x):
    def entered():
        with x.shape:
            pass

    return raised(entered), raised(lambda: -x.shape), raised(lambda: collections.OrderedDict().popitem()), raised({}.popitem), x + 1


@case
def sums_of_floats(x):
    return sum([0.1] * 10), sum([1, 0.1, 2, 0.1]), sum([1e16, 1.0, -1e16]), sum([0.1j] * 10), sum([True, 0.1], 1), x + 1


@case
def slices_as_keys(x):
    return raised(lambda: {slice(1, 2): 3}[slice(1, 2)]), raised(lambda: hash(slice(1, 2))), x + 1


@case
def what_a_class_body_keeps(x):
    class Made:
        """First line.

        more"""

        def method(self):
            self.here = self.there = 1

    kept = sorted(name for name in vars(Made) if not name.startswith("__weak"))
    return Made.__doc__, kept, getattr(Made, "__static_attributes__", None), getattr(Made, "__firstlineno__", None) is None, x + 1


@case
def functions_that_wrap_others(x):
    def inner(y):
        """Adds."""
        return y + 1

    @functools.wraps(inner)
    def outer(*args):
        return inner(*args) * 2

    told = [getattr(outer, name, "no such") for name in functools.WRAPPER_ASSIGNMENTS]
    return told, outer.__wrapped__ is inner, raised(lambda: raised.__type_params__), outer(x)


if sys.version_info >= (3, 12):
    namespace: dict[str, Any] = {"case": case, "raised": raised}
    source = """
class Box[T]:
    def __init__(self, value: T):
        self.value = value
    def plus[U](self, other: U) -> U:
        return other + self.value

@case
def type_parameters(x):
    def f[T: int, *Ts, **P](a: T, b: int = 1) -> T:
        return a + b
    class Local[T]:
        def get(self) -> T:
            return x
    type Alias[T] = list[T]
    return f(x), [str(p) for p in f.__type_params__], Local[int]().get(), Local.__type_params__[0].__name__, Alias.__name__, Alias[int].__args__

@case
def generic_classes(x):
    return Box[int](2).plus(3), Box(x).plus(x)

@case
def nested_quotes(x):
    return f"{f'{x.shape[0]!r:>{2 + 3}}'} {'a' + "b"} {x.shape[0]=}", x + 1
"""
    exec(source, namespace)


def outcome(fn: Callable[[torch.Tensor], Any]) -> tuple[Any, list[tuple[str, str, str]]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = fn(torch.arange(3.0))
    return result, [(each.category.__name__, str(each.message), each.filename) for each in seen]


@pytest.mark.parametrize("name", CASES)
def test_as_the_running_python_has_it(name: str) -> None:
    fn = CASES[name]
    (expected, warned), compiled = outcome(fn), capture(fn, "eager")
    for _ in range(3):
        result, seen = outcome(compiled)
        assert repr(result) == repr(expected)
        assert seen == warned


def warning(x: torch.Tensor) -> Any:
    """Something that the running version warns of, and which computes from constants alone."""
    if sys.version_info < (3, 12):
        return raised(lambda: 1 in Color), x + 1
    return operator.invert(True), x + 1


def test_warnings_end_a_graph_unless_they_are_ignored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        whole = capture(warning, "eager", fullgraph=True)
        expected, result = warning(torch.zeros(2)), whole(torch.zeros(2))
    assert repr(result) == repr(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeprecationWarning)
        with pytest.raises(Unsupported, match="FE068"):  # the graph of before is for filters that ignore it
            whole(torch.zeros(2))


def test_warnings_are_errors_where_the_program_makes_them() -> None:
    compiled = capture(warning, "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        assert raised(lambda: repr(compiled(torch.zeros(2)))) == raised(lambda: repr(warning(torch.zeros(2))))


def test_a_comparison_in_front_of_a_jump_ends_one_graph() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1

    told: list[Any] = []
    compiled = capture(branch, "eager", on_break=told.append)
    for sign in (1, -1, 1):
        x = torch.full((2,), float(sign))
        assert torch.equal(compiled(x), branch(x))
        assert len(told) == 1
