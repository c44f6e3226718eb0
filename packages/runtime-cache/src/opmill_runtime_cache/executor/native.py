"""Binding a plan to the native executor."""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from .. import _native
from ..errors import BindError, ExecutorWarning, PlanInputError, RuntimeCacheError
from ..forking import ForkLock
from ..plan.model import Alloc, Plan, TensorInput
from ..plan.verify import verify
from ..store import Store
from . import cuda
from .kernels import CudaKernel, kernel_entry
from .names import torch_library
from .program import has_gpu, lower
from .reference import ReferenceExecutable

Executable = Callable[..., tuple[Any, ...]]

_loading = ForkLock()


def bind(plan: Plan, held: Sequence[torch.Tensor], store: Store) -> Executable:
    """A callable that runs ``plan``: ``executable(*inputs) -> tuple`` in the order of ``plan.outputs``.

    ``held`` are the plan's held inputs, in order; the executable keeps the tensor objects and reads their memory anew at each call.
    ``executable.take(list)`` is a call that empties the list of its inputs and drops each as soon as the plan is done with it.
    Safe to call from many threads at once and from within itself. Raises PlanError for an illegal plan, KernelMissing where the store lacks
    a kernel (compile it again), BindError for anything else that stands in the way. Calls raise PlanInputError (RC050-RC053) for inputs
    that are not what the plan was compiled for.
    """
    verify(plan)
    wanted = sum(type(item) is TensorInput and item.held for item in plan.inputs)
    if wanted != len(held) or not all(isinstance(tensor, torch.Tensor) for tensor in held):
        raise BindError("RC030", what=f"plan {plan.name!r} holds {wanted} tensors", why=f"it was given {[type(t).__name__ for t in held]}")
    entries = [kernel_entry(ref, store) for ref in plan.kernels]
    problem = _load() or _beyond_native(plan)
    bodies = [bind(body, [], store) for body in plan.bodies]
    program = lower(plan, held, entries, bodies) if problem is None else None
    on_gpu = any(isinstance(entry, CudaKernel) for entry in entries) or (program is not None and has_gpu(program))
    if on_gpu and (missing := _load_cuda()) is not None:
        raise BindError(
            "RC046", what="GPU kernels cannot be run here", why=missing, hint="install NVIDIA's driver, or a torch built with CUDA"
        )
    if program is not None:
        return _native.Executable(program.native())
    assert problem is not None
    _warn_once(problem)
    return ReferenceExecutable(plan, held, entries, bodies)


@lru_cache(1)
def _load() -> str | None:
    """Connects the extension with this process's torch; the reason why it cannot be, or None."""
    with _loading:
        cpu, python, tensor = torch_library("torch_cpu"), torch_library("torch_python"), torch.empty(1)
        missing = _native.load(cpu, python, tensor, tensor._cdata, torch._C.TensorBase, _numbered)
    return missing and f"torch {torch.__version__} does not offer {missing} to native code"


@lru_cache(1)
def _load_cuda() -> str | None:
    """Connects the extension with the GPU driver and torch's streams; the reason why it cannot be, or None."""
    with _loading:
        return _native.load_cuda(cuda.DRIVER, cuda.TORCH)


def _beyond_native(plan: Plan) -> str | None:
    """Why the native executor cannot run this plan, or None."""
    specs = [item.spec for item in (*plan.inputs, *plan.constants) if hasattr(item, "spec")]
    specs += [step.spec for step in plan.steps if type(step) is Alloc]
    devices = sorted({spec.device for spec in specs if spec.device.partition(":")[0] not in ("cpu", "cuda")})
    return f"tensors on {', '.join(devices)} are not supported natively" if devices else None


def _numbered(code: str, message: str) -> RuntimeCacheError:
    kind = PlanInputError if code.startswith("RC05") else BindError
    return kind(code, what=message)


@lru_cache(None)
def _warn_once(problem: str) -> None:
    message = f"[RC070] plans run in Python, slowly, because {problem}; please report it with the versions of torch and opmill"
    warnings.warn(message, ExecutorWarning, stacklevel=3)
