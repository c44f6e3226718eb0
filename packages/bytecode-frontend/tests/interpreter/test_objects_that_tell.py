"""Objects of Python's own that tell when they go, in variables that nothing reads behind a graph break: views of buffers, coroutines that
nobody awaited, weak references with a callback."""

from __future__ import annotations

import gc
import warnings
import weakref
from dataclasses import dataclass, field

import pytest
import torch

from opmill_bytecode_frontend import capture

LOG: list[object] = []


@torch.compiler.disable
def B(): ...


class Plain: ...


def tried(function, *args):
    try:
        function(*args)
        LOG.append("done")
    except BufferError:
        LOG.append("refused")


def viewed():
    data = bytearray(range(10))
    view = memoryview(data)  # noqa: F841

    def resize(n):
        data[1:-1] = range(n + 1, 2 * n - 1)

    resize(10)
    for n in (11, 9, 0):
        tried(resize, n)
    tried(data.pop)
    LOG.append(bytes(data))


def viewed_in_a_list():
    data = bytearray(4)
    views = [[memoryview(data)]]
    B()
    tried(data.pop)
    views = None  # noqa: F841
    tried(data.pop)


async def nothing(): ...


def not_awaited():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        frame = nothing().cr_frame
    LOG.append((len(heard), frame is None))


def let_go():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        each = nothing()
        LOG.append(repr(each)[:10])
        each = None  # noqa: F841
        LOG.append(len(heard))


def dropped_by_a_return():
    def inner():
        each = nothing()
        LOG.append(repr(each)[:10])
        B()

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        inner()
        LOG.append(len(heard))


def called_back():
    target = Plain()
    watch = weakref.ref(target, lambda _: LOG.append("gone"))  # noqa: F841
    B()
    del target
    LOG.append("behind")


def not_called_back():
    target = Plain()
    watch = weakref.ref(target, lambda _: LOG.append("gone"))
    B()
    del watch
    del target
    LOG.append("behind")


PROGRAMS = (viewed, viewed_in_a_list, not_awaited, let_go, dropped_by_a_return, called_back, not_called_back)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_they_tell(program):
    def between(x):
        y = x + 1
        program()
        return y * 2

    LOG.clear()
    between(torch.ones(1))
    expected = list(LOG)
    compiled = capture(between, "eager")
    for _ in range(2):
        LOG.clear()
        compiled(torch.ones(1))
        gc.collect()
        assert LOG == expected


def twice_in_a_body():
    class Own:
        first = field(default=1)
        second = first

    return Own.first is Own.second


def in_a_list_of_the_body():
    class Own:
        first = field(default=1)
        known = [first]  # noqa: RUF012

    return Own.known[0] is Own.first


def named_as_its_annotation():
    class Own:
        first: first = field(default=1)  # noqa: F821

    return Own.first is Own.__annotations__["first"]


def of_a_dataclass():
    @dataclass
    class Own:
        first: first = field(default=1)  # noqa: F821

    return ",type=...," in repr(Own.__dataclass_fields__["first"])


@pytest.mark.parametrize("program", [twice_in_a_body, in_a_list_of_the_body, named_as_its_annotation, of_a_dataclass])
def test_a_field_of_a_class_is_one_object(program):
    compiled = capture(lambda x: (x + 1, program()), "eager")
    assert compiled(torch.ones(1))[1] is program()
