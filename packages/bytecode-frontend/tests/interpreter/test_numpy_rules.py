"""Programs of torch for NumPy's functions against NumPy: over dtypes, special values, broadcasts, arrays without dimensions and without
items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.library.numpy.rules import UFUNCS
from opmill_bytecode_frontend.values.arrays import DTYPES, is_computed_with, torch_dtype

np = pytest.importorskip("numpy", minversion="2.0")

SPECIAL = {
    "b": [True, False, True],
    "i": [0, 1, -1, 7, -8, 100, -100, 127, -128, 3],
    "u": [0, 1, 2, 7, 200, 255, 128, 3],
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-3, 100.0, float("inf"), float("-inf"), float("nan"), 2.0, -7.25],
    "c": [0j, 1 + 0j, -1j, 2 - 3j, complex("inf"), complex("nan"), 0.5 + 0.5j],
}


def values(name: str) -> Any:
    dtype = np.dtype(name)
    return np.array(SPECIAL[dtype.kind], dtype)


def operands(function: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """Arguments of a universal function: all pairs of special values, and other forms."""
    x = values(name)
    if function.nin == 1:
        yield from ((x,), (x[:0],), (x[:6].reshape(2, 3) if x.size >= 6 else x,))
        return
    yield np.repeat(x, x.size), np.tile(x, x.size)
    yield x[:0], x[:1]
    yield x[:3, None], x[None, :2]


#: Which of 0.0 and -0.0 is greater is not said: vectors and remainders of NumPy disagree; the sign of zeros of expm1 differs between versions.
WITHOUT_SIGNS = ("maximum", "minimum", "fmax", "fmin", "expm1")


def same(got: Any, want: Any, signs: bool = True) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    tolerance = {2: 2e-3, 4: 2e-6, 8: 1e-12 if want.dtype.kind == "f" else 2e-6, 16: 1e-12}[want.dtype.itemsize]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 1e-3)
    if want.dtype.kind == "f" and signs:
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[numbers & (want == 0)], np.signbit(want)[numbers & (want == 0)])


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_universal_function(name: str) -> None:
    function, (rule, kinds) = getattr(np, name), UFUNCS[name]
    checked = 0
    for dtype in DTYPES:
        for given in operands(function, dtype):
            try:
                want = function(*given)
            except (TypeError, ValueError):
                continue
            loop = function.resolve_dtypes((*(each.dtype for each in given), None))[: function.nin]
            if any(each.kind not in kinds or not is_computed_with(each) for each in loop):
                continue
            got = rule(*[torch.from_numpy(each.copy()).to(torch_dtype(d)) for each, d in zip(given, loop, strict=True)])
            try:
                same(got.numpy(), want, name not in WITHOUT_SIGNS)
            except AssertionError as error:
                raise AssertionError(f"{name} of {dtype}: {error}") from None
            checked += 1
    assert checked


#: Functions of one array, with an axis.
OF_AXES = "sum prod mean var std max min ptp any all argmax argmin median cumsum cumprod nansum nanmean count_nonzero sort flip".split()
ARRAYS = [(3, 4), (2, 3, 2), (5,), (1, 4), (0, 3), (3, 1)]


@pytest.mark.parametrize("name", OF_AXES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::opmill_bytecode_frontend.errors.CaptureWarning")
def test_function_of_an_axis(name: str) -> None:
    """Whole or with a break: what comes out is NumPy's."""
    function = getattr(np, name)
    random = np.random.RandomState(len(name))
    for shape in ARRAYS:
        for dtype in ("float64", "float32", "int64", "uint8", "bool"):
            given = (random.randint(0, 7, shape) - 2).astype(dtype)
            if dtype[0] == "f" and given.size > 3:
                given.flat[2] = np.nan
            for axis in (None, 0, -1):
                if name == "flip" and axis is None:
                    continue
                try:
                    want = function(given, axis=axis)
                except (TypeError, ValueError):
                    continue

                def program(a: Any, function: Any = function, axis: Any = axis) -> Any:
                    return function(a, axis=axis) + 0 if function is np.flip else function(a, axis=axis)

                got = capture(program, "eager")(given.copy())
                assert type(got) is type(want)
                try:
                    same(got, want + 0 if name == "flip" and dtype != "bool" else program(given))
                except AssertionError as error:
                    raise AssertionError(f"{name} of {dtype}{shape} along {axis}: {error}") from None
