"""Binding a plan to the native executor."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..plan.model import Plan
from ..store import Store
from .reference import bind_reference

Executable = Callable[..., tuple[Any, ...]]


def bind(plan: Plan, held: Sequence[torch.Tensor], store: Store) -> Executable:
    """A callable that runs ``plan``: ``executable(*inputs) -> tuple`` in the order of ``plan.outputs``."""
    return bind_reference(plan, held, store)
