"""Torch's operators by their names, and what is asked of them wherever names are all there is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.operator import describe


@lru_cache(None)
def overload(name: str) -> Any:
    """Torch's operator of a full name (``aten::add.Tensor``); None where there is none."""
    space, _, rest = name.partition("::")
    base, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base, None), which or "default", None)


@lru_cache(None)
def exchanges(name: str) -> bool:
    """Whether other processes take part in an operator: arguments are read, and what a wait gives is written, while later steps run."""
    found = overload(name)
    return found is not None and describe(found).exchanges
