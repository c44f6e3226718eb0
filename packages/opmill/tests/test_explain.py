"""explain() tells of graphs, breaks and guards."""

import pytest
import torch

import opmill
from opmill.explain import explanation_of

X = torch.linspace(-2, 2, 6)


def branch(x):
    y = x * 2
    if y.sum() > 100:
        return y + 1
    return y - 1


def test_a_whole_graph():
    told = opmill.explain(lambda x: x * 2 + 1, backend="eager")(X)
    assert torch.equal(told.result, X * 2 + 1)
    assert len(told.graphs) == 1 and told.graphs[0].operators == 2 and told.breaks == () and told.recompiles == 0
    assert "1 graphs, 0 breaks" in str(told)


def inner(x):  # type: ignore[no-untyped-def]
    return x + x.sum().tolist()


def outer(x):  # type: ignore[no-untyped-def]
    return inner(x * 2) + 1


def test_a_break_names_the_calls_that_led_to_it() -> None:
    told = opmill.explain(outer, backend="eager")(torch.ones(2))
    assert f"called at: {__file__}:{outer.__code__.co_firstlineno + 1} in outer" in str(told.breaks[0])
    assert len(told.graphs) == 3
    apart = opmill.explain(outer, backend="eager", options=opmill.Options(nested_breaks=False))(torch.ones(2))
    assert len(apart.graphs) == 4


def test_a_break_names_number_line_reason_and_hint():
    told = opmill.explain(branch, backend="eager")(X)
    assert torch.equal(told.result, branch(X)) and len(told.graphs) == 2
    [found] = told.breaks
    line = branch.__code__.co_firstlineno + 2
    assert found.code.startswith("FE") and found.where.endswith(f"{__file__.rsplit('/', 1)[-1]}:{line}") and found.why and found.hint
    assert found.code in str(told)


def test_guards_are_listed_and_recompiles_counted():
    compiled = opmill.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(X)
    told = opmill.explain(compiled)(X.reshape(2, 3))
    assert told.recompiles == 1 and all(told.guards)


def test_the_assumption_that_led_to_a_recompile_is_told() -> None:
    def rows(x):  # type: ignore[no-untyped-def]
        return x * 2 if x.shape[0] > 3 else x

    compiled = opmill.compile(rows, backend="eager", dynamic=True)
    compiled(torch.ones(5, 2))
    told = opmill.explain(compiled)(torch.ones(3, 2))
    line = rows.__code__.co_firstlineno + 1
    [found] = told.reasons
    assert found.function.endswith("rows") and f"expected s0 >= 4 ({__file__}:{line}), found s0 = x.size(0) = 3" in found.reasons[0]
    assert "recompile" in str(told)


def test_only_what_was_compiled_can_be_explained():
    with pytest.raises(TypeError, match="not compiled by opmill"):
        explanation_of(branch)
