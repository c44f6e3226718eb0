"""Marks of ``torch.compiler`` and ``torch._dynamo``: each means in captured code what torch's own compiler takes it for, and what is
computed is what the plain program computes."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.errors import Unsupported

LIST = [3]
LINEAR = torch.nn.Linear(4, 4)
OUTSIDE = torch.ones(4)


@torch.compiler.allow_in_graph
def allowed(x: torch.Tensor, k: int = 2) -> Any:
    io.StringIO().write("nothing that can be captured")
    return {"a": x.sin() * k, "b": [x.cos(), x]}


@torch.compiler.allow_in_graph
def allowed_with_numbers(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


@torch.compiler.allow_in_graph
def allowed_to_write(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


@torch.compiler.assume_constant_result
def constant(n: int) -> int:
    return LIST[0] + n


@torch.compiler.assume_constant_result
def constant_tensor() -> torch.Tensor:
    return torch.ones(4) * 3


class Settings:
    scale = 2

    @torch.compiler.assume_constant_result
    def read(self) -> list[int]:
        return [self.scale, 1]


SETTINGS = Settings()


@torch._dynamo.nonstrict_trace
def nonstrict(module: torch.nn.Module, x: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
    torch._dynamo.graph_break()
    return module(x) * more["a"] + OUTSIDE


@torch._dynamo.nonstrict_trace
def nonstrict_of_tensors(x: torch.Tensor) -> torch.Tensor:
    io.StringIO().write("nothing that can be captured")
    return x.sin()


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * LIST[0]).cos()


@torch.compiler.disable(reason="my reason")
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch._dynamo.disable(recursive=False)
def disabled_itself(x: torch.Tensor) -> torch.Tensor:
    return inner(x) + 1


def inner(x: torch.Tensor) -> torch.Tensor:
    return x.exp() * 2


def unknown(values: Any, wanted: Any) -> int:
    return operator.indexOf(io.StringIO("a\nb\n").readlines(), wanted)


@torch.compiler.substitute_in_graph(unknown, skip_signature_check=True)
def known(values: Any, wanted: Any) -> int:
    return 1


@torch._dynamo.dont_skip_tracing
def traced(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def marks_inside(x: torch.Tensor) -> Any:
    y = x * 2
    torch._dynamo.mark_dynamic(y, 0)
    torch._dynamo.maybe_mark_dynamic(y, 0)
    torch._dynamo.decorators.mark_unbacked(y, 0)
    torch._dynamo.mark_static(y)
    torch._dynamo.mark_static_address(y)
    return y + 1


def settings_inside(x: torch.Tensor) -> Any:
    with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True):
        x = x + 1
    with torch._dynamo.override_cudagraphs(fwd=False):
        return traced(x) * 2


def exported(x: torch.Tensor) -> Any:
    return x + 1 if torch.compiler.is_exporting() else x - 1


def graph_break(x: torch.Tensor) -> Any:
    y = x.sin()
    torch._dynamo.graph_break("here")
    return y + 1


def stance(x: torch.Tensor) -> Any:
    y = x.sin()
    with torch.compiler.set_stance("force_eager"):
        return y + 1


#: name -> (program, graphs that it becomes).
TABLE: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "allow_in_graph": (lambda x: (allowed(x)["a"] + allowed(x, k=3)["b"][0], allowed(x)["b"][1] is x), 1),
    "allow_in_graph writes": (lambda x: (allowed_to_write(x.clone()), x), 1),
    "assume_constant_result": (lambda x: x * constant(2) + constant_tensor() * SETTINGS.read()[0], 1),
    "nonstrict_trace": (lambda x: nonstrict(LINEAR, x, {"a": x}), 1),
    "nonstrict_trace of tensors": (lambda x: nonstrict_of_tensors(x) + nonstrict_of_tensors(x * 2), 1),
    "nested_compile_region": (lambda x: region(region(x)), 1),
    "disable": (lambda x: disabled(x.sin()) * 2, 2),
    "disable, not what it calls": (lambda x: disabled_itself(x.sin()) * 2, 2),
    "substitute_in_graph": (lambda x: x + unknown(["a\n", "b\n"], "b\n"), 1),
    "disallow_in_graph": (lambda x: torch.erfinv(x.sin()) + 1, 2),
    "graph_break": (graph_break, 2),
    "mark_dynamic and others": (marks_inside, 1),
    "settings of torch": (settings_inside, 1),
    "cudagraph_mark_step_begin": (lambda x: (torch.compiler.cudagraph_mark_step_begin(), x + 1)[1], 1),
    "is_exporting": (exported, 1),
    "set_stance": (stance, 1),
}


def test_what_torch_compiled_is_read() -> None:
    """A function or module that ``torch.compile`` made is a part of the graph."""
    linear = torch.nn.Linear(4, 4)
    in_place = torch.nn.Linear(4, 4)
    in_place.compile(backend="eager")
    function, module = torch.compile(lambda x: x.sin() + 1, backend="eager"), torch.compile(linear, backend="eager")
    graphs: list[Any] = []
    compiled = capture(lambda x: module(function(x * 2)) + in_place(x), counting(graphs), fullgraph=True)
    x = torch.ones(2, 4)
    in_place(x)  # torch's compiler changes torch.nn.Module when it runs first
    for _ in range(2):
        torch.testing.assert_close(compiled(x), linear((x * 2).sin() + 1) + in_place(x))
    assert len(graphs) == 1


def counting(graphs: list[Any]) -> Any:
    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return backend


@pytest.fixture(autouse=True, scope="module")
def disallowed() -> Any:
    torch._dynamo.disallow_in_graph(torch.erfinv)
    yield
    torch._dynamo.allow_in_graph(torch.erfinv)


@pytest.mark.parametrize("name", TABLE)
def test_mark(name: str) -> None:
    program, count = TABLE[name]
    x = torch.linspace(0, 1, 16).view(4, 4)
    want = program(x.clone())
    graphs: list[Any] = []
    compiled = capture(program, counting(graphs))
    for _ in range(2):
        torch.testing.assert_close(compiled(x.clone()), want)
    assert len(graphs) == count
    whole = capture(program, "eager", fullgraph=True)
    if count == 1 and name != "set_stance":
        torch.testing.assert_close(whole(x.clone()), want)
    else:
        with pytest.raises(Unsupported):
            whole(x.clone())


def test_an_allowed_function_is_one_step() -> None:
    graphs: list[Any] = []
    capture(lambda x: nonstrict_of_tensors(x) * 2, counting(graphs))(torch.ones(2))
    [step, _] = [node for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert step.target is nonstrict_of_tensors.__wrapped__


def test_an_allowed_function_that_asks_for_data() -> None:
    compiled = capture(lambda x: allowed_with_numbers(x.abs()) + 1, "eager")
    for x in (torch.arange(3.0), torch.arange(3.0) * 2):
        torch.testing.assert_close(compiled(x), x * x.sum() + 1)


def test_gradients_go_through_allowed_functions() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    compiled = capture(lambda x: nonstrict_of_tensors(x).sum() + nonstrict(LINEAR, x, {"a": x}).sum(), "eager", fullgraph=True)
    compiled(x).backward()
    got, x.grad = x.grad, None
    (x.sin().sum() + nonstrict(LINEAR, x, {"a": x}).sum()).backward()
    torch.testing.assert_close(got, x.grad)


def test_a_constant_result_is_asked_for_once() -> None:
    calls = []

    @torch.compiler.assume_constant_result
    def counted() -> int:
        calls.append(1)
        return len(calls)

    compiled = capture(lambda x: x + counted(), "eager", fullgraph=True)
    assert [compiled(torch.zeros(1)).item() for _ in range(3)] == [1.0, 1.0, 1.0]
    with pytest.raises(Unsupported, match="FE069"):
        capture(lambda x: constant(x), "eager", fullgraph=True)(torch.zeros(1))


def test_the_reason_is_told() -> None:
    with pytest.raises(Unsupported, match="my reason"):
        capture(lambda x: disabled(x), "eager", fullgraph=True)(torch.zeros(1))
    with pytest.raises(Unsupported, match="here"):
        capture(graph_break, "eager", fullgraph=True)(torch.zeros(1))


def test_error_on_graph_break() -> None:
    def errors(x: torch.Tensor) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(True):
            return disabled(x.sin()) + 1

    def none(x: torch.Tensor) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(True):
            y = x.sin()
            with torch._dynamo.error_on_graph_break(False):
                y = disabled(y)
            return y + 1

    with pytest.raises(Unsupported, match="FE069"):
        capture(errors, "eager")(torch.ones(2))
    torch.testing.assert_close(capture(none, "eager")(torch.ones(2)), torch.ones(2).sin() + 2)


@pytest.mark.skipif(not hasattr(torch._dynamo.decorators, "leaf_function"), reason="newer than this torch")
def test_leaf_function() -> None:
    @torch._dynamo.decorators.leaf_function
    def leaf(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * 2,)

    leaf.register_fake(lambda x: (torch.empty_like(x),))

    def program(x: torch.Tensor) -> torch.Tensor:
        return leaf(x.sin())[0] + 1

    torch.testing.assert_close(capture(program, "eager")(torch.ones(2)), torch.ones(2).sin() * 2 + 1)
    with pytest.raises(Unsupported, match="leaf_function"):
        capture(program, "eager", fullgraph=True)(torch.ones(2))
