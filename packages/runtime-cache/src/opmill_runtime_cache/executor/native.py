"""Binding a plan to the native executor."""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from .. import _native
from ..devices.loading import torch_library
from ..devices.registry import find, runner
from ..errors import BindError, ExecutorWarning, PlanInputError, RuntimeCacheError
from ..forking import ForkLock
from ..plan.model import Alloc, Call, Plan, SizeInput, TensorInput
from ..plan.verify import verify
from ..store import Store
from .kernels import kernel_entry
from .program import lower
from .reference import ReferenceExecutable

Executable = Callable[..., tuple[Any, ...]]

_loading = ForkLock()


def bind(plan: Plan, held: Sequence[torch.Tensor], store: Store, describe: Any = None) -> Executable:
    """A callable that runs ``plan``: ``executable(*inputs) -> tuple`` in the order of ``plan.outputs``.

    ``held`` are the plan's held inputs, in order; the executable keeps the tensor objects and reads their memory anew at each call.
    ``executable.take(list)`` is a call that empties the list of its inputs and drops each as soon as the plan is done with it.
    Safe to call from many threads at once and from within itself. Raises PlanError for an illegal plan, KernelMissing where the store lacks
    a kernel (compile it again), BindError for anything else that stands in the way. Calls raise PlanInputError (RC050-RC053) for inputs
    that are not what the plan was compiled for. ``describe``: see ``program.lower``.
    """
    verify(plan)
    wanted = sum(type(item) is TensorInput and item.held for item in plan.inputs)
    if wanted != len(held) or not all(isinstance(tensor, torch.Tensor) for tensor in held):
        raise BindError("RC030", what=f"plan {plan.name!r} holds {wanted} tensors", why=f"it was given {[type(t).__name__ for t in held]}")
    entries = [kernel_entry(ref, store) for ref in plan.kernels]
    _reach_devices(plan)
    problem = _load()
    bodies = [bind(body, [], store) for body in plan.bodies]
    program = lower(plan, held, entries, bodies, describe) if problem is None else None
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


def packs_matrices() -> bool:
    """Whether plans make products with held matrices that stay (``TensorInput.multiplied``) from a packed form: the library of products
    that torch brought along is MKL then."""
    return _load() is None and _native.packs_matrices()


def _reach_devices(plan: Plan) -> None:
    """Raises BindError (RC046) where a device that the plan uses is not there."""
    specs = [item.spec for item in (*plan.inputs, *plan.constants) if not isinstance(item, SizeInput)]
    specs += [step.spec for step in plan.steps if type(step) is Alloc]
    specs += [spec for step in plan.steps if type(step) is Call for spec in step.specs if spec is not None]
    for name in dict.fromkeys((plan.device, *(spec.device for spec in specs))):
        if find(name) is None:
            raise BindError("RC046", what=f"plan {plan.name!r} uses {name}", why="no package that is installed knows such a device")
    used = {find(spec.device) for spec in specs} | {runner(ref.kind) for ref in plan.kernels}
    for device in used - {None}:
        assert device is not None
        if (missing := device.unavailable()) is not None:
            raise BindError("RC046", what=f"kernels on {device.type} cannot be run here", why=missing)


def _numbered(code: str, message: str) -> RuntimeCacheError:
    kind = PlanInputError if code.startswith("RC05") else BindError
    return kind(code, what=message)


@lru_cache(None)
def _warn_once(problem: str) -> None:
    message = f"[RC070] plans run in Python, slowly, because {problem}; please report it with the versions of torch and opmill"
    warnings.warn(message, ExecutorWarning, stacklevel=3)
