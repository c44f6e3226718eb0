"""GPU kernels: from the store, and run from Python by ctypes, a plain reading of the launch data for the reference executor, for tests and
for timing. Slow on the host; the native executor starts them itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import torch

from ...errors import BindError
from ...plan.contract import Contract
from ...plan.expr import evaluate
from ...plan.launch import Arg, Form, LaunchData, Step
from ...plan.model import KernelRef
from ...plan.sealed import SealBroken, unseal
from ...store import Store
from ..loading import missing, torch_library, unloadable

DRIVER = "libcuda.so.1"
TORCH = torch_library("torch_cuda")
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 48 << 10
_functions: dict[tuple[str, int], ctypes.c_void_p] = {}


class CudaKernel(msgspec.Struct, frozen=True):
    """A GPU kernel: ``data`` says how to launch it, ``cubins`` is its machine code. ``name`` tells kernels apart in a process.
    ``contract`` None: its maker answers for each launch."""

    name: str
    data: LaunchData
    cubins: bytes
    contract: Contract | None = None

    def run(self, index: int | None, pointers: Sequence[int], sizes: Sequence[int]) -> int:
        """See ``protocol.Kernel``."""
        return run(self, index or 0, pointers, sizes)


def load_cubin(ref: KernelRef, store: Store) -> CudaKernel:
    """A kernel from the store; what a plan says of it besides its name is not asked for. Raises KernelMissing (RC031), BindError
    (RC032)."""
    artifact = store.get(ref.artifact_kind, ref.key)
    if artifact is None:
        raise missing(ref, store)
    try:
        data, contract, cubins = unseal(artifact)
    except SealBroken as error:
        raise unloadable(ref, str(error)) from error
    return CudaKernel(f"{ref.artifact_kind}/{ref.key}", data, cubins, contract)


@lru_cache(1)
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(DRIVER)
    except OSError as error:
        raise BindError("RC046", what="GPU kernels cannot be run here", why=str(error), hint="install NVIDIA's driver") from None


def run(kernel: CudaKernel, device: int, pointers: Sequence[int], sizes: Sequence[int]) -> int:
    """Runs a kernel on torch's current stream of ``device``, and waits; 0, or 1 + the number of its check that failed.

    Raises BindError: RC046 without a driver, RC047 where no form fits, RC048 with what the driver says."""
    error = torch.zeros(1, dtype=torch.int32, device=f"cuda:{device}")
    scratch = start(kernel, device, pointers, sizes, error)
    code = int(error.item())
    del scratch
    return kernel.data.checks + 1 - code if code else 0


def start(kernel: CudaKernel, device: int, pointers: Sequence[int], sizes: Sequence[int], error: torch.Tensor) -> torch.Tensor:
    """Starts a kernel on torch's current stream of ``device``; gives the scratch block, which must outlive it."""
    symbols = dict(zip(kernel.data.sizes, sizes, strict=True))
    scratch = torch.empty(max(1, evaluate(kernel.data.scratch, symbols)), dtype=torch.uint8, device=f"cuda:{device}")
    values: dict[str, Callable[[Arg], int]] = {
        "buffer": lambda a: pointers[a.index],
        "scratch": lambda a: scratch.data_ptr() + evaluate(a.value, symbols),
        "size": lambda a: sizes[a.index],
        "error": lambda a: error.data_ptr(),
        "check": lambda a: kernel.data.checks,
        "word": lambda a: evaluate(a.value, symbols),
    }
    with torch.cuda.device(device):
        for step in kernel.data.steps:
            _launch(kernel, step, device, pointers, symbols, [values[a.kind](a) for a in step.args])
    return scratch


def _launch(kernel: CudaKernel, step: Step, device: int, pointers: Sequence[int], symbols: Mapping[str, int], words: Sequence[int]) -> None:
    used = [pointers[a.index] for a in step.args if a.kind == "buffer"]
    form = next((f for f in step.forms if _fits(f, used, symbols)), None)
    if form is None:
        raise BindError("RC047", what="no form of a kernel takes these sizes", where=kernel.name)
    grid = tuple(evaluate(size, symbols) for size in (step.grid, *step.more))
    if min(grid) <= 0:
        return
    storage = [ctypes.c_uint64(word & (1 << 64) - 1) for word in (*words, 0, 0)]  # a little-endian word begins with its low half
    packed = (ctypes.c_void_p * len(storage))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in storage))
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    function = _function(kernel, form, device)
    _check("cuLaunchKernel", _driver().cuLaunchKernel(function, *grid, 32 * form.warps, 1, 1, form.shared, stream, packed, None))


def _fits(form: Form, pointers: Sequence[int], symbols: Mapping[str, int]) -> bool:
    return all(p % form.align == 0 for p in pointers) and all(evaluate(e, symbols) < form.limit for e in form.fits)


def _function(kernel: CudaKernel, form: Form, device: int) -> ctypes.c_void_p:
    key = (f"{kernel.name}/{form.offset}/{form.entry}", device)  # a module may hold several functions
    known = _functions.get(key)
    if known is None:
        module, known = ctypes.c_void_p(), ctypes.c_void_p()
        image = kernel.cubins[form.offset : form.offset + form.size]
        _check("cuModuleLoadData", _driver().cuModuleLoadData(ctypes.byref(module), image))
        _check("cuModuleGetFunction", _driver().cuModuleGetFunction(ctypes.byref(known), module, form.entry.encode()))
        if form.shared > _STATIC_SHARED_LIMIT:
            _check("cuFuncSetAttribute", _driver().cuFuncSetAttribute(known, _MAX_DYNAMIC_SHARED, form.shared))
        _functions[key] = known
    return known


def _check(what: str, code: Any) -> None:
    if code:
        raise BindError("RC048", what=f"{what} failed with CUDA error {code}")


def given_out(device: int) -> tuple[int, int]:
    """What was asked of torch's allocator on a device so far: blocks, and bytes."""
    known = torch.cuda.memory_stats_as_nested_dict(device)
    return int(known["allocation"]["all"]["allocated"]), int(known["requested_bytes"]["all"]["allocated"])
