"""NumPy with sizes that data tell: masks, positions, what is there once. Each program is one graph for all data, also where nothing is left."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from array_outcomes import lie_alike, outcome, same

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy", minversion="2.0")


def floats(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.standard_normal(shape)


def integers(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(-5, 6, shape)


def counts(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(0, 4, shape)


def truths(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.random(shape) > 0.5


def with_gaps(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: np.where(rng.random(shape) > 0.7, np.nan, rng.standard_normal(shape))


def written(a: Any, b: Any, mask: Any) -> Any:
    a[mask] = b[mask] * 2
    a[~mask] += 1
    return a + 1


def rows_written(a: Any, mask: Any) -> Any:
    a[mask] = np.arange(3.0)
    a[mask, 0] = a[mask, 1] * 2
    return a


def suppressed(boxes: Any, scores: Any) -> Any:
    order, kept = np.argsort(-scores, kind="stable"), np.ones(len(scores), bool)
    for i in range(len(scores)):
        near = np.abs(boxes[order[i]] - boxes[order]).sum(-1) < 0.5
        near[: i + 1] = False
        kept[near & kept[i]] = False
    return order[kept]


WHOLE: dict[str, tuple[Any, ...]] = {
    "what a mask takes": (lambda a, m: (a[m], a[m].sum(), a[m] * 2, a[m].mean()), floats(4, 5), truths(4, 5)),
    "rows": (lambda a, m: (a[m] * 2, a[m, 0], a[m] @ a[m].T), floats(4, 5), truths(4)),
    "columns": (lambda a, m: (a[:, m] * 2, a[:, m] @ a[:, m].T), floats(5, 4), truths(4)),
    "of one row": (lambda a, m: a[m], floats(1, 5), truths(1, 5)),
    "a mask of what a mask takes": (lambda a: (lambda b: b[b < 1])(a[a > 0]), floats(9)),
    "how many": (lambda a: (len(a[a > 0]), a[a > 0].shape[0] / a.shape[0]), floats(9)),
    "the greatest": (lambda a: a[a > 0].max(), floats(7)),
    "the first": (lambda a: a[a > 0][0] + 1, floats(7)),
    "a few": (lambda a: np.sort(a[a > 0])[:2], floats(7)),
    "statistics": (lambda a: (a[a > 0].std(), np.median(a[a > 0]), np.cumsum(a[a > 0]), np.any(a[a > 0] > 1)), floats(7)),
    "quantiles": (lambda a: np.percentile(a[a > 0], 50), floats(7)),
    "forms": (lambda a: (a[a > 0].reshape(-1, 1) * np.ones(3), np.concatenate([a[a > 0], a[a <= 0]])), floats(7)),
    "neighbours": (lambda a: (np.diff(a[a > 0]), (lambda b: b[2:] - b[:-2])(np.flatnonzero(a))), floats(7)),
    "assigned": (written, floats(4, 5), floats(4, 5), truths(4, 5)),
    "rows assigned": (rows_written, floats(4, 3), truths(4)),
    "positions": (lambda a: (np.nonzero(a), a.nonzero(), np.flatnonzero(a) * 2, np.argwhere(a), np.where(a), a[np.where(a > 0)]), integers(3, 4)),
    "positions in a row": (lambda a: (np.where(a > 0)[0] + 1, a[np.nonzero(a > 0)]), floats(7)),
    "taken out": (lambda a: (np.extract(a > 0, a), np.compress(a[0] > 0, a[1])), floats(3, 4)),
    "once each": (lambda a: np.unique(a), integers(9)),
    "with all that is told": (lambda a: np.unique(a, return_index=True, return_inverse=True, return_counts=True), integers(3, 4)),
    "with gaps": (lambda a: (np.unique(np.round(a)), np.unique(np.round(a), return_counts=True)), with_gaps(9)),
    "sets": (lambda a, b: (np.union1d(a, b), np.intersect1d(a, b), np.setdiff1d(a, b), np.isin(a, b)), integers(5), integers(6)),
    "counted": (lambda t, w: (np.bincount(t), np.bincount(t, minlength=9), np.bincount(t, weights=w)), counts(9), floats(9)),
    "negative counts": (lambda t: np.bincount(t), integers(9)),
    "repeated": (lambda a, t: (np.repeat(a, t), a.repeat(t)), floats(5), counts(5)),
    "repeated less than never": (lambda a, t: np.repeat(a, t), floats(5), integers(5)),
    "the mean of each kind": (lambda a, t: np.stack([a[t == k].mean(axis=0) for k in range(3)]), floats(12, 2), counts(12)),
    "without outliers": (lambda a: a[np.abs(a - a.mean()) <= 2 * a.std()].mean(), floats(20)),
    "without gaps": (lambda a: a[~np.isnan(a).any(axis=1)], with_gaps(4, 3)),
    "grouped": (lambda t, v: (lambda u, i: np.bincount(i, weights=v, minlength=4))(*np.unique(t, return_inverse=True)), counts(12), floats(12)),
    "runs": (lambda t: np.diff(np.flatnonzero(np.concatenate(([True], t[1:] != t[:-1], [True])))), counts(12)),
    "peaks": (lambda a: np.flatnonzero((a[1:-1] > a[:-2]) & (a[1:-1] > a[2:])) + 1, floats(12)),
    "suppressed": (suppressed, floats(6, 2), floats(6)),
    "in order of appearance": (lambda a: a[np.sort(np.unique(a, return_index=True)[1])], integers(9)),
    "gaps left out": (lambda a: (np.nanmax(a), np.nanmin(a, axis=0), np.nanstd(a, axis=0), np.nanvar(a), np.nanmedian(a, axis=0)), with_gaps(4, 3)),
    "sums without gaps": (lambda a: (np.nanprod(a), np.nancumsum(a, axis=1), np.nancumprod(a), np.nanmedian(a)), with_gaps(4, 3)),
    "least squares": (lambda a, b: np.linalg.lstsq(a, b, rcond=None), floats(5, 3), floats(5, 2)),
    "least squares of few": (lambda a, b: np.linalg.lstsq(a, b)[0], floats(2, 3), floats(2)),
    "factors": (  # of columns that are not in each other's span: else which factors there are is each library's own
        lambda a: (np.linalg.qr(a + np.eye(4, 3)), np.linalg.qr(a + np.eye(4, 3), mode="r"), np.linalg.slogdet(a[:3])),
        floats(4, 3),
    ),
    "from one to the next": (lambda a: (np.add.reduceat(a, [0, 2, 5]), np.maximum.reduceat(a, [3, 1, 6])), floats(8)),
    "how large": (lambda a, b: np.zeros(np.broadcast(a, b).shape) + a, floats(3, 1), floats(4)),
    "in bins": (lambda a: np.histogram(a, bins=5, range=(-2, 2)), floats(30)),
    "alternatives": (lambda a: np.select([a < -1, a > 1], [a * 0, a * 2], default=a), floats(9)),
    "truths": (lambda a: (np.allclose(a, a + 1e-9), np.array_equal(a, a * 2), bool((a > 0).all())), floats(4)),
}  # fmt: skip


def calls(make: tuple[Any, ...]) -> list[list[Any]]:
    made = [[each(np.random.default_rng(seed)) for each in make] for seed in range(4)]
    return [*made, [np.zeros_like(a) for a in made[0]], [np.ones_like(a) for a in made[0]]]


def close(got: Any, want: Any) -> None:
    if want.size:
        lie_alike(got, want)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_graph_for_all_data(name: str) -> None:
    function, *make = WHOLE[name]
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    backend.sizes_of_data = True  # type: ignore[attr-defined]
    compiled = capture(function, backend, fullgraph=True)
    for args in calls(tuple(make)):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, args), close)
    assert len(graphs) == 1


#: Sizes that do not fit, and what NumPy alone decides: the graph ends.
ENDED: dict[str, tuple[Any, ...]] = {
    "two masks": (lambda a: a[a > 0] + a[a < 0], floats(6)),
    "too many values": (lambda a: a.__setitem__(a > 0, np.arange(3.0)), floats(6)),
    "one item or several": (lambda a: a[a > 0].squeeze(), floats(4)),
    "a mask that does not fit": (lambda a, m: a[m], floats(4), truths(5)),
    "gaps alone": (lambda a: np.nanargmax(a * np.nan), floats(4)),
    "catching": (lambda a: caught(a), floats(4)),
    "an order of one side": (lambda a: np.partition(a, 3)[3], floats(9)),
}  # fmt: skip


def caught(a: Any) -> Any:
    try:
        return a[a > 5].max()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", ENDED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::opmill_bytecode_frontend.errors.CaptureWarning")
def test_others_do_the_same_without(name: str) -> None:
    function, *make = ENDED[name]
    compiled = capture(function, "eager")
    for args in calls(tuple(make)):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, args), close)
