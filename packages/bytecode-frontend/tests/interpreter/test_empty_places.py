"""Places that hold nothing at the first call, are given something later, and lose it: each call sees what is there."""

from __future__ import annotations

import builtins
import collections
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture

Place = tuple[Callable[[torch.Tensor], Any], Callable[[Any], None], Callable[[], None]]
"""What reads it, what fills it, and what empties it."""
ROWS: dict[str, Callable[[], Place]] = {}


def row(make: Callable[[], Place]) -> Callable[[], Place]:
    ROWS[make.__name__.replace("_", " ")] = make
    return make


def cell() -> tuple[types.CellType, Callable[[Any], None], Callable[[], None]]:
    made = types.CellType()

    def fill(value: Any) -> None:
        made.cell_contents = value

    def empty() -> None:
        del made.cell_contents

    return made, fill, empty


def closed_over(made: types.CellType, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with this cell for what it closes over."""
    assert isinstance(function, types.FunctionType)
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, None, (made,))


@row
def a_cell() -> Place:
    k = 1

    def read(x: torch.Tensor) -> Any:
        try:
            return x * k
        except NameError as error:
            return x, str(error)

    made, fill, empty = cell()
    return closed_over(made, read), fill, empty


@row
def a_cell_whose_error_leaves() -> Place:
    k = 1
    made, fill, empty = cell()
    return closed_over(made, lambda x: (x + 1) * k), fill, empty


@row
def a_cell_of_a_callee() -> Place:
    k = 1
    made, fill, empty = cell()
    inner = closed_over(made, lambda x: x * k)

    def read(x: torch.Tensor) -> Any:
        try:
            return inner(x)
        except NameError:
            return x

    return read, fill, empty


@row
def a_cell_of_a_function_that_is_given() -> Place:
    k = 1
    made, fill, empty = cell()
    holder = types.SimpleNamespace(inner=closed_over(made, lambda: k))

    def read(x: torch.Tensor) -> Any:
        try:
            return x * holder.inner()
        except NameError:
            return x

    return read, fill, empty


@row
def the_contents_of_a_cell() -> Place:
    made, fill, empty = cell()

    def read(x: torch.Tensor) -> Any:
        try:
            return x * made.cell_contents
        except ValueError as error:
            return x, str(error)

    return read, fill, empty


@row
def a_cell_that_is_written_only_where_it_is_empty() -> Place:
    k = 1

    def read(x: torch.Tensor) -> Any:
        nonlocal k
        try:
            return x * k
        except NameError:
            k = 7
            return x * k

    made, fill, empty = cell()
    return closed_over(made, read), fill, empty


@row
def a_cell_that_is_deleted() -> Place:
    k = 1

    def read(x: torch.Tensor) -> Any:
        nonlocal k
        try:
            del k
            return x + 1
        except NameError:
            return x

    made, fill, _ = cell()
    return closed_over(made, read), fill, lambda: None


@row
def a_global() -> Place:
    space: dict[str, Any] = {}
    exec("def read(x):\n try:\n  return x * k\n except NameError as e:\n  return x, str(e)", space)
    return space["read"], lambda v: space.update(k=v), lambda: space.pop("k")


@row
def a_global_that_hides_a_builtin() -> Place:
    space: dict[str, Any] = {}
    exec("def read(x):\n return x * len('abc')", space)
    return space["read"], lambda v: space.update(len=lambda text: v), lambda: space.pop("len")


@row
def a_builtin() -> Place:
    def read(x: torch.Tensor) -> Any:
        try:
            return x * a_builtin_of_a_test  # type: ignore[name-defined]  # noqa: F821 - it comes and goes
        except NameError:
            return x

    return read, lambda v: setattr(builtins, "a_builtin_of_a_test", v), lambda: delattr(builtins, "a_builtin_of_a_test")


@row
def a_builtin_that_is_replaced() -> Place:
    kept = builtins.divmod
    return (
        lambda x: x * divmod(7, 4)[0],
        lambda v: setattr(builtins, "divmod", lambda a, b: (v,)),
        lambda: setattr(builtins, "divmod", kept),
    )


def of_object(obj: Any) -> Place:
    def read(x: torch.Tensor) -> Any:
        return x * getattr(obj, "k", 3) if not hasattr(obj, "k") else (x, obj.k)

    return read, lambda v: setattr(obj, "k", v), lambda: delattr(obj, "k")


class Plain:
    pass


class Slotted:
    __slots__ = ("k",)


@row
def an_attribute() -> Place:
    return of_object(Plain())


@row
def a_slot() -> Place:
    return of_object(Slotted())


@row
def an_attribute_of_a_class() -> Place:
    return of_object(type("Made", (), {}))


@row
def an_attribute_of_a_base() -> Place:
    base = type("Base", (), {})
    obj = type("Made", (base,), {})()
    return of_object(obj)[0], lambda v: setattr(base, "k", v), lambda: delattr(base, "k")


@row
def an_attribute_of_a_module() -> Place:
    return of_object(types.ModuleType("made"))


@row
def an_attribute_of_a_function() -> Place:
    return of_object(lambda: 1)


@row
def an_attribute_of_a_torch_module() -> Place:
    return of_object(torch.nn.Linear(2, 2))


@row
def an_attribute_of_a_tensor() -> Place:
    return of_object(torch.ones(2))


@row
def an_attribute_of_a_thread() -> Place:
    return of_object(threading.local())


def of_table(table: Any) -> Place:
    def read(x: torch.Tensor) -> Any:
        try:
            found = table["k"]
        except KeyError:
            found = None
        return x * table.get("k", 3), "k" in table, found

    return read, lambda v: table.update(k=v), lambda: table.pop("k")


for table in (dict, collections.OrderedDict, collections.ChainMap, collections.UserDict, weakref.WeakValueDictionary):
    ROWS[f"a key of a {table.__name__}"] = lambda table=table: of_table(table())  # type: ignore[misc]


@row
def a_variable_of_the_environment() -> Place:
    name = "A_TEST_OF_EMPTY_PLACES"
    return lambda x: x * int(os.environ.get(name, 3)), lambda v: os.environ.update({name: "5"}), lambda: os.environ.pop(name)  # type: ignore[return-value]


@row
def a_module_that_is_imported() -> Place:
    name = "a_module_of_a_test"
    made = types.ModuleType(name)
    return lambda x: x * (name in sys.modules), lambda v: sys.modules.update({name: made}), lambda: sys.modules.pop(name)  # type: ignore[return-value]


@row
def a_default() -> Place:
    def inner(x: torch.Tensor, k: int) -> Any:
        return x * k

    def read(x: torch.Tensor) -> Any:
        try:
            return inner(x)  # type: ignore[call-arg]
        except TypeError:
            return x

    return read, lambda v: setattr(inner, "__defaults__", (v,)), lambda: setattr(inner, "__defaults__", None)


@row
def a_named_default() -> Place:
    def inner(x: torch.Tensor, *, k: int) -> Any:
        return x * k

    def read(x: torch.Tensor) -> Any:
        try:
            return inner(x)  # type: ignore[call-arg]
        except TypeError:
            return x

    return read, lambda v: setattr(inner, "__kwdefaults__", {"k": v}), lambda: setattr(inner, "__kwdefaults__", None)


@row
def an_item_of_a_set() -> Place:
    items: set[str] = set()
    return lambda x: x * (1 + ("k" in items)), lambda v: items.add("k"), items.clear


@row
def an_item_of_a_list() -> Place:
    items: list[Any] = []
    return lambda x: x * items[-1] if items else x, items.append, items.clear


@pytest.mark.parametrize("filled_with", [2, 2.5])
@pytest.mark.parametrize("name", ROWS)
def test_each_call_sees_what_is_there(name: str, filled_with: Any) -> None:
    value = Plain() if name == "a key of a WeakValueDictionary" else filled_with  # of which there are references; no number

    def told(compiled: bool) -> list[Any]:
        read, fill, empty = ROWS[name]()
        run = capture(read, "eager") if compiled else read
        x, found = torch.arange(1.0, 4.0), []
        for step in (None, None, lambda: fill(value), None, empty, None, lambda: fill(value)):
            step() if step else None  # type: ignore[no-untyped-call]
            found.append(outcome(run, x))
        try:
            empty()
        except Exception:  # what reads it has emptied it
            pass
        return found

    assert same(told(True), told(False))
