"""Floats that were different at several calls: computed by Python before the graph, tensors without dimensions inside of it."""

from __future__ import annotations

import math
import types
from typing import Any

import pytest
import torch
from alike import outcome, same
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend import capture

X = torch.tensor([0.5, -1.25, 3.0, 0.1])
VALUES = (0.3, 0.7, 0.1, 0.9, 0.25, 1.5, -0.5, 0.5, 1e-3, 2.0, -0.0)


def arithmetic(x: Any, f: float) -> Any:
    return x * f + (1 - f) / 2, x / (f + 3), f - x, x > f, x == f, f * f, -f, abs(f) // 0.4, f % 0.3, f**2


def dtypes(x: Any, f: float) -> Any:
    bare = x.sum()
    return x.long() * f, bare * f, f - bare.double(), x.bfloat16() + f, (x > 0) + f, x.double() * f, x.long().sum() - f, (x > 0) < f


def in_place(x: Any, f: float) -> Any:
    x = x.clone()
    x.mul_(f)
    x += f
    x -= f * 2
    return x


def objects(x: Any, f: float) -> Any:
    kept = {"rate": f, "all": [f, f + 1]}
    kept["rate"] *= 0.5
    return x * kept["rate"], kept["all"]


def methods(x: Any, f: float) -> Any:
    return x.mul(f).add(f), torch.sub(f * x, f), x.lt(f), f.real + x


@pytest.mark.parametrize("fn", [arithmetic, dtypes, in_place, objects, methods], ids=lambda fn: fn.__name__)
def test_two_captures_serve_all_values(fn: Any) -> None:
    translations: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=True, on_translation=translations.append)
    for value in VALUES:
        assert same(compiled(X, value), fn(X, value)), value
    assert len(translations) == 2


def test_a_decision_is_assumed_and_no_more() -> None:
    def fn(x: Any, f: float, g: float) -> Any:
        return x * f if f > 0.5 and f - g < 1 else x - max(f, g)

    translations: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=True, on_translation=translations.append)
    for f in VALUES:
        for g in VALUES:
            assert same(compiled(X, f, g), fn(X, f, g)), (f, g)
    assert len(translations) <= 8


def test_attributes_and_items_change_as_well() -> None:
    class Schedule:
        def __init__(self, rate: float) -> None:
            self.rate = rate
            self.steps = [rate, rate * 2]

    def fn(x: Any, schedule: Any) -> Any:
        schedule.rate = schedule.rate * 0.9
        return x * schedule.rate + schedule.steps[1]

    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append)
    for rate in VALUES:
        mine, theirs = Schedule(rate), Schedule(rate)
        assert same(compiled(X, mine), fn(X, theirs)) and mine.rate == theirs.rate
    assert len(translations) == 2


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf, 1e200, 5e-324])
@pytest.mark.parametrize("fn", [arithmetic, dtypes, in_place, lambda x, f: (x.sum(), 1 / f), lambda x, f: x * f**3])
def test_values_at_the_edge(fn: Any, value: float) -> None:
    compiled = capture(fn, "eager")
    for each in (0.3, 0.7, value, 0.2):
        assert same(outcome(compiled, X, each), outcome(fn, X, each))


ROUNDED = (2.5, 3.7, 4.1, 5.5, 5.6, 7.0, 6.999, 12.25)
INTS = {
    "a factor": lambda x, f: x * int(f),
    "a size": lambda x, f: x.repeat(3)[: int(f)] + 1,
    "rounded": lambda x, f: (x + round(f), x + math.floor(f), x * math.ceil(f), x - math.trunc(f), round(f, 1) + x),
    "computed from": lambda x, f: (x + max(1, int(f * 2 + 1)), x.sum(), int(f) + 1, [int(f) * 2 - 1]),
    "of a size, too": lambda x, f: x.new_zeros(int(x.shape[0] * f)),
    "arithmetic": lambda x, f: (divmod(f, 2)[1] + x, x * divmod(f, 2)[0]),
    "asked for": lambda x, f: x * f if math.isfinite(f) and not math.isnan(f) and not math.isinf(f) else x,
    "an attribute": lambda x, f: x * types.SimpleNamespace(k=int(f)).k,
}


@pytest.mark.parametrize("case", INTS)
def test_ints_that_python_makes_of_them_are_not_assumed_either(case: str) -> None:
    translations: list[Any] = []
    compiled = capture(INTS[case], "eager", fullgraph=True, on_translation=translations.append)
    for value in ROUNDED:
        assert same(compiled(X, value), INTS[case](X, value)), value
    assert len(translations) == 2
    for value in (1.5, 0.3, -0.7, -2.5, 3.25):  # small and negative ones are captures of their own
        assert same(outcome(compiled, X[:1], value), outcome(INTS[case], X[:1], value)), value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 1e300])
@pytest.mark.parametrize("function", [int, round, math.floor, math.ceil, math.trunc])
def test_what_has_no_int(function: Any, value: float) -> None:
    def fn(x: Any, f: float) -> Any:
        return x, function(f)

    compiled = capture(fn, "eager")
    for each in (2.5, 3.75, value, 5.25, value):
        assert same(outcome(compiled, X, each), outcome(fn, X, each))


def test_what_needs_the_value_is_right_and_given_up_in_time() -> None:
    def fn(x: Any, f: float) -> Any:
        return torch.full((2,), f) + x.sum(), f"{f:.3f}", x.clamp(min=f), round(f, 1), int(f * 10), math.floor(f)

    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append)
    for value in (*VALUES, *(3 - v for v in VALUES), *(5 + v for v in VALUES)):  # each place where it is needed learns by itself
        assert same(compiled(X, value), fn(X, value))
    before = len(translations)
    assert same(compiled(X, 7.125), fn(X, 7.125)) and len(translations) == before


def test_static_numbers_are_compiled_each() -> None:
    translations: list[Any] = []
    compiled = capture(lambda x, f: x * f, "eager", dynamic=False, fullgraph=True, on_translation=translations.append)
    for value in VALUES[:4]:
        compiled(X, value)
    assert len(translations) == 4


def test_dynamic_numbers_are_compiled_once() -> None:
    translations: list[Any] = []
    compiled = capture(lambda x, f: x * f, "eager", dynamic=True, fullgraph=True, on_translation=translations.append)
    for value in VALUES:
        assert same(compiled(X, value), X * value)
    assert len(translations) == 1


def test_gradients_go_past_the_number() -> None:
    def fn(x: Any, f: float) -> Any:
        return ((x * f).sin() * f / (f + 2)).sum()

    compiled = capture(fn, "eager")
    for value in VALUES:
        mine, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
        compiled(mine, value).backward()
        fn(theirs, value).backward()
        assert torch.equal(mine.grad, theirs.grad)


def expressions(*names: str) -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from([*names, "2", "0.5", "-3.25", "True"]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            inner.map(lambda e: f"(-{e})"), inner.map(lambda e: f"abs({e})"), inner.map(lambda e: f"({e}) ** 2"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[1]})"), st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
        ),
        max_leaves=6,
    )  # fmt: skip


WHOLE = (3, 1, 7, 2, 0, -4, 5, 2, 9, 3, 1)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(expressions("f", "n"), expressions("n", "k"))
def test_random_expressions_of_floats_and_ints(one: str, other: str) -> None:
    fn = eval(f"lambda x, f, n, k: (x * ({one}) - ({other}), {one}, {other})")
    compiled = capture(fn, "eager")
    for f, n, k in zip(VALUES, WHOLE, WHOLE[4:] + WHOLE[:4]):
        assert same(outcome(compiled, X, f, n, k), outcome(fn, X, f, n, k)), (one, other, f, n, k)


def test_of_a_quotient_of_ints_only_the_outcome_of_a_comparison_is_assumed() -> None:
    def fn(x: Any, step: int, rate: float) -> Any:
        decay = min(0.9, (1 + step) / (10 + step))
        return x * decay if step / 7 < rate else x + decay * rate

    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append)
    for step in range(1, 60):
        for rate in (0.1 * step, 50.0):
            assert same(compiled(X, step, rate), fn(X, step, rate))
    assert len(translations) == 4, "with and without moving numbers, and each outcome"


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(expressions("f", "g"), expressions("f", "g"))
def test_random_expressions(one: str, other: str) -> None:
    fn = eval(f"lambda x, f, g: (x * ({one}) - ({other}), {one}, {other})")
    compiled = capture(fn, "eager")
    for f, g in zip(VALUES, VALUES[3:] + VALUES[:3]):
        assert same(outcome(compiled, X, f, g), outcome(fn, X, f, g)), (one, other, f, g)


def test_in_place_operators_of_changing_ints() -> None:
    def fn(x: Any, n: int) -> Any:
        n += 1
        n *= 2
        return x * n

    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append)
    for n in range(3, 9):
        assert same(compiled(X, n), fn(X, n))
    assert len(translations) == 2


def averaged(x: Any, f: float) -> Any:
    x, y = x.clone(), x.flip(0)
    return x.lerp_(y, f), torch.lerp(x, y, 1 - f), y.double().lerp(x.double(), f)


def filled(x: Any, f: float) -> Any:
    mask = x > 0.2
    return (
        x.masked_fill(mask, f),
        x.clone().masked_fill_(mask, -f),
        torch.where(mask, x, f),
        torch.masked_fill(x, mask, f),
        x.clone().fill_(f),
    )


def products(x: Any, f: float) -> Any:
    y = x.exp()
    return (
        torch.add(x, y, alpha=f),
        torch.sub(x, y, alpha=f),
        torch.addcmul(x, x, y, value=f),
        torch.addcdiv(x, x, y, value=1 + f),
        x.addcmul(y, y, value=f),
    )


def of_lists(x: Any, f: float) -> Any:
    some, others = [x.clone(), x.double()], [x.exp(), x.double() * 3]
    torch._foreach_mul_(some, f)
    torch._foreach_add_(some, others, alpha=1 - f)
    made = (
        torch._foreach_mul(some, f),
        torch._foreach_add(some, others, alpha=f),
        torch._foreach_sub(some, f),
        torch._foreach_div(some, f + 7),
    )
    torch._foreach_lerp_(some, others, f)
    torch._foreach_add_(others, f)
    return some, made, others, torch._foreach_lerp(others, some, 1 - f)


def only_lists(x: Any, f: float) -> Any:
    some = [x.clone(), x.double()]
    given = torch._foreach_mul_(some, f), torch._foreach_lerp_(some, [x, x.double()], f)
    return (
        some,
        given,
        torch._foreach_add_(some, f) is some,
        torch._foreach_mul(some, f),
        torch._foreach_sub(some, f),
        torch._foreach_div((x, x.double()), f + 7),
    )


@pytest.mark.parametrize("fn", [averaged, filled, only_lists, products, of_lists], ids=lambda fn: fn.__name__)
def test_two_captures_serve_all_values_of_other_arguments(fn: Any) -> None:
    translations: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=True, on_translation=translations.append)
    for value in VALUES:
        ours, theirs = compiled(X, value), fn(X, value)
        if fn in (products, of_lists):  # a factor may be rounded before the sum
            torch.testing.assert_close(ours, theirs)
        else:
            assert same(ours, theirs), value
    assert len(translations) == 2


def lerp_of_half(x: Any, f: float) -> Any:
    return x.bfloat16().lerp(x.bfloat16() * 2, f)


def lists_of_unequal_length(x: Any, f: float) -> Any:
    return torch._foreach_add([x, x], [x], alpha=f)


def lists_of_integers(x: Any, f: float) -> Any:
    return torch._foreach_mul([x.long(), x], f)


def empty_lists(x: Any, f: float) -> Any:
    return torch._foreach_mul([], f)


@pytest.mark.parametrize("fn", [lerp_of_half, lists_of_unequal_length, lists_of_integers, empty_lists], ids=lambda fn: fn.__name__)
def test_other_arguments_for_which_values_are_assumed(fn: Any) -> None:
    compiled = capture(fn, "eager")
    for value in VALUES[:4]:
        ours, theirs = outcome(compiled, X, value), outcome(fn, X, value)
        assert same(ours, theirs), value
