"""Numbers of NumPy as operands of tensors: as in eager, whatever their class, on both sides, known by value or given."""

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture

np = pytest.importorskip("numpy")
CLASSES = "bool_ int8 int64 uint8 float16 float32 float64 longdouble complex64 complex128".split()
OPERATORS = (operator.eq, operator.ne, operator.lt, operator.ge, operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
TENSORS = (torch.bool, torch.int32, torch.float16, torch.float32, torch.complex64)


def seen(function: Callable[..., Any], *given: object) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = function(*given)[1]
    except Exception as error:
        return type(error), str(error)
    return (type(found), found.dtype, repr(found.tolist())) if isinstance(found, torch.Tensor) else (type(found), repr(found))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("operation", OPERATORS)
@pytest.mark.parametrize("turned", [False, True])
def test_an_operator_of_a_tensor_and_a_number_of_numpys(name: str, operation: Callable[..., Any], turned: bool) -> None:
    kind = getattr(np, name)

    def given(x: torch.Tensor, number: Any) -> object:
        return 1, operation(number, x) if turned else operation(x, number)

    def made(x: torch.Tensor) -> object:
        number = kind(1)
        return 1, operation(number, x) if turned else operation(x, number)

    for dtype in TENSORS:
        x = torch.tensor([0, 1, 2]).to(dtype)
        assert seen(capture(made), x) == seen(made, x), dtype
        compiled = capture(given)
        for value in (1, 0, 1):
            assert seen(compiled, x, kind(value)) == seen(given, x, kind(value)), (dtype, value)


REFUSING: dict[str, Callable[[torch.Tensor, Any], object]] = {
    "split": lambda x, n: x.split(n),
    "split by name": lambda x, n: x.split(split_size=n),
    "torch.split": lambda x, n: torch.split(x, n),
    "split in a list": lambda x, n: x.split([n, n]),
    "chunk": lambda x, n: x.chunk(n),
    "item": lambda x, n: x.__setitem__(0, n),
    "item of the class": lambda x, n: torch.Tensor.__setitem__(x, 0, n),
    "part": lambda x, n: x.__setitem__(slice(0, 2), n),
}


@pytest.mark.parametrize("name", [*CLASSES, "int32", "uint16"])
@pytest.mark.parametrize("method", REFUSING)
def test_methods_that_refuse_some_numbers(name: str, method: str) -> None:
    def program(x: torch.Tensor) -> object:
        found = REFUSING[method](x, getattr(np, name)(1))
        return 1, x if found is None else repr(found)

    expected, compiled = (seen(function, torch.arange(2.0)) for function in (program, capture(program)))
    assert compiled == expected
