"""Functions that leave out what is not a number, against NumPy: axes, kept dimensions, slices without any number, whole numbers, and
arrays without dimensions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy", minversion="2.0")
pytest.importorskip("torch")

from array_outcomes import same  # noqa: E402 - it needs NumPy

FUNCTIONS = "nanmax nanmin nanprod nansum nanmean nanvar nanstd nanmedian nancumsum nancumprod".split()


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    gaps = rng.standard_normal((3, 4, 5))
    gaps[rng.random(gaps.shape) < 0.3] = np.nan
    empty_row = gaps.copy()
    empty_row[1] = np.nan
    return {
        "gaps": gaps,
        "a row of nothing": empty_row,
        "float32": gaps.astype(np.float32),
        "transposed": gaps.T,
        "whole numbers": rng.integers(-5, 5, (3, 4, 5)),
        "without dimensions": np.float64(2.5),
        "one": np.array([np.nan]),
        "infinite": np.array([[np.inf, np.nan, 1.0], [-np.inf, np.nan, np.nan]]),
    }


ARGUMENTS: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": -1}, {"axis": (0, 2)}, {"axis": 1, "keepdims": True}, {"axis": 0, "ddof": 1}]


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("array", arrays())
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_numpy(name: str, array: str, arguments: dict[str, Any]) -> None:
    a = arrays()[array]

    def program(a: Any) -> Any:
        return getattr(np, name)(a, **arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = program(a)
        except Exception as error:
            with pytest.raises(type(error)) as raised:
                capture(program, "eager")(a)
            assert str(raised.value) == str(error)
            return
        same(capture(program, "eager")(a), want, close)
