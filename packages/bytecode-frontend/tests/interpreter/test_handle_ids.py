"""Hooks that a program puts on modules while it runs: the numbers of their handles are taken from torch's counter at each call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.modules.module as torch_module
from alike import outcome, same
from torch import nn
from torch.utils.hooks import RemovableHandle

from opmill_bytecode_frontend.entry.capture import capture
from opmill_bytecode_frontend.values.handle_ids import TABLES

Program = Callable[..., Any]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.second(self.first(x).relu() * scale)  # type: ignore[no-any-return]


def add(module: nn.Module, args: Any, *rest: Any) -> Any:
    return rest[-1] + 1


def double(module: nn.Module, args: Any, *rest: Any) -> Any:
    return rest[-1] * 2


def before(module: nn.Module, args: Any) -> Any:
    return (args[0] * 3,)


def before_with_kwargs(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return args, {"scale": 2.0}


PUT: dict[str, Callable[[Net], RemovableHandle]] = {
    "forward": lambda m: m.first.register_forward_hook(add),
    "prepended": lambda m: m.first.register_forward_hook(double, prepend=True),
    "with kwargs": lambda m: m.register_forward_hook(double, with_kwargs=True),
    "always": lambda m: m.second.register_forward_hook(add, always_call=True),
    "before": lambda m: m.second.register_forward_pre_hook(before),
    "before with kwargs": lambda m: m.register_forward_pre_hook(before_with_kwargs, with_kwargs=True),
    "before all": lambda m: m.second.register_forward_pre_hook(before, prepend=True),
    "of all modules": lambda m: torch_module.register_module_forward_hook(double),
    "before all modules": lambda m: torch_module.register_module_forward_pre_hook(before),
    "a closure": lambda m: (lambda kept: m.first.register_forward_hook(lambda mod, args, out: kept.append(out) or out + len(kept)))([]),
}


def removed(m: Net, x: torch.Tensor, put: Callable[[Net], RemovableHandle]) -> Any:
    handle = put(m)
    y = m(x)
    handle.remove()
    return y, m(x)


def in_a_block(m: Net, x: torch.Tensor, put: Callable[[Net], RemovableHandle]) -> Any:
    with put(m):
        y = m(x)
    return y, m(x)


def removed_at_the_end(m: Net, x: torch.Tensor, put: Callable[[Net], RemovableHandle]) -> Any:
    handle = put(m)
    try:
        return m(x)
    finally:
        handle.remove()
        handle.remove()


def kept(m: Net, x: torch.Tensor, put: Callable[[Net], RemovableHandle]) -> Any:
    handle = put(m)
    return m(x), handle


def several(m: Net, x: torch.Tensor, put: Callable[[Net], RemovableHandle]) -> Any:
    handles = [put(m), m.first.register_forward_hook(add), put(m), m.first.register_forward_pre_hook(before)]
    y = m(x)
    handles[1].remove()
    handles[2].remove()
    z = m(x)
    return y, z, handles[0], handles[3], handles[0].id == handles[1].id, handles[0].id == handles[0].id


LIVES = [removed, in_a_block, removed_at_the_end, kept, several]


def state(m: Net, start: int) -> Any:
    """What there is of hooks, numbered from where the counter was."""
    tables = [(name, vars(module)[name]) for module in m.modules() for name in sorted(TABLES)]
    tables += [(name, held) for name, held in vars(torch_module).items() if name.startswith("_global_forward") and isinstance(held, dict)]
    return [(name, [key - start for key in held]) for name, held in tables if held], RemovableHandle.next_id - start


def told(value: Any, start: int) -> Any:
    """A result, where handles are told by their numbers and what they would take away."""
    if isinstance(value, tuple):
        return tuple(told(each, start) for each in value)
    if isinstance(value, RemovableHandle):
        table = value.hooks_dict_ref()
        assert table is not None
        return "handle", value.id - start, [key - start for key in table], len(value.extra_dict_ref)
    return value


@pytest.fixture(autouse=True)
def hooks_of_all_modules() -> Iterator[None]:
    tables = [held for name, held in vars(torch_module).items() if name.startswith("_global_") and isinstance(held, dict)]
    saved = [dict(held) for held in tables]
    yield
    for held, was in zip(tables, saved, strict=True):
        held.clear()
        held.update(was)


def called(life: Program, compiled: Program, put: Callable[[Net], RemovableHandle], outside: bool) -> Iterator[Any]:
    """What four calls give and leave behind; what one has left is taken away before the next."""
    torch.manual_seed(0)
    m = Net()
    fixed = m.first.register_forward_hook(double) if outside else None
    for k in range(4):
        start = RemovableHandle.next_id
        given = outcome(compiled, m, torch.full((3, 4), k / 3.0), put)
        yield told(given, start), state(m, start)[1]
        yield [each for each in state(m, start)[0] if fixed is None or each[1] != [fixed.id - start]]
        for each in given if isinstance(given, tuple) else ():
            if isinstance(each, RemovableHandle):
                each.remove()
        assert state(m, start)[0] == ([("_forward_hooks", [fixed.id - start])] if fixed is not None else [])


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("name", PUT)
@pytest.mark.parametrize("life", LIVES)
def test_hooks_are_those_of_eager(life: Program, name: str, outside: bool) -> None:
    compiled = capture(life, "eager")  # type: ignore[arg-type]
    eager = list(called(life, life, PUT[name], outside))
    ours = list(called(life, compiled, PUT[name], outside))
    assert all(same(one, other) for one, other in zip(ours, eager, strict=True)), (ours, eager)


ASSUMED = {"always", "of all modules", "before all modules"}
"""The numbers of the first torch keeps in a set; the others end the graph."""


@pytest.mark.parametrize(("name", "life"), itertools.product([name for name in PUT if name not in ASSUMED], LIVES))
def test_one_capture_serves_all_calls(name: str, life: Program) -> None:
    made: list[Any] = []
    compiled = capture(life, "eager", fullgraph=True, on_translation=made.append)  # type: ignore[arg-type]
    list(called(life, compiled, PUT[name], outside=False))
    assert len(made) == 1


def test_a_hook_put_meanwhile_is_called_where_forward_raises() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("none")

    m = Failing()

    def fn(x: torch.Tensor) -> Any:
        seen: list[Any] = []
        with m.register_forward_hook(lambda *given: seen.append(given[1][0] + 1), always_call=True):
            try:
                m(x)
            except ValueError as error:
                seen.append(str(error))
        return seen

    compiled = capture(fn, "eager")
    for k in range(3):
        assert same(compiled(torch.full((3,), k - 1.0)), fn(torch.full((3,), k - 1.0)))


def test_a_module_made_in_captured_code_is_given_hooks() -> None:
    def fn(x: torch.Tensor) -> Any:
        m = nn.ReLU()
        handles = [m.register_forward_hook(add), m.register_forward_hook(double, prepend=True)]
        y = m(x)
        handles[0].remove()
        return y, m(x), len(m._forward_hooks)

    compiled = capture(fn, "eager")
    for k in range(4):
        x = torch.full((3,), k - 1.0)
        assert same(compiled(x), fn(x))


ASKING: dict[str, Callable[[RemovableHandle, int], Any]] = {
    "number": lambda handle, start: handle.id - start,
    "next": lambda handle, start: RemovableHandle.next_id - handle.id,
    "text": lambda handle, start: str(handle.id) == str(start),
    "order": lambda handle, start: (handle.id > start - 1, handle.id == start, bool(handle.id + 1), handle.id in {start: 1}),
    "a dictionary": lambda handle, start: {handle.id: 1}.get(start, 2),
    "its keys": lambda handle, start: [key - start for key in {handle.id: 1, start + 7: 2}],
    "a set": lambda handle, start: start in {handle.id, 3},
    "an item": lambda handle, start: list(range(start + 5))[handle.id] - start,
    "attributes": lambda handle, start: (handle.id.bit_length() == start.bit_length(), handle.id.real - start, type(handle.id)),
    "tensors": lambda handle, start: torch.tensor(handle.id - start) + torch.ones(2) * handle.id - start,
}


@pytest.mark.parametrize("name", ASKING)
def test_numbers_are_those_of_the_call(name: str) -> None:
    m = nn.ReLU()

    def fn(x: torch.Tensor, start: int) -> Any:
        with m.register_forward_hook(add) as handle:
            return m(x), ASKING[name](handle, start)

    compiled = capture(fn, "eager")
    for k in range(4):
        x = torch.full((3,), k - 1.0)
        given, expected = (outcome(each, x, RemovableHandle.next_id) for each in (compiled, fn))
        assert same(given, expected)


def test_a_graph_break_between_putting_and_taking_away() -> None:
    m = Net()

    def fn(x: torch.Tensor) -> Any:
        handle = m.first.register_forward_hook(add)
        y = m(x)
        breaking()
        z = m(x)
        handle.remove()
        return y, z, m(x)

    made: list[Any] = []
    compiled = capture(fn, "eager", on_translation=made.append)
    for k in range(4):
        x = torch.full((3, 4), k - 1.0)
        assert same(compiled(x), fn(x))
        assert not m.first._forward_hooks
    assert len(made) == 2


HOW: list[dict[str, bool]] = [
    {},
    {"with_kwargs": True},
    {"always_call": True},
    {"prepend": True},
    {"with_kwargs": True, "always_call": True},
]


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize(("first", "second"), itertools.permutations(HOW, 2))
def test_a_hook_put_again_is_called_as_it_was_put_last(first: dict[str, bool], second: dict[str, bool], of_all: bool) -> None:
    def counting(module: nn.Module, *rest: Any) -> Any:
        return rest[-1] + len(rest)

    m = nn.Linear(3, 3)
    compiled = capture(lambda x: m(x), "eager")
    x = torch.ones(2, 3)
    for how in (first, second, first, second):
        how = {name: given for name, given in how.items() if not of_all or name != "prepend"}
        put = torch_module.register_module_forward_hook if of_all else m.register_forward_hook
        handle = put(counting, **how)  # type: ignore[arg-type]
        assert same(compiled(x), m(x))
        handle.remove()
    assert same(compiled(x), m(x))


def test_handles_of_before_the_call_take_their_hooks_away() -> None:
    m = Net()

    def fn(x: torch.Tensor, handles: list[RemovableHandle]) -> Any:
        y = m(x)
        for handle in handles:
            handle.remove()
        return y, m(x), [handle.id in m.first._forward_hooks for handle in handles[:2]]

    made: list[Any] = []
    compiled = capture(fn, "eager", on_translation=made.append)
    for k in range(6):
        given = []
        for each in (compiled, fn):
            handles = [m.first.register_forward_hook(add), m.first.register_forward_hook(double), m.second.register_forward_hook(add)]
            if k == 3:
                handles[0].remove()
            given.append(each(torch.full((3, 4), k - 1.0), handles))
            assert not m.first._forward_hooks and not m.second._forward_hooks
        assert same(*given)
    assert len(made) <= 3


@torch.compiler.disable
def breaking() -> None:
    """What ends a graph."""


def test_the_counter_counts_what_failed_too() -> None:
    m = nn.Linear(4, 4)

    def fn(x: torch.Tensor) -> Any:
        with m.register_forward_hook(add):
            return m(x)

    compiled = capture(fn, "eager")
    compiled(torch.ones(2, 4))
    for shape in ((2, 3), (2, 4)):
        counts = []
        for each in (fn, compiled):
            start = RemovableHandle.next_id
            outcome(each, torch.ones(shape))
            counts.append(RemovableHandle.next_id - start)
            assert not m._forward_hooks
        assert counts == [1, 1]


def removed_alone(handles: list[RemovableHandle], x: torch.Tensor) -> Any:
    for handle in handles:
        handle.remove()
    return x + len(handles)


def removed_twice(handles: list[RemovableHandle], x: torch.Tensor) -> Any:
    handles[0].remove()
    handles[-1].remove()
    handles[0].remove()
    return x + 1


def removed_as_listed(handles: list[RemovableHandle], x: torch.Tensor) -> Any:
    tables = [handle.hooks_dict_ref() for handle in handles]
    there = [table is not None and handle.id in table for handle, table in zip(handles, tables, strict=True)]
    handles[-1].remove()
    return there, [len(table or ()) for table in tables], tables[0] is tables[-1], x * 2


def removed_in_a_block(handles: list[RemovableHandle], x: torch.Tensor) -> Any:
    with handles[0]:
        y = x.sin()
    return y


KEPT: list[nn.Module] = []


def put_new(m: Net, x: torch.Tensor) -> dict[str, list[RemovableHandle]]:
    """Handles of hooks that are made anew, by what is said of them."""
    other, gone = nn.Linear(4, 4), nn.Linear(4, 4)
    KEPT[:] = [other]
    return {
        "forward": [m.first.register_forward_hook(lambda *given: given[-1] + 1), m.first.register_forward_hook(lambda *given: None)],
        "of two modules": [m.first.register_forward_hook(lambda *given: None), m.second.register_forward_hook(lambda *given: None)],
        "of another module each time": [other.register_forward_hook(lambda *given: None, with_kwargs=True)],
        "of a module that is gone": [gone.register_forward_hook(add), gone.register_full_backward_hook(lambda *given: None)],
        "backward": [
            m.first.register_full_backward_hook(lambda *given: None),
            m.second.register_full_backward_pre_hook(lambda *given: None),
        ],
        "of a tensor": [x.register_hook(lambda gradient: gradient * 2), x.register_hook(lambda gradient: None)],
        "of a state": [m._register_state_dict_hook(lambda *given: None)],
    }


@pytest.mark.parametrize("kind", put_new(Net(), torch.ones(3, requires_grad=True)))
@pytest.mark.parametrize("life", [removed_alone, removed_twice, removed_as_listed, removed_in_a_block])
def test_handles_of_hooks_that_are_made_anew(life: Program, kind: str) -> None:
    m = Net()
    tables = [m.first._forward_hooks, m.second._forward_hooks, m.first._forward_hooks_with_kwargs, m.first._backward_hooks]
    made: list[Any] = []
    compiled = capture(life, "eager", on_translation=made.append)  # type: ignore[arg-type]
    for k in range(6):
        given, left = [], []
        for each in (compiled, life):
            x = torch.full((3,), k / 3.0, requires_grad=True)
            handles = put_new(m, x)
            given.append(outcome(each, handles.pop(kind), x))
            left.append(([len(table) for table in tables], len(x._backward_hooks or ())))
            for handle in itertools.chain(*handles.values()):
                handle.remove()
            for table in (*tables, m.second._backward_pre_hooks):
                table.clear()
        assert same(*given) and left[0] == left[1], (given, left)
    assert len(made) <= 3


def test_gradients_that_a_hook_keeps_between_graphs() -> None:
    """What draws maps of what a network looks at."""
    m = Net()

    def fn(x: torch.Tensor) -> Any:
        kept: dict[str, Any] = {}
        handle = m.first.register_full_backward_hook(lambda module, given, gradients: kept.update(first=gradients[0]))
        m.zero_grad()
        m(x).sum().backward()
        handle.remove()
        return kept["first"], m.second.weight.grad.clone()  # type: ignore[union-attr]

    made: list[Any] = []
    compiled = capture(fn, "eager", on_translation=made.append)
    counts = []
    for k in range(6):
        x = torch.full((3, 4), k - 1.0, requires_grad=True)
        assert same(compiled(x), fn(x))
        assert not m.first._backward_hooks
        counts.append(len(made))
    assert counts[2] == counts[-1], counts
