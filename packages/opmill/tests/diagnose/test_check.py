"""check() compares values, gradients, writes, aliases and exceptions of eager and compiled runs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import opmill
from opmill.compile import running_uncompiled


def backend_that(change):  # type: ignore[no-untyped-def]
    """A backend whose graphs give what ``change`` makes of their results."""

    def backend(gm, inputs):  # type: ignore[no-untyped-def]
        return lambda *args: change(list(gm.forward(*args)))

    return backend


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sigmoid()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 5, generator=generator), torch.randn(5, 6, generator=generator, requires_grad=True)


def test_what_agrees_is_true_and_shows_each_value() -> None:
    seen = opmill.check(layer, backend="eager")(*arguments())
    assert seen and not seen.wrong
    assert {row.name for row in seen.rows} == {"output", "gradient of argument[1]"}
    assert "all 2 agree" in str(seen)


def test_a_small_error_is_seen_in_units_of_eagers_own() -> None:
    x, w = arguments()
    seen = opmill.check(layer, backend=backend_that(lambda out: [out[0] + 1e-4]))(x, w)
    [row] = [row for row in seen.wrong if row.name == "output"]
    assert row.ratio > 100 and "element" in row.problem
    assert opmill.check(layer, backend=backend_that(lambda out: [out[0] + 1e-4]), tolerance=1e5)(x, w)


def test_rounding_in_half_precision_is_not_an_error() -> None:
    half = backend_that(lambda out: [torch.nextafter(out[0], torch.tensor(2.0, dtype=out[0].dtype))])
    x, w = arguments()
    assert opmill.check(layer, backend=half)(x.half(), w.detach().half())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda out: [out[0].double()], "dtype"),
        (lambda out: [out[0].T.contiguous().T], "strides"),
        (lambda out: [out[0][:1]], "shape"),
        (lambda out: [torch.full_like(out[0], torch.nan)], "nan"),
    ],
)
def test_kinds_strides_and_nan_have_to_be_the_same(change, problem) -> None:  # type: ignore[no-untyped-def]
    x, w = arguments()
    seen = opmill.check(layer, backend=backend_that(change))(x, w.detach())
    assert any(problem in row.problem for row in seen.wrong)


def test_gradients_are_compared() -> None:
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g / 2

    seen = opmill.check(layer, backend=backend_that(lambda out: [Halved.apply(out[0])]))(*arguments())
    assert [row.name for row in seen.wrong] == ["gradient of argument[1]"]


def test_state_is_left_as_it_was_and_writes_are_compared() -> None:
    norm = torch.nn.BatchNorm1d(5)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    seen = opmill.check(norm, backend="eager")(x)
    assert seen and int(norm.num_batches_tracked) == 0
    assert {"running_mean after the call", "running_var after the call"} <= {row.name for row in seen.rows}


def test_a_lost_write_is_wrong() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            x.add_(1)
        return x.sum() * 0

    seen = opmill.check(write, backend="eager")(torch.zeros(3))
    assert [row.name for row in seen.wrong] == ["argument[0] after the call"]


def test_an_alias_that_is_lost_is_wrong() -> None:
    seen = opmill.check(lambda x: x[1:], backend=backend_that(lambda out: [out[0].clone()]))(torch.arange(4.0))
    assert ["shares memory with argument[0] in eager only"] == [row.problem for row in seen.wrong]


def test_exceptions_are_results() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("other" if torch.compiler.is_compiling() else "one")

    assert opmill.check(lambda x: x.view(7), backend="eager")(torch.zeros(3))
    [row] = opmill.check(refuses, backend="eager")(torch.zeros(3)).wrong
    assert "one" in row.problem and "other" in row.problem


def test_closures_and_globals_are_copied() -> None:
    counter = torch.zeros(())
    layer = torch.nn.Linear(2, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        return layer(x) + counter

    assert opmill.check(step, backend="eager")(torch.ones(1, 2))
    assert counter == 0


def test_a_program_without_a_float64_run_is_compared_with_eager() -> None:
    def fixed(x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, torch.ones(2, 2, dtype=torch.float32))

    seen = opmill.check(fixed, backend="eager")(torch.ones(2, 2))
    assert seen and "raises" in seen.reference and "no float64 result" in str(seen)


def _trained(optimizer: Callable[..., torch.optim.Optimizer], clear: bool) -> Callable[..., torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    moved = optimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(moved, 1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        moved.step()
        scheduler.step()
        if clear:
            moved.zero_grad()
        return loss

    return step


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_of_training_is_compared_with_its_gradients_and_left_as_it_was(optimizer: Any, clear: bool) -> None:
    step = _trained(optimizer, clear)
    cells = dict(zip(step.__code__.co_freevars, (cell.cell_contents for cell in step.__closure__ or ()), strict=True))
    parameters = [p.detach().clone() for p in cells["model"].parameters()]
    seen = opmill.check(step)(torch.ones(3, 4))
    assert seen and not seen.reference, str(seen)
    names = {row.name for row in seen.rows}
    assert {"output", "0.weight after the call"} < names and ("gradient of 0.weight" in names) == (not clear)
    assert all(torch.equal(p, q) for p, q in zip(cells["model"].parameters(), parameters, strict=True))
    assert not cells["moved"].state and cells["scheduler"].last_epoch == 0


def test_a_compiled_step_moves_copies() -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    move = opmill.compile(optimizer.step)

    def step(x: torch.Tensor) -> torch.Tensor:
        model(x).sum().backward()
        move()
        return x

    weight = model.weight.detach().clone()
    seen = opmill.check(step)(torch.ones(3, 4))
    assert seen and "weight after the call" in {row.name for row in seen.rows}, str(seen)
    assert torch.equal(weight, model.weight) and model.weight.grad is None


def test_what_a_program_calls_compiled_is_compared_with_what_it_is() -> None:
    wrong = opmill.compile(layer, backend=backend_that(lambda results: [results[0] + 1]))
    assert (wrong(*arguments()) > 1).all()
    seen = opmill.check(lambda x, w: wrong(x, w) * 2, backend="eager")(*arguments())
    assert not seen.reference and max(row.eager_error for row in seen.rows) < 1e-6, str(seen)
    assert (wrong(*arguments()) > 1).all()


def test_a_compiled_step_is_the_optimizers_own_in_eager() -> None:
    pytest.importorskip("opmill_kernel_gen_cpp")
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    move = opmill.compile(optimizer.step)
    weight.grad = torch.ones(4)
    with running_uncompiled():
        move()
    assert torch.equal(weight, torch.full((4,), 0.5)) and not move.updates()
    move()
    assert torch.equal(weight, torch.zeros(4)) and move.updates()
