"""Torch's own databases of samples as oracles: modules, optimizers, custom operators, autograd functions, higher-order operators, export's
programs.

Each program runs through ``opmill.compile`` as a user writes it, twice, and gives what it gives by itself: results, gradients, buffers,
exceptions. A part of each database by default; ``OPMILL_ALL_SAMPLES=1`` takes all."""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._export.db.examples import all_examples
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db

import opmill

ALL = bool(os.environ.get("OPMILL_ALL_SAMPLES"))
pytestmark = pytest.mark.filterwarnings("ignore", "error:OM011")


def part(names: list[Any], every: int) -> list[Any]:
    return names if ALL else names[::every]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def fresh(value: Any) -> Any:
    """The same arguments again, of which nothing was written or differentiated yet."""
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided
        return value.detach().clone().requires_grad_(value.requires_grad) if plain else value
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in value.items()}
    return type(value)(map(fresh, value)) if type(value) in (tuple, list) else value


def outcome(call: Callable[..., Any], args: Any, kwargs: Any, held: list[torch.Tensor]) -> Any:
    """What the call gives, the gradients of a loss of it, and the arguments afterwards; or its exception."""
    torch.manual_seed(7)
    try:
        found = call(*args, **kwargs)
        wanted = [t for t in (*tensors_in((args, kwargs)), *held) if t.requires_grad]
        parts = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors_in(found) if t.requires_grad]
        loss = sum(t.double().sin().sum() for t in parts)
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True) if parts and wanted else ()
    except Exception as exc:  # whatever torch's samples raise
        return type(exc).__name__
    return found, gradients, args, kwargs


def same(a: Any, b: Any, where: str = "") -> None:
    assert type(a) is type(b), f"{where}: {type(a)}, {type(b)}"
    if isinstance(a, torch.Tensor):
        assert a.layout == b.layout and a.requires_grad == b.requires_grad, where
        a, b = (t.to_dense() if t.layout is not torch.strided else t for t in (a.detach(), b.detach()))
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-4, equal_nan=True, check_stride=a.layout is torch.strided and a.numel() > 1)
    elif isinstance(a, (tuple, list, dict)):
        assert len(a) == len(b), where
        for k in a if isinstance(a, dict) else range(len(a)):
            same(a[k], b[k], f"{where}[{k!r}]")
    elif isinstance(a, (int, float, str, bool)):
        assert a == b or a != a, where


def twice(make: Callable[[], Any], args: Any, kwargs: Any) -> None:
    """``make`` gives the callable and the tensors that it holds, anew each time."""
    (plain, held), (other, own) = make(), make()
    compiled = opmill.compile(other)
    for k in range(2):
        same(outcome(plain, fresh(args), fresh(kwargs), held), outcome(compiled, fresh(args), fresh(kwargs), own), f"call {k}: ")
    if isinstance(plain, torch.nn.Module):
        same(dict(plain.state_dict()), dict(other.state_dict()), "state")


MODULES = {info.name: info for info in part(sorted(module_db, key=lambda info: info.name), 9)}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, training: bool) -> None:
    info = MODULES[name]
    for sample in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)[
        : 4 if ALL else 1
    ]:

        def make(sample: Any = sample) -> Any:
            torch.manual_seed(0)
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)
            return module, list(module.parameters())

        twice(make, sample.forward_input.args, sample.forward_input.kwargs)


OPERATORS = {f"{op.name} {op.variant_test_name}".strip(): op for db in (custom_op_db, autograd_function_db, hop_db) for op in part(db, 2)}


@pytest.mark.parametrize(
    "name", [name for name in OPERATORS if not name.startswith("flex_attention_backward")]
)  # whose samples torch cannot make
def test_operators(name: str) -> None:
    op = OPERATORS[name]
    floats = op.supports_dtype(torch.float32, "cpu")
    samples = op.sample_inputs("cpu", torch.float32 if floats else torch.int64, requires_grad=floats and op.supports_autograd)
    for sample in itertools.islice(samples, 4 if ALL else 2):
        opmill.reset()

        def make() -> Any:
            return (lambda *args, **kwargs: op.op(*args, **kwargs)), []

        twice(make, (sample.input, *sample.args), sample.kwargs)


EXAMPLES = dict(part(list(all_examples().items()), 3))


@pytest.mark.parametrize("name", EXAMPLES)
def test_programs_of_export(name: str) -> None:
    case = EXAMPLES[name]
    twice(lambda: (copy.deepcopy(case.model), []), case.example_args, case.example_kwargs or {})


def settings() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for info in optim_db:
        for number, given in enumerate(info.optim_inputs_func(device="cpu")):
            for way in ({}, *({name: True} for name in ("foreach", "fused") if name in info.supported_impls)):
                yield f"{info.optim_cls.__name__} {number} {''.join(way)}".strip(), info, {**given.kwargs, **way}


SETTINGS = {name: (info, kwargs) for name, info, kwargs in part(list(settings()), 12)}


@pytest.mark.parametrize("whole", [True, False], ids=["training step", "step"])
@pytest.mark.parametrize("name", SETTINGS)
def test_optimizers(name: str, whole: bool) -> None:
    """In double precision: some amplify what is rounded."""
    info, kwargs = SETTINGS[name]

    def train(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        if info.only_supports_sparse_grads:
            model: Any = torch.nn.EmbeddingBag(10, 4, sparse=True, mode="sum").double()
            x = torch.tensor([[1, 2], [3, 4]])
        else:
            model = torch.nn.Sequential(torch.nn.Linear(5, 6, bias=False), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=False)).double()
            x = torch.linspace(-1, 1, 10, dtype=torch.float64).view(2, 5)
        optimizer = info.optim_cls(model.parameters(), **copy.deepcopy(kwargs))
        update = optimizer.step if whole else wrap(optimizer.step)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        def step() -> Any:
            if info.step_requires_closure:
                return update(closure)
            closure()
            return update()

        run = wrap(step) if whole else step
        for _ in range(4):
            run()
        return dict(model.state_dict()), optimizer.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(train(lambda f: f), train(opmill.compile))
