"""``except*``, asynchronous functions and class bodies: captured, or left cleanly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend import capture

CLASSES = ("ValueError", "KeyError", "TypeError", "OSError")


@st.composite
def exception(draw: Any, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        inner = ", ".join(draw(st.lists(exception(depth - 1), min_size=1, max_size=3)))
        return f"ExceptionGroup('g{draw(st.integers(0, 3))}', [{inner}])"
    return f"{draw(st.sampled_from(CLASSES))}({draw(st.integers(0, 9))})"


@st.composite
def programs(draw: Any) -> str:
    lines = ["def program(x, log):", "    try:", "        x = x + 1", f"        raise {draw(exception())}"]
    for _ in range(draw(st.integers(1, 3))):
        wanted = ", ".join(draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2)))
        actions = ["x = x * 2", "raise", "raise IndexError(1)", "x = x + x.sum().tolist()", "raise"]
        lines += [f"    except* ({wanted},) as e:", f"        log.append(('{wanted}', e.message, len(e.exceptions)))"]
        lines += [f"        {draw(st.sampled_from(actions))}"]
    return "\n".join([*lines, "    return x * 3\n"])


def told(exc: Any) -> Any:
    inner = [told(e) for e in exc.exceptions] if isinstance(exc, BaseExceptionGroup) else []
    return type(exc), exc.args[:1] if inner else exc.args, inner


def outcome(fn: Any) -> Any:
    log: list[Any] = []
    try:
        return fn(torch.ones(2), log).tolist(), log
    except Exception as exc:
        return told(exc), log


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_groups_are_split_as_python_does(text: str) -> None:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    compiled = capture(namespace["program"], "eager")
    want = outcome(namespace["program"])
    for _ in range(2):
        assert outcome(compiled) == want, text


def test_groups_are_captured_whole() -> None:
    def fn(x, log):
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
        except* ValueError as e:
            x = x * len(e.exceptions)
        except* KeyError:
            x = x + 1
        return x

    assert outcome(capture(fn, "eager", fullgraph=True)) == outcome(fn)


async def doubled(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


def makes_a_coroutine(x, log):
    later = doubled(x + 1)
    return asyncio.run(later) * 3


async def awaits(x, log):
    return await doubled(x) + 1


def test_asynchronous_code_is_left_cleanly() -> None:
    translations: list[Any] = []
    assert outcome(capture(makes_a_coroutine, "eager", on_translation=translations.append)) == outcome(makes_a_coroutine)
    assert translations and translations[0].gm is not None
    compiled = capture(awaits, "eager")
    for _ in range(2):
        assert asyncio.run(compiled(torch.ones(2), [])).tolist() == [3, 3]
    with pytest.raises(Exception, match="FE060"):
        capture(awaits, "eager", fullgraph=True)(torch.ones(2), [])


def makes_a_class(x, log):
    y = x * 2

    class Scaled:
        by: int = 3
        names = [n for n in "ab"]

        def __init__(self, value):
            super().__init__()
            self.value = value

        def scaled(self):
            v = self.value * self.by
            v = v + v.sum().tolist()
            return v + y

        @property
        def again(self):
            return __class__(self.scaled())

    made = Scaled(x + 1).again
    log.append((made.by, Scaled.names, type(made).__name__))
    return made.scaled() + made.value


def test_class_bodies_run_natively_between_graphs() -> None:
    translations: list[Any] = []
    compiled = capture(makes_a_class, "eager", on_translation=translations.append)
    for _ in range(2):
        assert outcome(compiled) == outcome(makes_a_class)
    assert translations and translations[0].gm is not None


class Coded(ExceptionGroup[Exception]):
    """With more than its class implemented in C keeps."""

    code: int

    def __new__(cls, message: str, exceptions: list[Exception], code: int) -> Coded:
        made = super().__new__(cls, message, exceptions)
        made.code = code
        return made


def changed_after(x: torch.Tensor, given: list[Any]) -> Any:
    group = ExceptionGroup("g", given)
    given.append(3)
    return x + 1, group.exceptions, group.args, group.exceptions is group.exceptions


def changed_before(x: torch.Tensor, given: list[Any]) -> Any:
    given.append(KeyError(2))
    group = ExceptionGroup("g", given)
    given.clear()
    group.args = (1,)
    return x + 1, group, group.message, group.exceptions


def changed_while_handled(x: torch.Tensor, given: list[Any]) -> Any:
    given.append(KeyError(2))
    try:
        raise ExceptionGroup("g", given)
    except* KeyError as group:
        given.append(group.exceptions)
        x.tolist()
    except* ValueError as group:
        given.append(group)
    return x + 1


def of_another_class(x: torch.Tensor, given: list[Any]) -> Any:
    group = Coded("g", given, 5)
    given.append(2)
    return x + 1, group.code, group.exceptions, group


def by_new(x: torch.Tensor, given: list[Any]) -> Any:
    group = BaseExceptionGroup.__new__(ExceptionGroup, "g", given)
    given.append(2)
    return x + 1, group.exceptions, group.args


@pytest.mark.parametrize(
    "program", [changed_after, changed_before, changed_while_handled, of_another_class, by_new], ids=lambda program: program.__name__
)
def test_a_group_keeps_what_it_was_made_of(program: Any) -> None:
    """Its list is the program's, which may change it: so it does when the graph has run."""
    compiled = capture(program, "eager")
    for call in (compiled, compiled):
        given, ours = [ValueError(1)], [ValueError(1)]
        assert (str(program(torch.ones(2), given)), str(given)) == (str(call(torch.ones(2), ours)), str(ours))


KINDS = (ValueError, (ValueError, KeyError), LookupError, ArithmeticError, Exception, (ValueError, LookupError))


def caught(kind):
    whole, seen = ExceptionGroup("g", [ValueError(1), KeyError("a")]), []
    try:
        try:
            raise whole
        except* kind as part:
            seen.append((part is whole, part.__suppress_context__, len(part.exceptions)))
    except BaseException as left:
        seen.append((left is whole, left.__suppress_context__, len(left.exceptions)))
    return seen, whole.__suppress_context__


def nested(kind):
    inner = ExceptionGroup("h", [ValueError(1)])
    whole, seen = ExceptionGroup("g", [inner, KeyError("a")]), []
    try:
        try:
            raise whole
        except* kind as part:
            seen.append((part is whole, part.exceptions[0] is inner))
    except BaseException as left:
        seen.append((left is whole, left.exceptions[0] is inner, left.exceptions[0].__suppress_context__))
    return seen


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("program", [caught, nested])
def test_parts_are_new_groups_also_where_they_have_all_of_it(program, kind):
    assert capture(lambda x: (program(kind), x + 1), "eager")(torch.ones(1))[0] == program(kind)
