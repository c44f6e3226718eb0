"""What compile() refuses, and with which words."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opmill
from opmill.options import MODES, resolve_mode, resolve_options


def double(x):
    return x * 2


@pytest.mark.parametrize("value", [3, "text", [1], {"a": 1}, 2.5])
def test_what_cannot_be_called_is_a_type_error(value):
    with pytest.raises(TypeError, match=f"OM001.*{type(value).__name__}"):
        opmill.compile(value)


def test_an_unknown_mode_names_the_modes():
    with pytest.raises(ValueError, match="'fast'.*" + ".*".join(map(re.escape, map(repr, sorted(MODES))))):
        opmill.compile(double, mode="fast")


def test_an_unknown_option_names_the_options_and_the_nearest():
    with pytest.raises(ValueError, match=r"(?s)'recompile_limits'.*'recompile_limit'.*did you mean 'recompile_limit'"):
        opmill.compile(double, options={"recompile_limits": 3})


def test_an_unknown_backend_names_the_backends():
    with pytest.raises(ValueError, match="'no_such_backend'.*'eager'.*'opmill'"):
        opmill.compile(double, backend="no_such_backend")


def test_a_backend_is_a_name_or_a_callable():
    with pytest.raises(ValueError, match="OM008"):
        opmill.compile(double, backend=3)


@pytest.mark.parametrize("arguments", [{"fullgraph": 1}, {"dynamic": "yes"}, {"mode": 3}, {"options": [("a", 1)]}])
def test_arguments_of_the_wrong_type(arguments):
    with pytest.raises(TypeError):
        opmill.compile(double, **arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"recompile_limit": 0},
        {"recompile_limit": True},
        {"numerics": "exact"},
        {"generators": "cpp"},
        {"generators": [1]},
        {"cache_dir": 3},
    ],
)
def test_values_of_options_are_checked(options):
    with pytest.raises(ValueError, match="OM006"):
        opmill.compile(double, options=options)


def test_arguments_are_checked_before_a_decorator_is_used():
    with pytest.raises(ValueError, match="OM003"):
        opmill.compile(mode="fast")


def test_a_disabled_compile_gives_the_same_object_but_checks_its_arguments():
    assert opmill.compile(double, disable=True) is double
    assert opmill.compile(disable=True)(double) is double
    with pytest.raises(ValueError, match="OM003"):
        opmill.compile(double, disable=True, mode="fast")


def test_every_listed_mode_and_option_default_is_accepted():
    for mode in opmill.list_modes():
        graphs = mode in ("reduce-overhead", "max-autotune")
        measured = mode.startswith("max-autotune")
        assert resolve_options(resolve_mode(mode), None) == opmill.Options(cuda_graphs=graphs, autotune=measured)
    for name, (default, doc) in opmill.list_options().items():
        assert doc
        assert getattr(resolve_options("default", {name: default}), name) == default


@settings(derandomize=True, max_examples=50)
@given(st.text(max_size=12).filter(lambda name: name not in opmill.list_options()))
def test_any_other_option_name_is_refused(name):
    with pytest.raises(ValueError, match="OM004"):
        resolve_options("default", {name: 1})


def test_an_unknown_step_names_the_steps_and_the_nearest():
    with pytest.raises(ValueError, match=r"(?s)OM006.*'inlin'.*'capture'.*'generate'.*did you mean 'inline'"):
        resolve_options("default", {"print_after": ["lower", "inlin"]})


def test_options_are_hashable_and_equal_by_value():
    one, other = (resolve_options("default", {"print_after": ["lower"], "numerics": "eager"}) for _ in range(2))
    assert one == other and hash(one) == hash(other) and one != opmill.Options()
