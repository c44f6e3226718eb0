"""Kernels by whichever generator takes them, and which operators stay behind where none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator
from ..loops.ir import LoopKernel
from ..lowered import Lowered
from ..schedule.steps import KernelStep, Schedule, schedule


def generate(
    kernels: Sequence[LoopKernel], settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]
) -> tuple[dict[LoopKernel, KernelRef], dict[LoopKernel, str]]:
    """Each kernel by the first generator that claims it; and the kernels that cannot be had, with the reason."""
    shares: dict[int, list[LoopKernel]] = {}
    refused: dict[LoopKernel, str] = {}
    for kernel in kernels:
        reasons = [g.claims(kernel, settings) for g in generators]
        if None in reasons:
            shares.setdefault(reasons.index(None), []).append(kernel)
        else:
            refused[kernel] = f"kernel {kernel.name}: {'; '.join(str(r) for r in reasons)}"
    if refused:
        return {}, refused
    refs: dict[LoopKernel, KernelRef] = {}
    for number, share in shares.items():
        try:
            refs.update(zip(share, generators[number].build(share, settings, store), strict=True))
        except KernelBuildError as e:
            refused.update(_failing(share, generators[number], settings, store) or dict.fromkeys(share, str(e)))
    return refs, refused


def _failing(share: Sequence[LoopKernel], generator: KernelGenerator, settings: GeneratorOptions, store: Store) -> dict[LoopKernel, str]:
    """The kernels that cannot be built alone. Stops when the first two fail: then it is not the kernels."""
    refused: dict[LoopKernel, str] = {}
    for number, kernel in enumerate(share):
        try:
            generator.build([kernel], settings, store)
        except KernelBuildError as e:
            refused[kernel] = str(e)
            if number == 1 and len(refused) == 2:
                return {}
    return refused


def origins_behind(
    refused: Iterable[LoopKernel], program: Schedule, lowered: Lowered, settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]
) -> frozenset[str]:
    """Origins of the operators that refused kernels come from: of those that cannot be had alone, or else of all."""
    wanted = _origins(program, set(refused))
    apart = schedule(lowered, fusion=False)
    alone = {s.kernel for s in apart.steps if type(s) is KernelStep and wanted & set(s.origin.split("; "))}
    _, guilty = generate(sorted(alone, key=lambda k: k.name), settings, store, generators)
    return _origins(apart, guilty.keys()) & wanted or wanted


def _origins(program: Schedule, kernels: Set[LoopKernel]) -> frozenset[str]:
    steps = (s for s in program.steps if type(s) is KernelStep and s.kernel in kernels)
    return frozenset(o for s in steps for o in s.origin.split("; "))
