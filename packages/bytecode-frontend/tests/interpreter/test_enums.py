"""Enums: members that are numbers and texts, what the program says they are called, values that no member has."""

from __future__ import annotations

import enum

import pytest
import torch
from differing import attempt, differs, told

from opmill_bytecode_frontend import capture


class Axis(enum.IntEnum):
    ROW = 0
    COLUMN = 2


class Flag(enum.IntFlag):
    X = 1
    Y = 2


class Kind(str, enum.Enum):  # noqa: UP042 - whose text is another than that of StrEnum
    RELU = "relu"


class Half(float, enum.Enum):
    IT = 0.5


class Spoken(enum.Enum):
    ONE = 1

    def __str__(self):
        return told("spoken")


class Formatted(enum.IntEnum):
    TWO = 2

    def __format__(self, spec):
        return told("format" + spec)


class Guessed(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, value):
        told(value)
        return cls.A if value == 9 else None


class Counted(int):
    def twice(self):
        return self * 2


COUNTED = Counted(3)
PROGRAMS = {
    "subscripts": lambda x: (x[Axis.COLUMN], [1, 2, 3][Axis.COLUMN], {2: 1}[Axis.COLUMN], range(Axis.COLUMN)),
    "operands": lambda x: (x * Axis.COLUMN, Axis.COLUMN - x, x * Half.IT, x + Flag.Y),
    "sizes": lambda x: (x.sum(dim=Axis.ROW), torch.zeros(Axis.COLUMN), x.view(-1, Axis.COLUMN - 1)),
    "text": lambda x: (str(Axis.ROW), f"{Axis.ROW}", repr(Flag.X | Flag.Y), f"{Kind.RELU}", "".join([Kind.RELU]), Kind.RELU.upper(), x + 1),
    "members": lambda x: (
        Axis(2),
        Kind("relu"),
        Flag(3),
        Axis["ROW"],
        sorted([Axis.COLUMN, Axis.ROW]),
        Flag.X & 1,
        Kind.RELU in ("relu",),
        x + 1,
    ),
    "texts of the program": lambda x: (str(Spoken.ONE), f"{Spoken.ONE:>8}", f"{Formatted.TWO:z}", x + 1),
    "values that no member has": lambda x: (Guessed(9), attempt(lambda: Guessed(5)), Guessed(1), x + 1),
    "numbers of a class of one's own": lambda x: (
        x * COUNTED,
        COUNTED - x,
        x[COUNTED - 1],
        torch.zeros(COUNTED),
        x.view(COUNTED, -1),
        COUNTED.twice() * x,
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_enums_and_numbers_of_classes_of_the_program(program):
    differs(program)


def test_members_are_told_apart():
    compiled = capture(lambda x, axis: x.sum(dim=axis) * axis, "eager", fullgraph=True)
    for axis in (Axis.ROW, Axis.COLUMN):
        x = torch.arange(8.0).view(2, 2, 2)
        assert torch.equal(compiled(x, axis), x.sum(dim=axis) * axis)
