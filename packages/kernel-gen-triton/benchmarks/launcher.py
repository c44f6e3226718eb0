"""Runs built kernels on CUDA tensors through the driver API, by ctypes: a plain reading of the launch data, for tests on a GPU.

Not fast on the host. The native executor does the same from a plan."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch

from opmill_graph_ir.loops.ir import LoopKernel
from opmill_kernel_gen_triton.launch import Arg, Form, Size, Step, decode
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 48 << 10


class Launcher:
    """Kernels of a store on the current device and torch's current stream."""

    def __init__(self, store: Store) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the context current
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.store = store
        self.functions: dict[tuple[str, int], ctypes.c_void_p] = {}
        self.error = torch.zeros(1, dtype=torch.int32, device="cuda")

    def run(self, kernel: LoopKernel, ref: KernelRef, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> int:
        """Launches all steps and waits; 0, or 1 + the number of the check that failed."""
        data = decode(str(ref.meta["launch"]))
        self.error.zero_()
        self.start(kernel, ref, buffers, sizes)
        code = int(self.error.item())
        return data.checks + 1 - code if code else 0

    def start(self, kernel: LoopKernel, ref: KernelRef, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = ()) -> torch.Tensor:
        """Launches all steps on the current stream; returns the scratch block, which must outlive them."""
        data = decode(str(ref.meta["launch"]))
        symbols = dict(zip(data.sizes, sizes, strict=True))
        scratch = torch.empty(max(1, _value(data.scratch, symbols)), dtype=torch.uint8, device="cuda")
        pointers = [buffers[b.name].data_ptr() for b in kernel.buffers]
        for step in data.steps:
            self._launch(ref, step, data.checks, pointers, sizes, symbols, scratch)
        return scratch

    def _launch(
        self,
        ref: KernelRef,
        step: Step,
        checks: int,
        pointers: list[int],
        sizes: Sequence[int],
        symbols: Mapping[str, int],
        scratch: torch.Tensor,
    ) -> None:
        used = [pointers[a.index] for a in step.args if a.kind == "buffer"]
        form = next(f for f in step.forms if _fits(f, used, symbols))
        values = [self._argument(a, form, checks, pointers, sizes, symbols, scratch) for a in step.args]
        values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
        packed = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = _value(step.grid, symbols)
        _ok(
            self.driver.cuLaunchKernel(self._function(ref, form), grid, 1, 1, 32 * form.warps, 1, 1, form.shared, stream, packed, None),
            "cuLaunchKernel",
        )

    def _argument(
        self, a: Arg, form: Form, checks: int, pointers: list[int], sizes: Sequence[int], symbols: Mapping[str, int], scratch: torch.Tensor
    ) -> ctypes._SimpleCData:
        if a.kind == "buffer":
            return ctypes.c_uint64(pointers[a.index])
        if a.kind == "scratch":
            return ctypes.c_uint64(scratch.data_ptr() + _value(a.value, symbols))
        if a.kind == "size":
            return (ctypes.c_int32 if form.index_bits == 32 else ctypes.c_int64)(sizes[a.index])
        return ctypes.c_uint64(self.error.data_ptr()) if a.kind == "error" else ctypes.c_int32(checks)

    def _function(self, ref: KernelRef, form: Form) -> ctypes.c_void_p:
        known = self.functions.get((ref.key, form.offset))
        if known is None:
            artifact = self.store.get(ref.artifact_kind, ref.key)
            assert artifact is not None, f"{ref.key} is not in the store"
            module, known = ctypes.c_void_p(), ctypes.c_void_p()
            _ok(self.driver.cuModuleLoadData(ctypes.byref(module), artifact[form.offset : form.offset + form.size]), "cuModuleLoadData")
            _ok(self.driver.cuModuleGetFunction(ctypes.byref(known), module, form.entry.encode()), "cuModuleGetFunction")
            if form.shared > _STATIC_SHARED_LIMIT:
                _ok(self.driver.cuFuncSetAttribute(known, _MAX_DYNAMIC_SHARED, form.shared), "cuFuncSetAttribute")
            self.functions[ref.key, form.offset] = known
        return known


def _fits(form: Form, pointers: Sequence[int], symbols: Mapping[str, int]) -> bool:
    return all(p % form.align == 0 for p in pointers) and all(_value(e, symbols) < form.limit for e in form.fits)


def _value(size: Size, symbols: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else int(eval(size, {"min": min, "max": max, "__builtins__": {}}, dict(symbols)))


def _ok(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} failed with CUDA error {code}")
