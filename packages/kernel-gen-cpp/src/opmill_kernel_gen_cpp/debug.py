"""Builds kernels in one batch and runs them on torch tensors, without a plan: for tests, benchmarks, and looking at one kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import torch

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import Case
from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

from .generator import CppKernelGenerator


class Runner:
    """Kernels built together; ``run`` calls one."""

    def __init__(self, kernels: Sequence[LoopKernel], store: Store, generator: CppKernelGenerator | None = None) -> None:
        self.store = store
        self.refs = (generator or CppKernelGenerator()).build(kernels, GeneratorOptions(), store)
        self.by_kernel = dict(zip(kernels, self.refs, strict=True))
        self._libraries: dict[str, ctypes.CDLL] = {}

    def entry(self, ref: KernelRef) -> ctypes._NamedFuncPointer:
        """The kernel's function, loaded."""
        if ref.key not in self._libraries:
            self._libraries[ref.key] = ctypes.CDLL(str(self.store.path(ref.artifact_kind, ref.key)))
        function = getattr(self._libraries[ref.key], ref.entry)
        function.restype = ctypes.c_long
        return function

    def run(self, kernel: LoopKernel, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> int:
        return self.bound(kernel, buffers, sizes)()

    def bound(self, kernel: LoopKernel, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> Callable[[], int]:
        """A call of the kernel on these tensors, which must stay where they are: for timing."""
        pointers = (ctypes.c_void_p * max(1, len(kernel.buffers)))(*[buffers[b.name].data_ptr() for b in kernel.buffers])
        values, entry = (ctypes.c_long * max(1, len(sizes)))(*sizes), self.entry(self.by_kernel[kernel])
        return lambda: int(entry(pointers, values))


def disagreement(case: Case, runner: Runner, seed: int = 0) -> str | None:
    """How a built case differs from the reference evaluated in float64; None where it does not."""
    got = case.buffers(seed)
    want = {k: v.double() if v.dtype == torch.float32 else v.clone() for k, v in got.items()}
    code, reference = runner.run(case.kernel, got, case.sizes), evaluate(case.kernel, want, case.sizes, wide=True)
    if code != reference or code != case.expect:
        return f"{case.name}: returned {code}, reference {reference}, expected {case.expect}"
    if code:
        return None
    for name, value in got.items():
        if not value.dtype.is_floating_point:
            if not torch.equal(value, want[name].to(value.dtype)):
                return f"{case.name}: {name} differs: {value[:8]} {want[name][:8]}"
            continue
        if not torch.equal(value.isnan(), want[name].isnan()):
            return f"{case.name}: NaN at other places of {name}"
        exact = want[name].double()
        # relative to the value, and to the largest one for results of cancellation
        largest = float(exact.abs().nan_to_num(0.0, 0.0, 0.0).max()) if exact.numel() else 0.0
        allowed = case.rtol * torch.finfo(value.dtype).eps * (exact.abs() + largest + torch.finfo(value.dtype).eps)
        wrong = (value.double() - exact).abs() > allowed
        if bool((wrong & exact.isfinite()).any()):
            return f"{case.name}: {name} is off at {wrong.nonzero().flatten()[:5].tolist()}: {value[wrong][:5]} {exact[wrong][:5]}"
        if not torch.equal(value[exact.isinf()].double(), exact[exact.isinf()]):
            return f"{case.name}: infinities of {name} differ"
    return None
