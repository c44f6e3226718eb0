"""Types and strides of results where a number stands before a tensor, or truths are counted with, as in eager."""

from __future__ import annotations

import pytest
import torch

import opmill

pytest.importorskip("opmill_kernel_gen_cpp")
ONE = {name: torch.full((), 2).to(getattr(torch, name)) for name in ("bfloat16", "float32", "int32", "uint8", "bool")}
CALLS = {
    "2.5 // x": lambda x: 2.5 // x,
    "7 // x": lambda x: 7 // x,
    "mul(2.5, x)": lambda x: torch.mul(2.5, x),
    "add(2, x)": lambda x: torch.add(2, x),
    "true_divide(True, x)": lambda x: torch.true_divide(True, x),
    "x ** True": lambda x: torch.pow(x, True),
    "xlogy(2, x)": lambda x: torch.xlogy(2, x),
    "ldexp": lambda x: torch.ldexp(torch.ones(2, dtype=torch.int32), x),
    "any": lambda x: torch.any(x.expand(2, 3, 4).permute(2, 0, 1), []),
}


@pytest.mark.parametrize("dtype", ONE)
@pytest.mark.parametrize("name", CALLS)
def test_a_result_has_eagers_type_strides_and_value(name: str, dtype: str) -> None:
    call, x = CALLS[name], ONE[dtype]
    try:
        expected = call(x)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)) as raised:
            opmill.compile(call)(x)
        assert str(raised.value) == str(error)
        return
    got = opmill.compile(call)(x)
    assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
    torch.testing.assert_close(got, expected, equal_nan=True)
