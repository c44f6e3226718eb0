"""One call of a function of ``torch.optim`` as a plan: a launch of the same kernel for each parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors import strides
from opmill_runtime_cache.devices.registry import find, traits_of
from opmill_runtime_cache.executor.native import bind
from opmill_runtime_cache.plan.model import Launch, Plan, TensorInput, TensorSpec
from opmill_runtime_cache.store import Store

from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator
from ..ops.exprs import FLOATS
from ..planning.kernels import generate
from .kernels import SIZE, update_kernel
from .rules import RULES

Entry = dict[str, torch.Tensor]
"""The tensors of one parameter by name: ``param``, ``grad``, the state and, where steps are counted, ``count``."""


def is_dense(t: torch.Tensor) -> bool:
    """Whether there are elements, and they fill one block of memory, each at a place of its own."""
    return 0 not in t.shape and strides.is_dense(t.shape, t.stride())


def fits(entry: Entry) -> bool:
    """Whether a kernel can walk all the tensors of a parameter together."""
    param = entry["param"]
    for name, t in entry.items():
        if (
            type(t) not in (torch.Tensor, torch.nn.Parameter)
            or t.layout != torch.strided
            or find(t.device.type) is None
            or t.is_inference()
        ):
            return False
        if t.device != param.device and not (name == "count" and traits_of(t.device.type).host):
            return False
        if str(t.dtype).removeprefix("torch.") not in FLOATS or t.is_neg():
            return False
        if name == "count":
            if t.numel() != 1 or t.dtype not in (torch.float32, torch.float64):
                return False
        elif t.shape != param.shape or t.stride() != param.stride():
            return False
    return is_dense(param)


def counted_outside(entry: Entry) -> bool:
    """Whether the kernel cannot reach the count of steps, which torch keeps in the memory of the CPU: then it is a number like others."""
    return "count" in entry and entry["count"].device != entry["param"].device


@functools.lru_cache(None)
def _kernel(rule: str, flags: frozenset[str], dtypes: tuple[tuple[str, str], ...]) -> Any:
    return update_kernel(RULES[rule], flags, dict(dtypes))


def build_update(
    rule: str,
    flags: frozenset[str],
    entries: Sequence[Entry],
    settings: GeneratorOptions,
    store: Store,
    generators: Sequence[KernelGenerator],
) -> Callable[..., Any]:
    """A callable of the hyperparameters (float64, in the order of the rule's ``numbers``; after them the count of this step, where the
    entries have none) and then of all tensors of all entries, in order, which moves every parameter one step. All lie on one device. Raises
    ``KernelBuildError`` where no generator has the kernel, and when it is called ``PlanInputError`` for tensors that are laid out
    otherwise."""
    device = str(entries[0]["param"].device)
    count = len(RULES[rule].numbers) + (RULES[rule].steps and "count" not in entries[0])
    inputs = [TensorInput(0, TensorSpec("float64", (count,), (1,), device), False, "numbers")]
    made = [_kernel(rule, flags, tuple((name, _dtype(t)) for name, t in entry.items())) for entry in entries]
    refs, refused = generate(list({(m.kernel, device): None for m in made}), settings, store, generators)
    if refused:
        raise KernelBuildError("GI050", f"no kernel for optimizer {rule}", why=next(iter(refused.values())))
    numbers = {kernel: k for k, (kernel, _) in enumerate(refs)}
    steps = []
    for number, (entry, kernel) in enumerate(zip(entries, made, strict=True)):
        slots = {"numbers": 0}
        for name, t in entry.items():
            slots[name] = len(inputs)
            spec = TensorSpec(_dtype(t), tuple(t.shape), tuple(t.stride()), device)
            inputs.append(TensorInput(slots[name], spec, False, f"{name}{number}"))
        roles = [b.role for b in kernel.kernel.buffers]
        writes = tuple(k for k, role in enumerate(roles) if role != "in")
        sizes = tuple(entry["param"].numel() for _ in kernel.sizes)
        assert set(kernel.sizes) <= {SIZE}
        steps.append(Launch(numbers[kernel.kernel], tuple(slots[a] for a in kernel.arguments), sizes, writes, (), f"{rule} {number}"))
    plan = Plan(rule, len(inputs), tuple(inputs), (), tuple(steps), (), (), tuple(refs.values()), 0)
    return bind(plan, [], store)


def _dtype(t: torch.Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")
