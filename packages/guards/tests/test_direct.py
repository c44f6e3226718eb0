"""Entries without Python: what the guards load goes to a callable, its outputs become the result."""

from __future__ import annotations

import collections
import gc
import sys
import traceback
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import CompiledFunction, GuardSet
from opmill_guards.direct import Result
from opmill_guards.guard import ModuleTree, TypeIs
from opmill_guards.kinds import tensor_match
from opmill_guards.kinds.module_tree import facts_of
from opmill_guards.source import Attr, Item, Local

torch = pytest.importorskip("torch")


class Mapped(collections.OrderedDict):  # type: ignore[type-arg]
    def __init__(self) -> None:
        raise AssertionError("not called")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("not called")


class Plain:
    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("not called")


def refuse(*_: Any) -> Any:
    raise AssertionError("called")


def compiled_with(function: Any, call: Any, loads: Any = (), guards: Any = ()) -> CompiledFunction:
    compiled = CompiledFunction(function, refuse)
    compiled.insert(GuardSet(guards, loads), refuse, call)
    return compiled


def two(a, *rest, b=2, **named):  # type: ignore[no-untyped-def]
    raise AssertionError("called")


LOADS = (Local("a"), Item(Local("rest"), 0), Local("b"), Item(Local("named"), "c"))


def test_values_reach_the_graph_in_order() -> None:
    seen = []
    result = Result()
    result.tuple_of([result.output(1), result.input(3), result.output(0)])
    compiled = compiled_with(two, result.call(lambda *values: (seen.append(values), sum(values))[::-1], refuse), LOADS)
    assert compiled(1, 10, c=100) == (None, 100, 113)
    assert compiled(1, 10, 7, b=3, c=100, d=9) == (None, 100, 114)
    assert seen == [(1, 10, 2, 100), (1, 10, 3, 100)]


ATOMS = st.sampled_from(["out0", "out1", "in0", "in1", None, 3, "text", (1, 2)])
RESULTS = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)
)


def describe(result: Result, value: Any, known: dict[Any, int]) -> int:
    if isinstance(value, str) and value[:-1] in ("out", "in"):
        if value not in known:
            known[value] = (result.output if value.startswith("out") else result.input)(int(value[-1]))
        return known[value]
    if type(value) is list:
        return result.list_of([describe(result, item, known) for item in value])
    if type(value) is dict:
        return result.dict_of({key: describe(result, item, known) for key, item in value.items()})
    if type(value) is tuple and value != (1, 2):
        return result.tuple_of([describe(result, item, known) for item in value])
    return result.constant(value)


def expected(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return values.get(value, value)
    if type(value) is dict:
        return {key: expected(item, values) for key, item in value.items()}
    return type(value)(expected(item, values) for item in value) if type(value) in (list, tuple) else value


@settings(derandomize=True, max_examples=200, deadline=None)
@given(RESULTS, st.sampled_from([tuple, list]))
def test_results_are_made_as_described(value: Any, outputs: Any) -> None:
    result = Result()
    describe(result, value, {})
    compiled = compiled_with(lambda x, y: None, result.call(lambda x, y: outputs((x + y, x * y)), refuse), (Local("x"), Local("y")))
    values = {"out0": 11.5, "out1": 15.0, "in0": 1.5, "in1": 10}
    first, second = compiled(1.5, 10), compiled(1.5, 10)
    assert first == second == expected(value, values)
    assert type(value) not in (list, dict) or first is not second


def test_a_part_used_twice_is_one_object_and_instances_are_made_by_their_base() -> None:
    result = Result()
    shared = result.list_of([result.output(0)])
    made = result.instance(Mapped, collections.OrderedDict, {"first": shared, "second": result.constant(None)}, {"also": shared})
    plain = result.instance(Plain, object, {}, {"x": shared})
    result.tuple_of([made, plain])
    mapped, other = compiled_with(lambda x: None, result.call(lambda x: (x,), refuse), (Local("x"),))(5)
    assert type(mapped) is Mapped and list(mapped) == ["first", "second"] and mapped["first"] == [5]
    assert type(other) is Plain and vars(other) == {"x": [5]} and vars(mapped) == {"also": [5]}
    assert mapped["first"] is mapped.also is other.x


class Failure(Exception):
    pass


def test_an_exception_goes_to_recover_and_then_to_failed() -> None:
    told: list[Any] = []

    def graph(x: Any, y: Any) -> Any:
        raise Failure(x)

    def recover(error: Exception, inputs: Any) -> Any:
        told.append((type(error), [frame.name for frame in traceback.extract_tb(error.__traceback__)], inputs))
        if inputs[0] == "twice":
            raise error
        return ["recovered"]

    def failed(error: Exception, args: Any, kwargs: Any) -> Any:
        assert sys.exc_info() == (None, None, None)
        told.append((type(error), args, kwargs))
        return "failed"

    result = Result()
    result.output(0)
    compiled = compiled_with(lambda x, y=0: None, result.call(graph, failed, recover), (Local("x"), Local("y")))
    assert compiled("once") == "recovered" and told.pop() == (Failure, ["graph"], ("once", 0))
    assert compiled("twice", y=4) == "failed"
    assert told.pop() == (Failure, ("twice",), {"y": 4}) and told.pop() == (Failure, ["graph"], ("twice", 4))
    without = compiled_with(lambda x, y=0: None, result.call(graph, failed), (Local("x"), Local("y")))
    assert without("once") == "failed" and told == [(Failure, ("once",), {})]


def test_what_is_no_exception_of_the_program_passes() -> None:
    def graph(x: Any) -> Any:
        raise KeyboardInterrupt

    result = Result()
    result.output(0)
    with pytest.raises(KeyboardInterrupt):
        compiled_with(lambda x: None, result.call(graph, refuse, refuse), (Local("x"),))(1)


def test_too_few_outputs_are_an_error() -> None:
    result = Result()
    result.output(1)
    with pytest.raises(IndexError):
        compiled_with(lambda: None, result.call(lambda: (1,), refuse))()


@pytest.mark.parametrize(
    "part",
    [
        (9, 0, None, None, (), (), 0),
        (0, -1, None, None, (), (), 0),
        (3, 0, None, None, (0,), (), 0),
        (5, 0, None, None, (), ("key",), 0),
        (6, 0, dict, list, (), (), 0),
        (6, 0, list, dict, (), (), 0),
        (6, 0, Plain, object, (), (), 1),
    ],
)
def test_parts_that_cannot_be_made_are_refused(part: Any) -> None:
    from opmill_guards._native import DirectCall

    with pytest.raises(ValueError, match="part"):
        DirectCall(refuse, None, refuse, (part,))


class Many(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.zeros(1) for _ in range(count)])


@pytest.mark.parametrize("count", [1, 40])
def test_tensors_of_modules_and_arguments_come_in_the_order_of_the_loads(count: int) -> None:
    module = Many(count)
    sources = [Attr(Attr(Local("m"), "layers"), str(k)) for k in range(count)]
    pins = tuple(tensor_match.of(source, p) for source, p in zip(sources, module.layers))
    tree = ModuleTree((facts_of(Local("m"), module), facts_of(Attr(Local("m"), "layers"), module.layers)), (), pins)
    seen: list[Any] = []
    result = Result()
    result.input(1)
    loads = (sources[-1], Local("x"), *sources[:-1])
    call = result.call(lambda *values: seen.append(values), refuse)
    compiled = compiled_with(lambda m, x: None, call, loads, [tree, TypeIs(Local("x"), int)])
    for number in (3, 4):
        assert compiled(module, number) == number
        last, x, *others = seen.pop()
        assert x == number and last is module.layers[-1] and all(a is b for a, b in zip(others, module.layers))
    module.layers[0] = torch.nn.Parameter(torch.ones(1))
    compiled(module, 5)
    assert any(value is module.layers[0] for value in seen.pop())


def test_inputs_live_while_the_graph_runs_and_no_longer() -> None:
    class Thing:
        pass

    holder = {"thing": Thing()}
    reference = weakref.ref(holder["thing"])

    def graph(thing: Any) -> Any:
        del thing
        holder.clear()
        gc.collect()
        return (reference() is not None,)

    result = Result()
    result.output(0)
    compiled = compiled_with(lambda table: None, result.call(graph, refuse), (Item(Local("table"), "thing"),))
    assert compiled(holder) is True
    assert reference() is None


def test_calls_are_collected_with_what_they_refer_to() -> None:
    class Graph:
        compiled: Any = None

        def __call__(self) -> Any:
            return (1,)

    result = Result()
    result.output(0)
    graph = Graph()
    graph.compiled = compiled_with(lambda: None, result.call(graph, refuse))
    assert graph.compiled() == 1
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is None
