"""Optimizers run between graphs: they keep state by parameter, and a backend may have its own step for them."""

from __future__ import annotations

from typing import Any

from ..values.base import Value
from .registry import named

_CLASSES = (
    "adadelta.Adadelta adagrad.Adagrad adam.Adam adamax.Adamax adamw.AdamW asgd.ASGD lbfgs.LBFGS nadam.NAdam radam.RAdam rmsprop.RMSprop "
    "rprop.Rprop sgd.SGD sparse_adam.SparseAdam _muon.Muon _adafactor.Adafactor"
).split()


@named(*(f"torch.optim.{name}.step" for name in _CLASSES))
def step(vm: Any, *args: Value, **kwargs: Value) -> Value:
    return vm.unsupported("FE036", "a step of an optimizer", "it runs between graphs")


@named("torch.optim.optimizer.Optimizer.zero_grad")
def zero_grad(vm: Any, *args: Value, **kwargs: Value) -> Value:
    return vm.unsupported("FE036", "zero_grad of an optimizer", "it runs between graphs")
