"""Parts of Python expressions."""

import ast

import pytest

from opmill_runtime_cache.plan.syntax import called, elements, expression, items, name_of, notes, part


def test_each_is_of_the_kind_that_is_asked_for():
    assert name_of(expression("x")) == "x" and len(elements(expression("[a, b]"))) == 2
    assert [ast.unparse(e) for e in items("a, f(b, c), [d]")] == ["a", "f(b, c)", "[d]"] and items("") == []
    call = called("f(x, k=1)")
    assert name_of(call.func) == "f" and [k.arg for k in call.keywords] == ["k"]


@pytest.mark.parametrize("wrong", [lambda: name_of(expression("x.y")), lambda: called("x"), lambda: elements(expression("(a, b)"))])
def test_what_is_none_is_a_syntax_error(wrong):
    with pytest.raises(SyntaxError, match="is no"):
        wrong()
    assert part(expression("x"), ast.Name).id == "x"


def test_notes_are_constants():
    assert notes("a=1, b=(2, 'x'), c=[None]") == {"a": 1, "b": (2, "x"), "c": [None]} and notes("") == {}
    with pytest.raises(ValueError):
        notes("a=f()")
