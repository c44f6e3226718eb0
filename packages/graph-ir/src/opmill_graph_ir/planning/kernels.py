"""Kernels by whichever generator takes them, and which operators stay behind where none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator
from ..loops.ir import LoopKernel
from ..lowered import Lowered
from ..schedule.steps import KernelStep, Schedule, schedule

Wanted = tuple[LoopKernel, str]
"""A kernel, and the device that it runs on."""


def generate(
    wanted: Sequence[Wanted], settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]
) -> tuple[dict[Wanted, KernelRef], dict[Wanted, str]]:
    """Each kernel by the first generator that claims it; and the kernels that cannot be had, with the reason."""
    shares: dict[tuple[int, GeneratorOptions], list[Wanted]] = {}
    refused: dict[Wanted, str] = {}
    for item in wanted:
        kernel, device = item
        options = replace(settings, device=device)
        reasons = [g.claims(kernel, options) for g in generators]
        if None in reasons:
            shares.setdefault((reasons.index(None), options), []).append(item)
        else:
            refused[item] = f"kernel {kernel.name}: {'; '.join(str(r) for r in reasons)}"
    if refused:
        return {}, refused
    refs: dict[Wanted, KernelRef] = {}
    for (number, options), share in shares.items():
        try:
            refs.update(zip(share, generators[number].build([kernel for kernel, _ in share], options, store), strict=True))
        except KernelBuildError as e:
            refused.update(_failing(share, generators[number], options, store) or dict.fromkeys(share, str(e)))
    return refs, refused


def _failing(share: Sequence[Wanted], generator: KernelGenerator, options: GeneratorOptions, store: Store) -> dict[Wanted, str]:
    """The kernels that cannot be built alone. Stops when the first two fail: then it is not the kernels."""
    refused: dict[Wanted, str] = {}
    for number, item in enumerate(share):
        try:
            generator.build([item[0]], options, store)
        except KernelBuildError as e:
            refused[item] = str(e)
            if number == 1 and len(refused) == 2:
                return {}
    return refused


def origins_behind(
    refused: Iterable[Wanted], program: Schedule, lowered: Lowered, settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator]
) -> frozenset[str]:
    """Origins of the operators that refused kernels come from: of those that cannot be had alone, or else of all."""
    wanted = _origins(program, set(refused))
    apart = schedule(lowered, fusion=False)
    alone = {(s.kernel, s.device) for s in apart.steps if type(s) is KernelStep and wanted & set(s.origin.split("; "))}
    _, guilty = generate(sorted(alone, key=lambda item: (item[0].name, item[1])), settings, store, generators)
    return _origins(apart, guilty.keys()) & wanted or wanted


def _origins(program: Schedule, kernels: Set[Wanted]) -> frozenset[str]:
    steps = (s for s in program.steps if type(s) is KernelStep and (s.kernel, s.device) in kernels)
    return frozenset(o for s in steps for o in s.origin.split("; "))
