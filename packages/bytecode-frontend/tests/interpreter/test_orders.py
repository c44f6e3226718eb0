"""Sorting, searching and what takes items by positions, against NumPy: axes, equal items, what is no number, empty arrays."""

import pytest

np = pytest.importorskip("numpy", minversion="2.0")
pytest.importorskip("torch")

from array_outcomes import as_numpy  # noqa: E402 - it needs NumPy

RNG = np.random.default_rng(0)
ROW, TABLE, WHOLE = RNG.standard_normal(9), RNG.standard_normal((4, 5)), RNG.integers(-3, 4, (4, 5))
GAPS = np.where(RNG.random((4, 5)) < 0.2, np.nan, TABLE)
LINE = np.sort(ROW)

PROGRAMS = {
    "sort": lambda: [np.sort(a, axis) for a in (TABLE, WHOLE, GAPS, TABLE.T) for axis in (-1, 0, None)],
    "sort of nothing": lambda: np.sort(np.zeros((0, 3))),
    "argsort": lambda: [np.argsort(a, axis, kind="stable") for a in (TABLE, WHOLE, GAPS) for axis in (-1, 0)],
    "lexsort": lambda: np.lexsort((WHOLE[0], WHOLE[1])),
    "searchsorted": lambda: [np.searchsorted(LINE, v, side) for v in (ROW, TABLE, 0.5) for side in ("left", "right")],
    "median": lambda: [np.median(a, axis, keepdims=kept) for a in (TABLE, WHOLE, GAPS) for axis in (None, 0, 1) for kept in (False, True)],
    "quantile": lambda: [np.quantile(TABLE, q, axis) for q in (0.25, 0.5, 1.0) for axis in (None, 0, 1)],
    "quantiles": lambda: (np.quantile(TABLE, [0.1, 0.9]), np.quantile(TABLE, np.array([0.1, 0.9]), 1, keepdims=True)),
    "percentile": lambda: (np.percentile(TABLE, 30), np.percentile(TABLE, [0, 50, 100], 0)),
    "repeat": lambda: (np.repeat(TABLE, 2), np.repeat(TABLE, 3, 0), np.repeat(TABLE, 0, 1)),
    "pad": lambda: (np.pad(TABLE, 1), np.pad(TABLE, ((1, 2), (0, 3)), constant_values=2.0), np.pad(WHOLE, (2, 1), mode="edge")),
    "interp": lambda: (np.interp(ROW, LINE, ROW), np.interp(TABLE, LINE, ROW), np.interp([-9.0, 9.0], LINE, ROW)),
    "convolve": lambda: [np.convolve(ROW, TABLE[0], mode) for mode in ("full", "same", "valid")],
    "correlate": lambda: [np.correlate(ROW, TABLE[0], mode) for mode in ("full", "same", "valid")],
    "compress": lambda: (np.compress([True, False, True], TABLE, 0), np.compress([False, True], ROW)),
    "unravel_index": lambda: np.unravel_index(np.array([3, 7, 19]), (4, 5)),
    "windows": lambda: np.lib.stride_tricks.sliding_window_view(TABLE, (2, 3)) + 1,
    "windows along an axis": lambda: np.lib.stride_tricks.sliding_window_view(TABLE, 3, axis=1) * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name):
    as_numpy(PROGRAMS[name])
