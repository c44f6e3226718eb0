"""Methods of numbers that a program calls by their names: what they know, and what they leave to the other number, is as in Python."""

import enum
from collections.abc import Callable

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture

NUMBERS = {
    "int": "3",
    "bool": "True",
    "float": "2.5",
    "complex": "(1j)",
    "item": "items[0]",
    "argument": "n",
    "float argument": "d",
    "length": "len(items)",
    "size": "x.shape[0]",
    "data": "x.sum().item()",
}
BINARY = "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow and rand or xor lshift rshift rrshift"
METHODS = [f"__{name}__" for name in f"{BINARY} eq ne lt le gt ge".split()]
CALLS = [([1, 2, 3], 3, 0.5, 2), ([2, 2, 3, 4], 4, 1.5, 3), ([5, 6], 7, -2.5, 4), ([1, 2, 3, 4, 5], -3, 4.0, 5)]


def seen(function: Callable[..., tuple[object, object]], *given: object) -> object:
    try:
        result = function(*given)[1]
    except Exception as error:
        return type(error), str(error)
    return type(result), repr(result)


@pytest.mark.parametrize(("method", "by_class"), [*((each, False) for each in METHODS), *((each, True) for each in METHODS[::6])])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_method_called_by_its_name_knows_the_numbers_that_pythons_does(number: str, method: str, by_class: bool) -> None:
    lines = []
    for i, other in enumerate(NUMBERS.values()):
        called = f"type(a).{method}(a, {other})" if by_class else f"a.{method}({other})"
        lines += [f"def with_{i}(x, items, n, d):", f"    a = {NUMBERS[number]}", f"    return x + 1, {called}"]
    names: dict[str, Callable[..., tuple[object, object]]] = {}
    exec("\n".join(lines), names)
    for i, other in enumerate(NUMBERS):
        plain = names[f"with_{i}"]
        compiled = capture(plain)  # type: ignore[arg-type]
        for items, n, d, size in CALLS:
            given = torch.ones(size), items, n, d
            assert seen(compiled, *given) == seen(plain, *given), (other, n)


def test_a_number_and_the_length_of_a_list_that_was_longer_at_another_call() -> None:
    def program(x: torch.Tensor, items: list[int], n: int) -> tuple[torch.Tensor, object, object]:
        return x + n, n.__add__(len(items)), int.__rsub__(len(items), n)

    compiled = capture(program)
    for n in range(4, 9):
        items = list(range(n % 3 + 1))
        assert compiled(torch.ones(2), items, n)[1:] == program(torch.ones(2), items, n)[1:]


def test_a_number_over_one_that_only_data_tell_is_rounded_once() -> None:
    def program(x: torch.Tensor, n: int) -> tuple[object, ...]:
        a = x.sum().item()
        return x + 1, n / a, 3 / a, 0.1 / a, True / a, a / 3

    compiled, generator = capture(program), torch.Generator().manual_seed(0)
    for n in range(1, 40):
        x = torch.rand(1, dtype=torch.float64, generator=generator)
        assert compiled(x, n)[1:] == program(x, n)[1:]


class Real(float):
    """A number of a class of the program, without ways of its own."""


class Whole(int):
    """The same of whole ones."""


class Compared(float):
    def __eq__(self, other: object) -> bool:
        return float.__eq__(self, other)

    __hash__ = float.__hash__


class Calculating(int):
    def __add__(self, other: object) -> object:  # type: ignore[override]
        return "own", int.__add__(self, other)  # type: ignore[operator]

    def __radd__(self, other: object) -> object:  # type: ignore[override]
        return "own reflected", int.__radd__(self, other)  # type: ignore[operator]

    def __lt__(self, other: object) -> object:  # type: ignore[override]
        return "own", int.__lt__(self, other)  # type: ignore[operator]


class Named(enum.IntEnum):
    TWO = 2
    THREE = 3
    NINE = 9


DERIVED = (Real, Whole, Compared, Calculating, Named)
SYMBOLS = "== != < <= > >= + - * / // % ** & | ^ << >>".split()
OPERATIONS = [
    *(f"a {symbol} b" for symbol in SYMBOLS),
    *(f"b {symbol} a" for symbol in SYMBOLS),
    *(f"{kind}.{method}(T(a), b)" for method in METHODS for kind in ("int", "float")),
    *(f"b.{method}(T(a))" for method in METHODS),
    *(f"T(a) {symbol} T(a)" for symbol in SYMBOLS),
    *(f"T(a).{method}(b)" for method in METHODS),
]


@pytest.mark.parametrize("place", range(len(DERIVED)))
def test_numbers_of_the_programs_classes_know_numbers_that_change(place: int) -> None:
    kind = DERIVED[place]
    for operation in OPERATIONS[place :: len(DERIVED)]:
        names: dict[str, Callable[..., tuple[object, object]]] = {"T": kind}  # type: ignore[dict-item]
        exec(f"def program(x, a, b):\n    return x + 1, {operation}", names)
        plain = names["program"]
        for other in (int, float):
            compiled = capture(plain)  # type: ignore[arg-type]
            for mine, theirs in [(2, 2), (2, 9), (3, 3), (3, 5)]:
                given = torch.ones(1), kind(mine), other(theirs)
                assert seen(compiled, *given) == seen(plain, *given), (operation, other, mine, theirs)
