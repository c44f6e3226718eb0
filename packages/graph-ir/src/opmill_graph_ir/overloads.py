"""Torch's operators by their names, and what is asked of them wherever names are all there is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.operator import describe


def resolve(name: str) -> Any:
    """Torch's operator of a full name (``aten::add.Tensor``). Raises AttributeError where there is none."""
    space, _, rest = name.partition("::")
    packet, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), which or "default")


@lru_cache(None)
def overload(name: str) -> Any:
    """Torch's operator of a full name; None where there is none."""
    try:
        return resolve(name)
    except AttributeError:
        return None


@lru_cache(None)
def exchanges(name: str) -> bool:
    """Whether other processes take part in an operator: arguments are read, and what a wait gives is written, while later steps run."""
    found = overload(name)
    return found is not None and describe(found).exchanges
