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
    assert "1 graph, no breaks, no recompiles" in str(told)


def inner(x):  # type: ignore[no-untyped-def]
    return x + x.sum().tolist()


def outer(x):  # type: ignore[no-untyped-def]
    return inner(x * 2) + 1


def test_a_break_names_the_calls_that_led_to_it() -> None:
    told = opmill.explain(outer, backend="eager")(torch.ones(2))
    assert f'File "{__file__}", line {outer.__code__.co_firstlineno + 1}, in outer' in str(told.breaks[0])
    assert len(told.graphs) == 3
    apart = opmill.explain(outer, backend="eager", options=opmill.Options(nested_breaks=False))(torch.ones(2))
    assert len(apart.graphs) == 4


def test_a_break_names_number_line_reason_and_hint():
    told = opmill.explain(branch, backend="eager")(X)
    assert torch.equal(told.result, branch(X)) and len(told.graphs) == 2
    [found] = told.breaks
    line = branch.__code__.co_firstlineno + 2
    assert found.code.startswith("FE") and found.where.endswith(f"{__file__.rsplit('/', 1)[-1]}:{line}") and found.why and found.hint
    assert found.code in str(told) and f"test_explain.py:{line}" in str(told)


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


class Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def test_modules_have_their_own_names() -> None:
    assert str(opmill.explain(Inner(), backend="eager")(X)).startswith("Inner.forward: 1 graph, no breaks, no recompiles; ")


def test_a_summary_is_short_and_unfolds() -> None:
    told = opmill.explain(branch, backend="eager")(X)
    assert len(str(told).splitlines()) <= 10
    assert "TensorMatch" not in str(told) and "TensorMatch" in told.everything
    assert "mul" in told.graph
    assert told.kernels == () and not told.left_to_torch and told.plan == "" and told.source == ""


def test_kernels_of_forward_and_backward_have_a_source_and_the_call_a_speed() -> None:
    pytest.importorskip("opmill_kernel_gen_cpp")
    told = opmill.explain(torch.nn.GELU(), speed=True, options={"cache": False})(X.clone().requires_grad_())
    assert told.source.count("<kernel ") == 2 and "erf" in told.source
    assert told.speed is not None and min(told.speed) > 0 and "times eager's speed" in str(told).splitlines()[0]
    assert told.reading > 0 and " s to read, " in str(told)


def test_a_break_shows_the_line_with_carets() -> None:
    [found] = opmill.explain(branch, backend="eager")(X).breaks
    lines = str(found).splitlines()
    at = next(number for number, text in enumerate(lines) if text.strip() == "if y.sum() > 100:")
    assert lines[at + 1].strip() == "^^^^^^^^^^^^^"


def test_a_break_met_again_is_told_once_with_how_often() -> None:
    compiled = opmill.compile(branch, backend="eager", dynamic=False)
    compiled(X)
    [found] = opmill.explain(compiled)(X.reshape(2, 3)).breaks
    assert found.times == 2 and "met 2 times" in str(found)


def test_a_notebook_shows_html() -> None:
    told = opmill.explain(branch, backend="eager")(X)
    page = told._repr_html_()
    assert "<b>branch: 2 graphs, 1 break" in page and "<lambda>" not in page
    assert page.count("<details>") == page.count("</details>") >= 4 and "<summary>breaks (1)</summary>" in page
