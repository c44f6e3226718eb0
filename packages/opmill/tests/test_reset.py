"""reset() forgets everything; warnings of the packages below are OpmillWarnings."""

import warnings

import pytest
import torch

import opmill

X = torch.linspace(-1, 2, 6)


def breaking(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def counting():
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    return backend, graphs


def test_reset_forgets_resume_functions():
    backend, graphs = counting()
    compiled = opmill.compile(breaking, backend=backend)
    compiled(X)
    once = len(graphs)
    compiled(X)
    assert once >= 2 and len(graphs) == once
    opmill.reset()
    assert torch.equal(compiled(X), breaking(X)) and len(graphs) == 2 * once


def test_reset_forgets_having_given_up():
    backend, graphs = counting()
    compiled = opmill.compile(lambda x: x + 7, backend=backend, options=opmill.Options(recompile_limit=2))
    with pytest.warns(opmill.OpmillWarning, match="FE090"):
        for dtype in (torch.float16, torch.float64, torch.int64, torch.int32):
            compiled(X.to(dtype))
    assert len(graphs) == 2
    opmill.reset()
    assert torch.equal(compiled(X), X + 7) and len(graphs) == 3


def test_one_filter_is_for_the_warnings_of_every_package():
    compiled = opmill.compile(lambda x, n: x + n, backend="eager", options=opmill.Options(recompile_limit=1))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", opmill.OpmillWarning)
        for n in range(3):
            compiled(X, n)
    assert seen == []


def test_explain_shows_the_guards_of_resume_functions():
    told = opmill.explain(breaking, backend="eager")(X)
    assert len(told.breaks) == 1 and len(told.parts) > 1
    assert all(specialisation for part in told.parts for specialisation in part.guards)
