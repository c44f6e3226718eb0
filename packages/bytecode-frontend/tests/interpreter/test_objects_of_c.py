"""Objects of extension modules that the library knows nothing about: what they hold may change from call to call, and is written when the
program writes it."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

import pytest
import torch

from opmill_bytecode_frontend import capture


def mapping() -> Any:
    made = mmap.mmap(-1, 4)
    made[:] = b"abcd"
    return made


def element() -> Any:
    made = Element("root")
    made.extend([Element("a"), Element("b")])
    return made


def numbers() -> Any:
    return (ctypes.c_int * 3)(1, 2, 3)


def reads(it: Any, x: torch.Tensor) -> Any:
    return len(it), repr(it[0]), it[0] == it[1], bool(it), (x + len(it)).sum()


def writes(it: Any, x: torch.Tensor) -> Any:
    first = it[0]
    it[0] = it[1]
    again = it[0]
    it[1] = first
    return first is again, first == again, again == it[0], first == it[1], x * 2


def tells(it: Any, x: torch.Tensor) -> Any:
    return it == it, it != 3, it in [3, it], [it] == [it], x + 1


MAKERS = [mapping, element, numbers]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("program", [reads, writes, tells])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_changed_between_calls(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    compiled, it, other, x = capture(program), make(), make(), torch.ones(2)
    for _ in range(3):
        first, second = compiled(it, x), program(other, x)
        assert re.sub("0x[0-9a-f]+", "", str(first)) == re.sub("0x[0-9a-f]+", "", str(second))
        it[0], it[1], other[0], other[1] = it[1], it[0], other[1], other[0]
        if make is mapping:
            assert it[:] == other[:]
            it.resize(len(it) + 1)
            other.resize(len(other) + 1)
        if make is element:
            assert [each.tag for each in it] == [each.tag for each in other]
            it.append(Element("c"))
            other.append(Element("c"))


def matched(found: Any, x: torch.Tensor) -> Any:
    return found[1], bool(found), x + len(found[2])


def test_matches_stay_as_they_are() -> None:
    assert str(capture(matched, fullgraph=True)(re.match("(a)(b+)", "abb"), torch.ones(2))) == str(
        matched(re.match("(a)(b+)", "abb"), torch.ones(2))
    )
