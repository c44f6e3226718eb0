"""Random numbers of Python and numpy in captured code: the numbers, their order and the state of the generators are eager's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture

OWN = random.Random(3)


def operands(x):
    a = random.random()
    b = random.uniform(1, 5) * 2 - a
    y = x * a + b
    return y / (a + 1), a, b, torch.where(x > 0, x, a), -a, abs(b), [a, b]


def whole_numbers(x):
    n = random.randint(2, 5)
    m = random.randrange(10)
    return x * n + m, n, torch.zeros(n).shape[0] == n, (torch.arange(3) * m).dtype, {"n": n + m}


def order(x):
    told = [random.gauss(0, 1), OWN.random(), random.random()]
    random.seed(len(told))
    told.append(random.gauss(1, 2))
    told.append(np.random.rand())
    return x + told[-1] * told[0], told, random.choice([1, 2, 3]), random.choice((1.5, 2.5)) * x


def told_by_another(x):
    high = random.random() + 0.0
    first = random.random()
    return x * random.uniform(first, 2.0), random.triangular(0, 1, 0.5), random.betavariate(1, 2), high


def effects(x):
    kept = {"a": random.random()}
    kept["b"] = x * kept["a"]
    print(random.randint(1, 3), kept["a"])
    OWN.last = random.random()  # type: ignore[attr-defined]
    return kept


def decisions(x):
    if random.random() < 0.5:
        x = x + 1
    if random.randint(0, 1):
        x = x * 2
    items = [1, 2, 3, 4]
    random.shuffle(items)
    return x, items, random.sample(range(9), 3), random.choice("abc"), int(random.random() * 8)


def raising(x):
    n = random.random()
    x = x + n
    raise ValueError(random.randint(1, 100))


WHOLE = [operands, whole_numbers, order, told_by_another, effects]


def outcomes(f: Any) -> list[str]:
    random.seed(7)
    np.random.seed(7)
    OWN.seed(7)
    told = []
    for i in range(6):
        try:
            told.append(repr(f(torch.full((3,), float(i)))))
        except ValueError as exc:
            told.append(repr(exc))
    return [*told, repr((random.getstate(), OWN.getstate(), OWN.__dict__.get("last"), np.random.get_state()[2]))]


@pytest.mark.parametrize("program", [*WHOLE, decisions, raising])
def test_numbers_and_states_are_eagers(program: Any, capsys: Any) -> None:
    want = outcomes(program), capsys.readouterr().out
    assert (outcomes(capture(program)), capsys.readouterr().out) == want


@pytest.mark.parametrize("program", WHOLE)
def test_captured_whole_and_once(program: Any) -> None:
    made: list[Any] = []
    assert outcomes(capture(program, fullgraph=True, on_translation=made.append)) == outcomes(program)
    assert len(made) == 1


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: x if random.random() < 0.5 else -x,
        lambda x: x * [1, 2, 3][random.randint(0, 2)],
        lambda x: x * len("ab" if random.randint(0, 1) else "c"),
    ],
)
def test_decisions_are_refused(decide: Any) -> None:
    with pytest.raises(Unsupported, match="FE037"):
        capture(decide, fullgraph=True)(torch.ones(1))


#: Arrays and numbers of NumPy's generators, each captured whole: expressions of x (a tensor) and rng (a generator).
NUMPY = """
np.random.rand(3) * x.numpy()
torch.from_numpy(np.random.randn(*x.shape)).float() + x
x[torch.from_numpy(np.random.permutation(3))]
np.random.beta(0.4, 0.4) * x
np.random.choice([1.5, 2.5], size=2) + 1, np.random.choice(5), np.random.rand(2)
np.random.randint(0, 10, size=(2, 2)) + 1
rng.normal(size=3) + x.numpy()
rng.integers(0, 10) + 1, rng.integers(0, 10), rng.random() * x
rng.permutation(4), rng.normal(), rng.uniform(0, 1, 2)
(lambda a: (a.__imul__(2), a)[1])(np.random.rand(2))
np.random.uniform(1, 2, size=3).sum(), np.random.multivariate_normal([0, 0], [[1, 0], [0, 1]]), np.random.poisson(3, 4)
""".strip().splitlines()


@pytest.mark.parametrize("text", NUMPY)
def test_arrays_of_numpys_generators(text: str) -> None:
    rng = np.random.default_rng(3)
    namespace: dict[str, Any] = {"np": np, "torch": torch, "rng": rng}
    exec(f"def f(x):\n    return {text}", namespace)

    def play(f: Any) -> str:
        np.random.seed(1)
        rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
        told = [f(torch.arange(3.0)) for _ in range(4)]
        return repr([told, np.random.get_state()[1:], rng.bit_generator.state])

    assert play(capture(namespace["f"], fullgraph=True)) == play(namespace["f"])


@pytest.mark.parametrize(
    "text", ["np.random.choice(['a', 'b'])", "np.random.rand(-1)", "np.random.shuffle(kept)", "np.random.randint(5, 3)"]
)
def test_what_no_graph_holds_is_drawn_by_numpy(text: str) -> None:
    namespace: dict[str, Any] = {"np": np, "kept": [1, 2, 3]}
    exec(f"def f(x):\n    return x + 1, {text}, list(kept)", namespace)

    def play(f: Any) -> list[Any]:
        np.random.seed(1)
        namespace["kept"][:] = [1, 2, 3]
        told: list[Any] = []
        for _ in range(3):
            try:
                told.append(str(f(torch.ones(2))))
            except ValueError as error:
                told.append(str(error))
        return told

    assert play(capture(namespace["f"])) == play(namespace["f"])


#: What captured code may do with numbers of a generator of NumPy's that it has seeded itself: they are known, and decide.
SEEDED = """
np.random.seed(3); p = np.random.permutation(5); y = x * 2 if p[0] > 2 else x; told = p, np.random.rand(2), np.random.randint(9)
np.random.seed(1); a = np.arange(6); q = np.random.permutation(a[1:]); np.random.shuffle(a); y = x; told = a, [n for n in q if n not in (2, 3)]
np.random.seed(7); l = [x, 2, x + 1, 4]; np.random.shuffle(l); y = x * l[0]; told = l, np.random.rand()
state = np.random.get_state(); np.random.seed(0); y = x * np.random.rand(); np.random.set_state(state); told = np.random.rand(),
np.random.seed(2); a = np.random.choice([True, False], 3); y = x if a[0] else -x; told = a, np.random.permutation(3)
first = np.random.rand(); np.random.seed(4); n = random.random(); y = x * first; told = np.random.rand(), n, np.random.normal()
np.random.seed(5); n = np.random.rand(); m = np.random.uniform(0, random.random()); y = x * n; told = m, np.random.rand(2)
np.random.seed(5); OTHER.seed(6); a = OTHER.rand(2); y = x[:2] if a[0] > np.random.rand() else x; told = a, OTHER.randn(), np.random.randn()
np.random.seed(8); a = np.random.normal(size=3); np.random.seed(9); y = x + torch.from_numpy(a); told = np.random.rand(), np.random.normal()
ends = np.array([4, 8]) // 2; np.random.seed(1); y = x + sum(range(1, ends[0])); told = np.random.permutation(np.arange(0, ends[1]))
""".strip().splitlines()
OTHER = np.random.RandomState(1)


@pytest.mark.parametrize("text", SEEDED)
def test_numbers_behind_a_seed_are_known(text: str) -> None:
    namespace: dict[str, Any] = {"np": np, "torch": torch, "random": random, "OTHER": OTHER}
    exec(f"def f(x):\n    {text}\n    return y, told", namespace)
    made: list[Any] = []

    def play(f: Any) -> str:
        random.seed(1), np.random.seed(1), OTHER.seed(1)
        told = [f(torch.arange(3.0) + k) for k in range(4)]
        return repr([told, np.random.get_state(), OTHER.get_state(), random.getstate()])

    assert play(capture(namespace["f"], fullgraph=True, on_translation=made.append)) == play(namespace["f"])
    assert len(made) == 1


DRAWN = """
rand(2); randn(2, 2); random(3); random_sample(); sample(2); uniform(1, 2, 3); normal(0, 1, 2); standard_normal(3); randint(0, 9, 4);
beta(1, 2); binomial(5, 0.5, 3); chisquare(2); exponential(2.0, 2); gamma(2.0); geometric(0.3, 2); gumbel(); laplace(0, 1, 2); logistic();
lognormal(); negative_binomial(3, 0.5); poisson(3, 4); power(2.0); rayleigh(); standard_cauchy(2); standard_exponential(); standard_gamma(1.0);
standard_t(3); triangular(0, 1, 2); vonmises(0, 1); wald(1, 1); weibull(2.0, 2); zipf(3.0); permutation(7); permutation([3, 1, 2]); choice(5, 3);
choice([1.5, 2.5], p=[0.3, 0.7]); choice(5, 3, replace=False); multinomial(5, [0.2, 0.8]); multivariate_normal([0, 0], [[1, 0], [0, 1]]);
dirichlet([1, 2])
"""


@pytest.mark.parametrize("text", [each.strip() for each in DRAWN.split(";")])
def test_each_draw_behind_a_seed(text: str) -> None:
    namespace: dict[str, Any] = {"np": np, "torch": torch}
    exec(
        "def f(x, k):\n    np.random.seed(11)\n"
        f"    a = np.random.{text}\n    b = np.random.{text}\n"
        "    return x * float(np.sum(a) > np.sum(b)), a, b, np.random.rand()",
        namespace,
    )

    def play(f: Any) -> str:
        np.random.seed(1)
        return repr([[f(torch.ones(2), k) for k in range(3)], np.random.get_state()])

    assert play(capture(namespace["f"], fullgraph=True)) == play(namespace["f"])


#: Draws as large as a tensor x is, or as an int k says, and seeds: two captures serve all.
SIZED = """
np.random.seed(k); y = x + np.random.rand(); told = np.random.rand(2)
np.random.seed(k * 2 + 1); y = x * np.random.rand(); told = np.random.permutation(3)
random.seed(k); y = x + random.random(); told = k
y = x + torch.from_numpy(np.random.rand(x.shape[0])); told = np.random.rand()
y = x[torch.from_numpy(np.random.permutation(len(x)))]; told = k
y = x[torch.from_numpy(np.random.choice(len(x), 2, replace=False))]; told = np.random.choice(len(x), size=k)
y = x[:, None] + torch.from_numpy(np.random.normal(0, 1, (len(x), 2))); told = np.random.uniform(0, 2, size=k)
y = torch.from_numpy(np.random.rand(len(x), len(x))) @ x.double(); told = np.random.randint(0, k, 3)
y = x + torch.from_numpy(np.random.rand(k, len(x))); told = np.random.randint(0, 5, size=(k, 2))
y = torch.from_numpy(np.random.rand(2 * len(x))) + x.repeat(2); told = np.random.exponential(2.0, k)
a = np.random.rand(len(x)); a *= 2; y = x.numpy() + a; told = a
np.random.seed(3); a = np.random.rand(len(x)); y = x * torch.from_numpy(a); told = np.random.rand()
a = np.arange(len(x)); np.random.shuffle(a); y = x[torch.from_numpy(a)]; told = np.random.rand()
y = np.random.permutation(x.numpy().reshape(-1, 1) * np.ones(3)); told = np.random.rand()
np.random.shuffle(x.numpy()); y = x; told = np.random.permutation(x.numpy() * 2)
a = np.arange(len(x), dtype=np.int32); b = a[1:]; np.random.shuffle(b); y = x * 2; told = a
a = x.numpy().reshape(-1, 1) * np.ones(3); rng.shuffle(a); y = a; told = rng.permutation(x.numpy() + 1)
y = x + torch.from_numpy(rng.random(len(x))); told = rng.integers(0, k, size=4), rng.permutation(k)
""".strip().splitlines()


def sized(text: str, of: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    namespace: dict[str, Any] = {"np": np, "torch": torch, "random": random, "rng": rng}
    exec(f"def f(x, k, log):\n    {text}\n    return y, told", namespace)
    f, found = of(namespace["f"]), []
    np.random.seed(1), random.seed(1)
    for k in range(7):
        log: list[Any] = []
        try:
            given: Any = f(torch.arange(4.0 + k), k + 3, log)
        except ValueError as error:
            given = repr(error)
        found.append(repr((given, log, np.random.get_state(), rng.bit_generator.state, random.getstate())))
    return found


@pytest.mark.parametrize("text", SIZED)
def test_sizes_that_change(text: str) -> None:
    made: list[Any] = []
    assert sized(text, lambda f: capture(f, on_translation=made.append)) == sized(text, lambda f: f)
    assert len(made) == 2


#: What NumPy refuses it refuses where the program asks for it, and not before.
REFUSED = """
log.append(k); y = x; told = np.random.choice(len(x) - 2, k)
log.append(k); y = x; told = np.random.choice(5, k, replace=False)
log.append(k); y = x; told = np.random.rand(5 - k)
log.append(k); np.random.seed(4 - k); y = x; told = np.random.rand()
log.append(k); y = x; told = np.random.randint(5, k)
log.append(k); y = x; told = np.random.normal(0, 6 - k, 2)
""".strip().splitlines()


@pytest.mark.parametrize("text", REFUSED)
def test_refusals_come_in_their_turn(text: str) -> None:
    assert sized(text, capture) == sized(text, lambda f: f)
