"""Programs of NumPy as scientists write them (`numpy_sciences`, `numpy_studies`, `numpy_idioms`): each is one graph, but for those that data steer, or whose
arrays tensors cannot hold, and does what it does without."""

from __future__ import annotations

import copy
from typing import Any

import numpy_idioms as numpy_idioms
import numpy_sciences as numpy_sciences
import numpy_studies as numpy_studies
import pytest
import torch
from array_outcomes import lie_alike, outcome, same
from numpy_programs import ENDED, PROGRAMS, Maker

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.library.numpy.kernel import function_of, operator
from opmill_bytecode_frontend.library.numpy.writing import WRITING

np = pytest.importorskip("numpy", minversion="2.0")


def calls(make: tuple[Maker, ...]) -> list[list[Any]]:
    return [[each(np.random.default_rng(seed + 10 * k)) for k, each in enumerate(make)] for seed in range(3)]


def close(got: Any, want: Any) -> None:
    if want.size:
        lie_alike(got, want)
    np.testing.assert_allclose(got, want, rtol=2e-6 if want.dtype == np.float32 else 1e-9, atol=1e-10)


def backend(gm: Any, inputs: Any) -> Any:
    return gm.forward


backend.sizes_of_data = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_graph_that_does_the_same(name: str) -> None:
    function, make = PROGRAMS[name]
    compiled = capture(function, backend, fullgraph=True)
    for args in calls(make):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, copy.deepcopy(args)), close)


@pytest.mark.parametrize("name", ENDED)
@pytest.mark.filterwarnings("ignore")
def test_others_do_the_same(name: str) -> None:
    function, make = ENDED[name]
    compiled = capture(function, backend)
    for args in calls(make):
        same(outcome(compiled, copy.deepcopy(args)), outcome(function, copy.deepcopy(args)), close)


def whole(function: Any) -> Any:
    return capture(function, backend, fullgraph=True)


def test_where_and_initial_of_extremes() -> None:
    """``initial`` was left out of methods."""
    a = np.array([1.0, -2.0, 3.0])
    for function in (
        lambda a: (a.max(initial=5.0), a.min(initial=-9.0), np.max(a, initial=7.0)),
        lambda a: (a.max(where=a < 2, initial=-1.0), a.sum(where=a > 0), a.any(where=a < -5)),
        lambda a: (a.sort(), a.sum().max(initial=9.0), np.median(a).min(initial=-9.0)),
    ):
        same(outcome(whole(function), [a]), outcome(function, [a]), close)


def test_views_that_leave_show_the_memory() -> None:
    def run(x: Any) -> Any:
        made = np.sort(x)
        return made, made[::-1], x[::-2], x.reshape(2, 3)[:, ::-1], np.broadcast_to(x[:1], (2, 1))

    x = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    made, backwards, steps, turned, spread = whole(run)(x)
    made[0], x[5], x[0] = 7.0, 8.0, 9.0
    assert backwards[-1] == 7.0 and steps[0] == 8.0 and spread[1, 0] == 9.0 and not spread.flags.writeable
    backwards[0], steps[1], turned[0, 2] = -1.0, -2.0, -3.0
    assert (made[-1], x[3], x[0]) == (-1.0, -2.0, -3.0)


PARTS = ["::-1", "1::-2", ":", "1:", "...", "None", "0", "-1", "::2", "2:0:-1"]


@pytest.mark.parametrize("seed", range(12))
def test_slices_that_go_backwards_beside_other_parts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(6):
        parts = [PARTS[k] for k in rng.integers(0, len(PARTS), rng.integers(1, 5))]
        if parts.count("...") > 1 or sum(part not in ("None", "...") for part in parts) > 3:
            continue
        names: dict[str, Any] = {}
        exec(f"def run(x):\n    y = x[{', '.join(parts)}]\n    return y, y * 2, y.sum()", names)
        x = np.arange(60.0).reshape(3, 4, 5)
        same(outcome(whole(names["run"]), [x.copy()]), outcome(names["run"], [x.copy()]), close)
        view = whole(names["run"])(x)[0]
        assert not isinstance(view, np.ndarray) or np.shares_memory(view, x)


def test_a_view_shows_what_is_written_after_it() -> None:
    def run(x: Any) -> Any:
        view = x[::-1]
        x[0] = 5.0
        return view

    same(outcome(whole(run), [np.arange(4.0)]), outcome(run, [np.arange(4.0)]), close)


def test_what_data_make_numpy_raise() -> None:
    def power(a: Any, b: Any) -> Any:
        return a**b + 1

    def values(a: Any) -> Any:
        return np.linalg.eigh(a * 2)[0]

    def caught(a: Any, b: Any) -> Any:
        try:
            return a**b
        except ValueError as error:
            return str(error)

    def codes(a: Any, b: Any) -> Any:
        return np.ravel_multi_index((a, b), (3, 3))

    a, b = np.array([2, 3]), np.array([1, -2])
    for function, args in ((power, (a, b)), (values, (np.full((2, 2), np.nan),)), (caught, (a, b)), (codes, (a, a))):
        compiled = capture(function, backend)
        compiled(*[np.ones_like(each) for each in args])
        same(outcome(compiled, list(args)), outcome(function, list(args)), close)


def test_checks_of_numpy() -> None:
    def run(a: Any, b: Any) -> Any:
        np.testing.assert_allclose(a, b, rtol=1e-3)
        return a * 2

    compiled = whole(run)
    a = np.arange(3.0)
    same(outcome(compiled, [a, a + 1e-5]), outcome(run, [a, a + 1e-5]), close)
    same(outcome(compiled, [a, a + 1]), outcome(run, [a, a + 1]), close)


def test_generators_with_seeds() -> None:
    def run(x: Any, seed: int = 3) -> Any:
        rng = np.random.default_rng(seed)
        old = np.random.RandomState(seed)
        rows = np.outer(x, x)
        rng.shuffle(rows)
        old.shuffle(x)
        return rows, x, rng.permutation(x), rng.normal(size=2) * x[:2], rng.integers(9), old.rand(3), old.choice(5, 2), rng

    compiled = whole(run)
    for x in (np.arange(5.0), np.arange(5.0), np.arange(7.0), np.arange(9.0)):
        got, want = compiled(x.copy()), run(x.copy())
        same(list(got[:-1]), list(want[:-1]), close)
        assert got[-1].random() == want[-1].random()


def test_a_generator_goes_on_after_a_break() -> None:
    def run(x: Any) -> Any:
        rng = np.random.default_rng(0)
        first = rng.random(3) * x
        return first + 1 if first.sum() > 0.5 else first, rng.random(3) * x

    same(outcome(capture(run, backend), [np.ones(3)]), outcome(run, [np.ones(3)]), close)


def test_shapes_assigned_and_items_in_a_row() -> None:
    def run(x: Any) -> Any:
        y = x * 2
        y.shape = (2, -1)
        shape = np.ones(2, dtype=int)
        shape[0] = -1
        z = x + 1
        z.shape = shape
        y.flat[3] = 9.0
        return y, z, [v + 1 for v in y.T.flat], y.flat[1:3], len(y.flat)

    same(outcome(whole(run), [np.arange(6.0)]), outcome(run, [np.arange(6.0)]), close)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_integers_by_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    a = np.array([limits.min, limits.min + 1, 0, 1, 7, limits.max - 1, limits.max], dtype)
    b = np.array([0, 1, 2, 3, limits.max] + ([-1, -2] if limits.min else []), dtype)

    def run(a: Any, b: Any) -> Any:
        a = a[:, None]
        return a // b, a % b, np.fmod(a, b), a << b, a >> b, np.gcd(a, b), np.divmod(a, b)

    same(outcome(whole(run), [a, b]), outcome(run, [a, b]), close)


@pytest.mark.parametrize(
    "name", ["fromfile", ".tofile", "load", "!save", "lib.npyio.load", "testing.measure", "add.reduce.__call__", "os.system"]
)
def test_what_is_no_step_is_not_called(name: str) -> None:
    with pytest.raises(ValueError, match=r"numpy\.\S+ is no step of a graph"):
        operator()(name, [torch.ones(2)], '[["there"], {"named": {}}]', [2], "float64:1")


def test_all_that_writes_may_be_a_step() -> None:
    for name in WRITING:
        assert callable(function_of(name))
