"""Steps of optimizers as one operator each, for which torch has no meta kernels: they write to what they are given, and give nothing."""

from __future__ import annotations

from typing import Any

from ..table import Rules

RULES = Rules()


@RULES.row("_fused_sgd_ _fused_adagrad_")
def _step(overload: str, *args: Any, **kwargs: Any) -> None:
    return None
