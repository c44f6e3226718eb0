"""Functions of one piece of code that share entries: guards see the function that is called, and targets are given it."""

import types
from typing import Any

import pytest

from opmill_guards import CompiledFunction, GuardSet
from opmill_guards.direct import Result
from opmill_guards.guard import Equals
from opmill_guards.source import CELL, Attr, CellContents, Item, Local

CALLED = Local("called")
CELL_OF_K = CellContents(Item(Attr(CALLED, "__closure__"), 0).called(f"{CELL}k"))


def made(k: Any, names: int = 2, defaults: tuple[int, ...] | None = None) -> Any:
    """``f(a0, ..., *, n)`` with as many parameters, that gives its cell and its arguments."""
    text = ", ".join(f"a{i}" for i in range(names))
    namespace: dict[str, Any] = {}
    exec(_CODES.setdefault(names, compile(f"def make(k):\n    def f({text}): return k, {text}\n    return f", "f.py", "exec")), namespace)
    function = namespace["make"](k)
    return types.FunctionType(function.__code__, _GLOBALS, "f", defaults, function.__closure__)


_CODES: dict[int, Any] = {}
_GLOBALS: dict[str, Any] = {"__builtins__": __builtins__}


def family(on_miss: Any, count: int = 2, **given: Any) -> tuple[CompiledFunction, list[CompiledFunction]]:
    functions = [made(k, **given) for k in range(count)]
    first = CompiledFunction(functions[0], on_miss, given=CALLED.name)
    return first, [CompiledFunction(function, shared=first) for function in functions]


@pytest.mark.parametrize("names", [0, 1, 2, 15, 16, 17, 40])
def test_an_entry_serves_the_functions_whose_cells_fit(names: int) -> None:
    missed = []
    first, each = family(lambda compiled, args, kwargs: missed.append(compiled) or compiled.__wrapped__, 3, names=names)
    first.insert(GuardSet([Equals(CELL_OF_K, 1)], [CALLED]), lambda held, *args: ("entry", held, args))
    args = tuple(range(names))
    assert each[1](*args) == ("entry", (each[1].__wrapped__,), args)
    assert each[0](*args) == (0, *args) and each[2](*args) == (2, *args)
    assert missed == [each[0], each[2]]
    assert all(one.entries == first.entries for one in each)


def test_names_of_variables_are_told() -> None:
    _, each = family(lambda *a: print)
    each[0].insert(GuardSet([Equals(CELL_OF_K, 0)]), lambda *args: None)
    assert [str(failure) for failure in each[1].explain_miss((1, 2), {})] == ["k: expected 0, found 1"]
    assert each[1].bind((1,), {"a1": 2}) == {"a0": 1, "a1": 2, "called": each[1].__wrapped__}
    assert each[1].find((1, 2), {}) is None and each[0].find((1, 2), {}) is each[1].entries[0]


def test_what_is_made_by_one_is_removed_by_another() -> None:
    _, each = family(lambda *a: print)
    entry = each[0].insert(GuardSet([]), lambda *args: "entry")
    assert each[1](1, 2) == "entry" and each[1].remove(entry) and each[0].entries == ()
    each[0].insert(GuardSet([]), lambda *args: "entry")
    each[1].clear()
    assert each[0].entries == ()


@pytest.mark.parametrize("attribute", ["__code__", "__defaults__", "__kwdefaults__"])
def test_a_function_that_is_another_now_runs_as_it_is(attribute: str) -> None:
    _, each = family(lambda *a: print)
    each[0].insert(GuardSet([]), lambda *args: "entry")
    other = {"__code__": (lambda k: lambda a, b: ("other", k))(0).__code__, "__defaults__": (1, 2), "__kwdefaults__": {"a": 1}}
    setattr(each[1].__wrapped__, attribute, other[attribute])
    assert each[1](1, 2) == (("other", 1) if attribute == "__code__" else (1, 1, 2))
    assert each[0](1, 2) == "entry"


def test_defaults_are_those_of_the_function_that_is_called() -> None:
    functions = [made(k, 2, (k + 10,)) for k in range(2)]
    first = CompiledFunction(functions[0], lambda *a: print, given=CALLED.name)
    each = [CompiledFunction(function, shared=first) for function in functions]
    first.insert(GuardSet([Equals(Local("a1"), 11)], [Local("a1"), CALLED]), lambda held, *args: (held[0], args))
    assert each[1](1) == (11, (1,)) and each[0](1, 11) == (11, (1, 11))


def test_a_direct_call_fails_for_the_function_that_is_called() -> None:
    first, each = family(lambda *a: print)
    result = Result()
    result.output(0)

    def failed(error: Exception, args: Any, kwargs: Any, function: Any) -> Any:
        return type(error), function(*args, **kwargs)

    def graph(*inputs: Any) -> list[Any]:
        return [1 // inputs[0]]

    loads = [Local("a0"), CALLED]
    first.insert(GuardSet([], loads), print, result.call(graph, failed, lambda error, inputs: graph(*inputs[1:])))
    assert each[1](1, 2) == 1
    first.clear()
    first.insert(GuardSet([], loads), print, result.call(graph, failed))
    assert [each[k](0, 5) for k in (0, 1)] == [(ZeroDivisionError, (k, 0, 5)) for k in (0, 1)]
    first.clear()
    first.insert(GuardSet([], loads), print, result.call(graph, failed, lambda error, inputs: [inputs]))
    assert each[1](0, 5) == (0,)


def test_only_entries_that_are_given_functions_are_shared() -> None:
    first, each = family(lambda *a: print)
    for shared in (CompiledFunction(made(0), print), each[0], print):
        with pytest.raises(TypeError, match="cannot be shared"):
            CompiledFunction(made(0), shared=shared)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the name of a local"):
        CompiledFunction(made(0), print, given=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_miss"):
        CompiledFunction(made(0))
