"""``kernel[grid]`` of a Triton kernel: a callable that launches it."""

from __future__ import annotations

from .base import Value
from .functions import Closure


class KernelLauncher(Closure):
    """``function(vm, *args, **kwargs)`` stands for the call."""

    def __init__(self, function: object, kernel: Value, grid: Value) -> None:
        super().__init__(function)
        self.kernel, self.grid = kernel, grid

    def describe(self) -> str:
        return f"the launch of {self.kernel.describe()}"
