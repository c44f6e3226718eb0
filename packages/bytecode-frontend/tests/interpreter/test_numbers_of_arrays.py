"""What NumPy's functions, subscripts and Python do with a number that captured code computed or was given: each call has its own."""

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend import capture

X = np.arange(12.0).reshape(3, 4)
GIVEN = ([1, 0], [2, 1], [3, -1], [2, 0], [1, 1])


def assigned(k):
    y = X.copy()
    y[k] = 5
    return y


def slice_assigned(k):
    y = X.copy()
    y[:, k:] = 5
    return y


def rows_of(k):
    found = []
    for n in range(4):
        found.append(np.arange(n)[k:])
    return found


TAKING = {
    "repeat": lambda k: np.repeat(X, k),
    "repeat0": lambda k: np.repeat(X, k, axis=0),
    "roll": lambda k: np.roll(X, k),
    "roll1": lambda k: np.roll(X, k, axis=1),
    "tile": lambda k: np.tile(X, k),
    "tile2": lambda k: np.tile(X, (k, 1)),
    "arange": lambda k: np.arange(k),
    "arange2": lambda k: np.arange(0, k, 1),
    "zeros": lambda k: np.zeros(k),
    "zeros2": lambda k: np.zeros((k, 2)),
    "ones": lambda k: np.ones((2, k)),
    "full": lambda k: np.full(k, 2.0),
    "full2": lambda k: np.full(3, k),
    "eye": lambda k: np.eye(k),
    "linspace": lambda k: np.linspace(0, 1, k),
    "linspace2": lambda k: np.linspace(0, k, 5),
    "reshape": lambda k: X.reshape(-1, k),
    "split": lambda k: np.split(X.ravel(), k),
    "array_split": lambda k: np.array_split(X.ravel(), k),
    "sumaxis": lambda k: X[:, :3].sum(axis=k - 1),
    "expand": lambda k: np.expand_dims(X, k - 1),
    "swap": lambda k: np.swapaxes(X, 0, k - 1),
    "take": lambda k: np.take(X, k),
    "take1": lambda k: np.take(X, k, axis=1),
    "diag": lambda k: np.diag(X, k),
    "diagonal": lambda k: np.diagonal(X, k),
    "tril": lambda k: np.tril(X, k),
    "triu": lambda k: np.triu(X, k),
    "trace": lambda k: np.trace(X, k),
    "diff": lambda k: np.diff(X, k),
    "pad": lambda k: np.pad(X, k),
    "clip": lambda k: np.clip(X, k, k + 3),
    "rot90": lambda k: np.rot90(X, k),
    "power": lambda k: X**k,
    "percentile": lambda k: np.percentile(X, k),
    "quantile": lambda k: np.quantile(X, k / 4),
    "round": lambda k: np.round(X / 7, k),
    "var": lambda k: X.var(ddof=k),
    "insert": lambda k: np.insert(X.ravel(), k, 9.0),
    "delete": lambda k: np.delete(X.ravel(), k),
    "idx": lambda k: X[k],
    "idx2": lambda k: X[k - 1, k],
    "idxn": lambda k: X[..., k],
    "sl": lambda k: X[:, k:],
    "slneg": lambda k: X[::-k],
    "where": lambda k: np.where(X > k, X, 0.0),
    "moveaxis": lambda k: np.moveaxis(X, 0, k - 1),
    "partition": lambda k: np.partition(X.ravel(), k),
    "setit": lambda k: assigned(k),
    "setsl": lambda k: slice_assigned(k),
    "concat": lambda k: np.concatenate([X.ravel()[:2], [k]]),
    "stack": lambda k: np.stack([k, k]),
    "array": lambda k: np.array([k, 1]),
    "tensorX": lambda k: torch.arange(10)[k:],
    "torchz": lambda k: torch.zeros(k),
    "list": lambda k: [1, 2, 3, 4][k],
    "listsl": lambda k: [1, 2, 3, 4][k:],
    "strm": lambda k: "ab" * k,
    "range": lambda k: list(range(k)),
    "fmt": lambda k: f"{k}",
    "dictk": lambda k: {1: "a", 2: "b", 3: "c"}[k],
    "if": lambda k: "y" if k > 1 else "n",
    "hash": lambda k: hash(k),
    "int": lambda k: int(k),
    "float": lambda k: float(k),
    "shift": lambda k: 1 << k,
    "ravel_idx": lambda k: np.ravel_multi_index((k - 1, k), (3, 4)),
    "unravel": lambda k: np.unravel_index(k, (3, 4)),
    "broadcast": lambda k: np.broadcast_to(X[:1, :1], (k, 4)),
    "resize": lambda k: np.resize(X, (k, 2)),
    "bincount": lambda k: np.bincount(np.array([1, 2]), minlength=k),
    "vander": lambda k: np.vander(np.array([1.0, 2.0]), k),
    "tri": lambda k: np.tri(k),
    "identity": lambda k: np.identity(k),
    "kron": lambda k: np.kron(X, k),
    "argpart": lambda k: np.argpartition(X.ravel(), k).shape,
    "histogram": lambda k: np.histogram(X, k),
    "matpow": lambda k: np.linalg.matrix_power(X[:3, :3], k),
    "norm": lambda k: np.linalg.norm(X[0], k),
    "fft": lambda k: np.fft.fft(X[0], k),
    "cumsum": lambda k: np.cumsum(X, axis=k - 1),
    "sort": lambda k: np.sort(X, axis=k - 1),
    "interp": lambda k: np.interp(k, [0, 5], [0, 1]),
    "digitize": lambda k: np.digitize(k, [0, 2, 5]),
    "searchsorted": lambda k: np.searchsorted([0, 2, 5], k),
    "meshgrid": lambda k: np.meshgrid(np.arange(k), np.arange(2)),
    "isclose": lambda k: np.isclose(k, 2),
    "random": lambda k: np.random.default_rng(0).random(k),
    "item": lambda k: k.item(),
    "tolist": lambda k: k.tolist(),
    "mod": lambda k: divmod(7, k),
    "rows": rows_of,
}


def outcome(function, values):
    try:
        return str(function(np.array(values)))
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["sum", "item"])
@pytest.mark.parametrize("name", TAKING)
def test_a_number_that_data_tell_is_that_of_each_call(name, how):
    taking = TAKING[name]

    def program(a):
        k = a.sum() if how == "sum" else a[0]
        return taking(k), k

    compiled = capture(program, "eager")
    assert [outcome(compiled, each) for each in GIVEN] == [outcome(program, each) for each in GIVEN]


def test_slices_by_numbers_that_are_drawn():
    def program(rng):
        found = []
        for n in range(4):
            p = rng.permutation(n)
            found.append(p[rng.integers(n + 1) :].tolist())
        return found

    compiled = capture(program, "eager")
    for seed in range(4):
        assert compiled(np.random.default_rng(seed)) == program(np.random.default_rng(seed))


def test_slices_by_numbers_of_arrays_that_the_program_made():
    def constants(x):
        edges = np.array([0, 2, 2]).cumsum()
        return x[edges[1] : edges[2]]

    def written(x):
        edges = np.zeros(3, dtype=np.int64)
        edges[1] = 2
        return x[edges[1] :], x[: edges[0] + 1]

    def doubled(x):
        steps = np.arange(4)
        steps[1:3] = steps[1:3] * 2
        return x[steps[1] : steps[3]], x[:: steps[1]]

    def written_later(x):
        steps = np.arange(4)
        view, copy = steps[1:], steps + 0
        before = steps[2]
        np.add(steps, 1, out=steps)
        steps.sort()
        view[0] = 3
        return x[view[0] :], x[copy[1] :], x[before:], x[: steps[3]], np.reshape(x, steps[1:3] - np.array([1, 0]))

    x = np.arange(6.0)
    graphs = []
    compiled = capture(constants, lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)
    assert str(compiled(x)) == str(constants(x)) and len(graphs) == 1
    for program in (written, doubled, written_later):
        assert str(capture(program, "eager")(x)) == str(program(x))


def test_arrays_of_before_the_call_may_change():
    edges = np.array([0, 2, 4])
    compiled = capture(lambda x: x[edges[1] :], "eager")
    assert compiled(np.arange(6)).tolist() == [2, 3, 4, 5]
    edges[1] = 4
    assert compiled(np.arange(6)).tolist() == [4, 5]


def test_texts_of_integers_that_the_program_made_stay_in_the_graph():
    def program(x):
        sizes = np.asarray(x.shape).flatten()
        return " ".join([str(i) for i in sizes]), f"{np.array([1, 2]).cumsum()[1]:03d}", str(np.array([True, False])[0]), x * 2

    graphs = []
    compiled = capture(program, lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)
    for n in (2, 3):
        x = torch.ones(n, 4)
        assert compiled(x)[:3] == program(x)[:3]
    assert graphs


def test_texts_of_what_was_written_or_given_are_those_of_each_call():
    def written(x, k):
        numbers = np.zeros(2, dtype=np.int64)
        numbers[0] = k
        return str(numbers[0]), f"{numbers[1]}", x * 2

    def given(x, k):
        return str(np.asarray(k) + 1), str(np.arange(3)[k]), x * 2

    for program in (written, given):
        compiled = capture(program, "eager")
        for k in (0, 1, 2, 1):
            assert compiled(torch.ones(2), k)[:2] == program(torch.ones(2), k)[:2]
