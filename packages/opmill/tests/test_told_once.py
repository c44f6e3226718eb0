"""Explanations name what the program has: the function behind a decorator, a break once, and no names of opmill's own."""

import functools

import torch

import opmill
from opmill.record import BreakRecord, Record


def passed_on(function):  # type: ignore[no-untyped-def]
    @functools.wraps(function)
    def wrapper(*args, **kwargs):  # type: ignore[no-untyped-def]
        return function(*args, **kwargs)

    return wrapper


class Wrapped(torch.nn.Module):
    @passed_on
    def forward(self, x: torch.Tensor, **given: int) -> torch.Tensor:
        return x.sin() * given.get("times", 1)


BEGINS = Wrapped.forward.__wrapped__.__code__.co_firstlineno + 2  # type: ignore[attr-defined]


class Turns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            if x.sum() > 0:
                x = x + 1
        return x


def test_a_graph_begins_in_the_function_that_a_decorator_is_around() -> None:
    explained = opmill.explain(Wrapped())(torch.ones(3))
    assert f"graph 0 from {__file__.rpartition('/')[2]}:{BEGINS}:" in str(explained)


def test_a_break_in_what_a_module_calls_is_told_once() -> None:
    explained = opmill.explain(Turns())(torch.ones(3))
    [found] = explained.breaks
    assert found.code == "FE030" and found.times > 1


def test_a_missing_keyword_is_told_as_that() -> None:
    model = opmill.compile(Wrapped())
    model(torch.ones(3), times=2)
    model(torch.ones(3))
    [again] = opmill.explain(model)(torch.ones(3)).reasons
    assert again.reasons[0].endswith("nothing there: KeyError: times") and not again.read, "every call reads kwargs"


def test_a_text_that_changes_has_no_name_of_opmills() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x / len(str(x))

    compiled = opmill.compile(f)
    for size in (1, 20, 300, 40):
        compiled(torch.ones(size))
    assert not any(".stack" in str(found) for found in opmill.explain(compiled)(torch.ones(5)).breaks)


def test_notebooks_show_what_prints_and_not_the_data() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).sum()

    given = torch.ones(4)
    checked, profile = opmill.check(f)(given), opmill.profile(f, calls=1)(given)
    found, told = opmill.bisect(f)(given), opmill.explain(Turns())(torch.ones(3)).breaks[0]
    for each in (checked, profile, found, told):
        assert each._repr_html_().startswith("<pre") and "Struct" not in each._repr_html_()
    assert "all 1 agree" in checked._repr_html_() and "nothing is wrong" in found._repr_html_() and "FE030" in told._repr_html_()


def test_a_break_is_one_whatever_sizes_of_data_take_part() -> None:
    record = Record("f", test_a_break_is_one_whatever_sizes_of_data_take_part.__code__)
    for number in (0, 1, 7):
        why = f"only data tell: u{number} is an item"
        record.add_break(BreakRecord("FE037", f"a decision on u{number} != 0", "a.py:3", why, "", (("a.py", 3, "f"),), ((3, 3, 1, 5),)))
    record.add_break(BreakRecord("FE037", "a decision on u0 != 1", "a.py:3", "", "", (("a.py", 3, "f"),), ((3, 3, 1, 5),)))
    assert [found.times for found in record.breaks] == [3, 1]
