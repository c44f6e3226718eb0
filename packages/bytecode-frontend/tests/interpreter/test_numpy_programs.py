"""Programs of NumPy as people write them: sorting, computed positions, writes into arguments, integers, windows. Each is one graph, and does
what it does without; those that end the graph do the same, too."""

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


def singles(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def integers(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(-5, 6, shape)


def truths(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.random(shape) > 0.5


def then(*steps: Any) -> Any:
    """The last of some expressions."""
    return steps[-1]


def in_place(a: Any, b: Any) -> Any:
    np.add(a, b, out=a)
    np.multiply(a, 2, out=b, where=a > 0)
    a[a < -1] = 0
    a[[0, 3]] = [5.0, 6.0]
    a[::2][b[::2] > 0] = b.max()
    a.sort()
    return a - b


def added(a: Any, i: Any) -> Any:
    np.add.at(a, np.abs(i), 1.5)
    np.subtract.at(a, (i,), 0.5)
    np.maximum.at(a, i, 0.25)
    np.minimum.at(a, [0, 0, 1], [3.0, -3.0, 0.125])
    return a


def written(a: Any) -> Any:
    np.copyto(a, 5.0, where=a > 1)
    np.putmask(a, a < -1, -1.0)
    np.place(a, a == 5, [4.0])
    np.put(a[0], [0, 2], [9.0, 8.0])
    np.fill_diagonal(a, 3.0)
    a[1].fill(2)
    return a * 2


WHOLE: dict[str, tuple[Any, ...]] = {
    "a stable order": (lambda a: np.take_along_axis(a, np.argsort(a, axis=1, kind="stable"), axis=1), integers(3, 6)),
    "an order by several keys": (lambda a, b: np.lexsort((a, b)), integers(8), integers(8)),
    "sorted in place": (lambda a: then(a.sort(axis=0), a * 2), floats(3, 4)),
    "quantiles": (lambda a: (np.percentile(a, [25, 50, 90]), np.quantile(a, 0.3, axis=0, keepdims=True)), floats(6, 3)),
    "places among edges": (lambda a: (np.digitize(a, np.array([-1.0, 0.0, 1.0])), np.digitize(a, [1.0, 0.0, -1.0], right=True)), floats(9)),
    "rows and columns": (lambda a: (a[[0, 2], [1, 3]], a[:, [2, 0, 1]], a[[0, 1], 2], a[1, [0, 1]]), floats(4, 5)),
    "three dimensions": (lambda a: (a[0, :, [1, 2]], a[[0, 1], :, [1, 2]], a[:, [1, 2], 0], a[..., [0, 0]], a[None, [1], 1:]), floats(2, 4, 5)),
    "a grid of positions": (lambda a, i: (a[np.ix_([0, 2], [1, 3])], a[i, [0, 1, 2]], a[i[:, None], i]), floats(7, 7), lambda r: r.integers(-4, 4, 3)),
    "assigned to a grid": (lambda a: then(a.__setitem__(([0, 2], [1, 1]), 5.0), a.__setitem__((1, [2, 0]), 0), a * 2), floats(4, 5)),
    "assigned where a mask is": (lambda a, m: then(a.__setitem__(m, 0), a.__setitem__(m[:, 0], a[0]), a + 1), floats(4, 5), truths(4, 5)),
    "in place": (in_place, floats(6), floats(6)),
    "added at positions": (added, floats(9), integers(7)),
    "added to a table": (lambda a, i: then(np.add.at(a, (np.abs(i), [0, 1, 2]), [1, 2, 3]), a), integers(6, 3), integers(3)),
    "written to": (written, floats(4, 4)),
    "integers by numbers": (lambda a: (a // 3, a % 3, a // -2, a % -3, divmod(a, 4), a**2, a**3, a << 2, a >> 1, -a // 2), integers(9)),
    "small integers by numbers": (lambda a: (a // 3, a % 7, a**5, a << 3, a >> 2), lambda r: r.integers(0, 256, 9).astype(np.uint8)),
    "a remainder of floats": (lambda a: (divmod(a, 0.3), np.divmod(a, -2)), floats(9)),
    "into an integer": (lambda a: then(a.__ifloordiv__(2), a.__imod__(3), a), integers(9)),
    "singular values": (lambda a: (np.linalg.svd(a, compute_uv=False), np.linalg.svdvals(a), np.linalg.pinv(a)), floats(4, 3)),
    "a planned product": (lambda a, b: np.einsum("bij,bkj->bik", a, b, optimize=True), floats(2, 3, 4), floats(2, 5, 4)),
    "padded": (lambda a: [np.pad(a, ((1, 2), (0, 3)), mode=mode) for mode in ("edge", "reflect", "symmetric", "wrap")], floats(4, 5)),
    "repeated": (lambda a: (np.repeat(a, [1, 0, 3], axis=0), np.repeat(a, np.array([2]), axis=1), np.tile(a, (2, 1))), floats(3, 4)),
    "accumulated": (lambda a: (np.maximum.accumulate(a, axis=1), np.minimum.accumulate(a), np.add.accumulate(a), np.logaddexp.reduce(a)), floats(3, 4)),
    "pairs": (lambda a, b: (np.multiply.outer(a, b), np.subtract.outer(b, a[0])), floats(3, 4), floats(2)),
    "covariances": (lambda a: (np.cov(a), np.corrcoef(a), np.average(a, axis=0, weights=[1, 2, 3])), floats(3, 4)),
    "between points": (lambda a: (np.interp(a, [-1.0, 0.0, 1.0], [0.0, 5.0, 6.0]), np.interp(a, [0.0, 1.0], [2.0, 3.0], left=-1, right=9)), floats(9)),
    "convolved": (lambda a, b: [f(a, b, mode) for f in (np.convolve, np.correlate) for mode in ("same", "full", "valid")], floats(9), floats(4)),
    "windows": (lambda a: np.lib.stride_tricks.sliding_window_view(a, 3).mean(-1), floats(9)),
    "bits": (lambda a: (a.view(np.int32) & 0x7FFFFFFF, a.view(np.int32).view(np.float32)), singles(6)),
    "roots": (lambda a: (np.cbrt(a), np.heaviside(a, 0.5), np.fix(a * 3)), floats(9)),
    "limits": (lambda a: (a * np.finfo(a.dtype).eps, np.iinfo(np.int32).max + a), singles(3)),
    "left out and put in": (lambda a: (np.delete(a, 1, axis=0), np.insert(a, 1, 9.0, axis=1), np.append(a, a[:1], axis=0)), floats(3, 4)),
    "blocks": (lambda a, b: np.block([[a, b], [b, a]]), floats(2, 2), floats(2, 2)),
    "chosen": (lambda a: (np.compress([True, False, True], a, axis=0), np.unravel_index(a.argmax(), a.shape)), floats(3, 4)),
    "turned": (lambda a: np.rot90(a) + np.rot90(a, -1) * 2, floats(4, 4)),
    "a known array decides": (lambda a: a * 2 if np.array([1, 2, 3]).sum() > 5 else a, floats(3)),
}  # fmt: skip


def calls(make: tuple[Any, ...]) -> list[list[Any]]:
    return [[each(np.random.default_rng(seed)) for each in make] for seed in range(3)]


def close(got: Any, want: Any) -> None:
    lie_alike(got, want)
    np.testing.assert_allclose(got, want, rtol=2e-6 if want.dtype == np.float32 else 1e-11, atol=1e-12)


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_that_does_the_same(name: str) -> None:
    function, *make = WHOLE[name]
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(function, backend, fullgraph=True)
    for args in calls(tuple(make)):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, args), close)
    assert graphs


#: What torch computes in another way, or only data tell: the graph ends, and nothing is guessed.
ENDED: dict[str, tuple[Any, ...]] = {
    "which items": (lambda a: (a[a > 0], np.where(a > 0), a.nonzero(), np.flatnonzero(a)), integers(4, 5)),
    "an order that is not stable": (lambda a: np.argsort(a), floats(9)),
    "integers by zero": (lambda a, b: (a // b, a % b, a // 0, a % 0), integers(9), integers(9)),
    "the lowest integer": (lambda a: (a // -1, a % -1), lambda r: np.array([-128, 127, 0, 5], np.int8)),
    "negative powers": (lambda a: a**-1, integers(4)),
    "far shifts": (lambda a: (a << 70, a >> 70, a << -1), integers(4)),
    "one position twice": (lambda a, v: then(a.__setitem__([0, 0, 1], v), a.__setitem__(([0, -3],), v[:2]), a), floats(3), floats(3)),
    "values for a mask": (lambda a: then(a.__setitem__(a > 0, a[a > 0] * 2), a), floats(9)),
    "positions outside": (lambda a, i: then(a.__setitem__(i * 5, 1.0), a), floats(4), lambda r: np.array([0, 3])),
    "adding outside": (lambda a, i: then(np.add.at(a, i * 5, 1.0), a), floats(4), lambda r: np.array([0, 3])),
    "the greatest outside": (lambda a, i: then(np.maximum.at(a, i * 5, 1.0), a), floats(4), lambda r: np.array([0, 3])),
    "a cast that is refused": (lambda a: then(np.add.at(a, [0], 1.5), a), integers(4)),
    "masked arrays": (lambda a: np.ma.masked_less(a, 0).filled(9.0) + 1, floats(6)),
    "a class of arrays": (lambda a: type(a.view(np.ma.MaskedArray)).__name__, floats(6)),
    "quantiles outside": (lambda a: np.quantile(a, 1.5), floats(6)),
    "several for places": (lambda a: then(np.place(a, a > 0, [1.0, 2.0]), a), floats(6)),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_others_do_the_same_without(name: str) -> None:
    function, *make = ENDED[name]
    compiled = capture(function, "eager")
    for args in calls(tuple(make)):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, args), close)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integers_by_numbers_of_the_program(dtype: str) -> None:
    limits = np.iinfo(dtype)
    given = np.array([limits.min, limits.min + 1, 0, 1, 7, limits.max - 1, limits.max], dtype)
    for number in (1, 2, 3, 7, 100, *([-2, -7] if limits.min else [])):
        for name in ("__floordiv__", "__mod__", "__pow__", "__lshift__", "__rshift__"):
            if (name == "__pow__" and number < 0) or ("shift" in name and not 0 <= number < limits.bits):
                continue
            function = lambda a, name=name, number=number: getattr(a, name)(number)  # noqa: E731
            same(capture(function, "eager", fullgraph=True)(given.copy()), function(given), close)
