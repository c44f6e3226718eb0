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
