"""The kernel generator for GPUs, by way of Triton. A skeleton: it is found and answers, and takes no kernel yet."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

_NOT_YET = "Triton kernels are not implemented yet"


class TritonKernelGenerator:
    """Refuses every kernel, so that the operators run as torch's own. Importing it does not import triton."""

    name = "triton"

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        """Always a reason."""
        if not options.device.startswith("cuda"):
            return f"device {options.device} is not a CUDA device"
        return _NOT_YET

    def available(self) -> str | None:
        """Always a reason: triton is missing, or the generator is not implemented."""
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed (pip install opmill-kernel-gen-triton[triton])"
        return _NOT_YET

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        """Raises KernelBuildError unless there is nothing to build."""
        if not kernels:
            return []
        raise KernelBuildError("KT001", "a Triton kernel was asked for", why=_NOT_YET, hint="ask claims() first")
