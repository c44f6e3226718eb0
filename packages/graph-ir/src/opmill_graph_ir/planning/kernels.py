"""Kernels by whichever generator takes them, and which operators stay behind where none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from opmill_fake_tensors.passing import may_pass
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

from ..errors import KernelBuildError
from ..generator.protocol import GeneratorOptions, KernelGenerator
from ..loops.ir import LoopKernel
from ..loops.text import show
from ..lowered import Lowered
from ..schedule.steps import KernelStep, Schedule, schedule
from .overriding import build

Wanted = tuple[LoopKernel, str]
"""A kernel, and the device that it runs on."""


def generate(
    wanted: Sequence[Wanted], settings: GeneratorOptions, store: Store, generators: Sequence[KernelGenerator], override: str = ""
) -> tuple[dict[Wanted, KernelRef], dict[Wanted, str]]:
    """Each kernel by the first generator that claims it, as edited in the folder ``override`` if there is one; and the kernels that cannot
    be had, with the reason. Raises KernelBuildError where that may be otherwise in a moment (no process to be had): a plan without the
    kernel would be kept for ever."""
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
            refs.update(zip(share, build(generators[number], [kernel for kernel, _ in share], options, store, override), strict=True))
        except KernelBuildError as e:
            if may_pass(e) or override:
                raise  # who edits kernels wants to know
            refused.update(_failing(share, generators[number], options, store) or dict.fromkeys(share, str(e)))
    return refs, refused


def _failing(share: Sequence[Wanted], generator: KernelGenerator, options: GeneratorOptions, store: Store) -> dict[Wanted, str]:
    """The kernels that cannot be built alone. Stops when the first two fail: then it is not the kernels."""
    refused: dict[Wanted, str] = {}
    for number, item in enumerate(share):
        try:
            generator.build([item[0]], options, store)
        except KernelBuildError as e:
            if may_pass(e):
                raise
            refused[item] = str(e)
            if number == 1 and len(refused) == 2:
                return {}
    return refused


def sources_behind(
    refused: Iterable[Wanted],
    program: Schedule,
    lowered: Lowered,
    settings: GeneratorOptions,
    store: Store,
    generators: Sequence[KernelGenerator],
) -> frozenset[str]:
    """Nodes of the aten graph (names of first results) that refused kernels come of: of those that cannot be had alone, or else of all."""
    wanted = _sources(program, set(refused))
    apart = schedule(lowered, fusion=False)
    alone = {(s.kernel, s.device) for s in apart.steps if type(s) is KernelStep and not wanted.isdisjoint(s.sources)}
    _, guilty = generate(sorted(alone, key=lambda item: (item[0].name, item[1])), settings, store, generators)
    return _sources(apart, guilty.keys()) & wanted or wanted


def _sources(program: Schedule, kernels: Set[Wanted]) -> frozenset[str]:
    steps = (s for s in program.steps if type(s) is KernelStep and (s.kernel, s.device) in kernels)
    return frozenset(name for s in steps for name in s.sources)


@dataclass(frozen=True)
class KernelTexts:
    """Kernels, and what writes their text."""

    wanted: Sequence[Wanted]
    settings: GeneratorOptions
    generators: Sequence[KernelGenerator]


def texts_of(texts: KernelTexts) -> list[tuple[LoopKernel, str, str]]:
    """Each kernel with the name of its generator and what that writes for it (C++, Triton); without one's ``text``, loop IR."""
    found = []
    for kernel, device in texts.wanted:
        options = replace(texts.settings, device=device)
        taken = next((g for g in texts.generators if g.claims(kernel, options) is None), None)
        text = getattr(taken, "text", None)
        found.append((kernel, getattr(taken, "name", "no generator"), show(kernel) if text is None else text(kernel, options)))
    return found


def show_texts(texts: KernelTexts) -> str:
    """What generators write for the kernels, each under the generator's name and the kernel's."""
    devices = [device for _, device in texts.wanted]
    told = zip(texts_of(texts), devices, strict=True)
    return "\n".join(f"# {generator}: {kernel.name} on {device}\n{text}" for (kernel, generator, text), device in told)
