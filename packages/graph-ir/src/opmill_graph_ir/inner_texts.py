"""Texts inside of a text: kernels and graphs that stand before the lines that refer to them by number.

kernel 0:
    kernel exp()
      in b0: float32[8]
body 1:
    input x: float32[8]
    return x
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TypeVar

COMMENT = "   # "
MARGIN = "    "
_HEAD = re.compile(r"(kernel|body) \d+:")
Made = TypeVar("Made")


_PIECES = r"""((?:[^'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*?)"""


def apart(line: str, mark: str) -> tuple[str, str]:
    """What stands before and behind the first ``mark`` that is outside of quotes; all and nothing where there is none."""
    if mark not in line or (found := re.match(_PIECES + re.escape(mark), line, re.DOTALL)) is None:
        return line, ""
    return found[1], line[found.end() :]


class Writing:
    """What a text that is being written refers to. ``lines``: the inner texts, in the order in which they were first asked for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, kind: str, key: Hashable, text: Callable[[], str]) -> int:
        """The number of what ``key`` stands for, whose ``text`` is written where it is new."""
        if key not in self._numbers:
            shown = [MARGIN + line for line in text().splitlines()]
            self._numbers[key] = len(self._numbers)
            self.lines += [f"{kind} {self._numbers[key]}:", *shown]
        return self._numbers[key]


class Reading:
    """What a text that is being read has told so far."""

    def __init__(self) -> None:
        self._texts: list[list[str]] = []
        self._made: dict[int, object] = {}
        self._inside = False

    def takes(self, line: str) -> bool:
        """Whether the line is part of an inner text; it is kept then."""
        if _HEAD.fullmatch(line):
            self._texts.append([])
            self._inside = True
        elif self._inside and line.startswith(MARGIN):
            self._texts[-1].append(line.removeprefix(MARGIN))
        else:
            self._inside = False
        return self._inside

    def made(self, number: int, parse: Callable[[str], Made]) -> Made:
        """What text ``number`` shows: one object however often it is asked for. Raises IndexError where there is none."""
        if number not in self._made:
            self._made[number] = parse("\n".join(self._texts[number]))
        return self._made[number]  # type: ignore[return-value]


__all__ = ["COMMENT", "Reading", "Writing", "apart"]
