"""Whether the code being captured is an optimizer's of torch."""

from __future__ import annotations

from ..values.base import Machine


def in_optimizer(vm: Machine) -> bool:
    """Whether the function that runs is one of ``torch.optim``. What such functions ask for as numbers of Python's, the count of steps
    above all, keeps to what optimizers have checked when they were made: no divisor is zero and no base of a power negative."""
    return vm.frame is not None and str(vm.frame.globals.get("__name__", "")).startswith("torch.optim.")
