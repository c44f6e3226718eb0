"""Makes kernels: texts, shared out over compiler processes, and shared objects put into the store."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import BuildProgress
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store, key_of

from . import toolchain
from .kernel import KernelText, kernel_text, source
from .names import ARTIFACT, INDEX
from .target import Target

_SMALLEST_UNIT = 12_000
"""Characters of kernel text below which another compiler process costs more than it saves."""


def make(
    missing: dict[str, LoopKernel], compiler: toolchain.Toolchain, target: Target, store: Store, progress: BuildProgress | None = None
) -> dict[str, KernelRef]:
    """Builds kernels by their keys, as many at once as there are processors."""
    texts = {key: text_of(kernel, f"k_{key[:20]}", target) for key, kernel in missing.items()}
    workers = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
    groups = _share(list(texts), {k: len(t.body) for k, t in texts.items()}, workers or 1)
    batches = {key_of(*group): group for group in groups}
    refs = {}
    with ExitStack() as locks:
        for batch in sorted(batches):
            locks.enter_context(store.lock(ARTIFACT, batch))
        todo = {b: [texts[k] for k in group] for b, group in batches.items() if not store.contains(ARTIFACT, b)}
        where = locks.enter_context(store.workspace()) if todo else None
        made = compiler.compile_all([_job(unit, target) for unit in todo.values()], workers or 1, where, progress)
        for batch, data in zip(todo, made, strict=True):
            store.put(ARTIFACT, batch, data)
        for batch, group in batches.items():
            for key in group:
                refs[key] = KernelRef("cpu", ARTIFACT, batch, texts[key].entry)
                store.put(INDEX, key, f"{batch} {texts[key].entry}".encode())
    return refs


def make_edited(kernel: LoopKernel, text: str, key: str, compiler: toolchain.Toolchain, target: Target, store: Store) -> KernelRef:
    """Builds what somebody made of the text of a kernel, which defines the function ``kernel``. ``key``: of the kernel as generated."""
    whole = KernelText("kernel", text, text_of(kernel, "kernel", target).prelude)
    made = key_of(key, "edited", text)
    with store.lock(ARTIFACT, made):
        if not store.contains(ARTIFACT, made):
            with store.workspace() as where:
                data = _compiled_edit(whole, compiler, target, where)
            store.put(ARTIFACT, made, data)
    return KernelRef("cpu", ARTIFACT, made, "kernel")


def _compiled_edit(text: KernelText, compiler: toolchain.Toolchain, target: Target, where: Path) -> bytes:
    try:
        [data] = compiler.compile_all([_job([text], target)], 1, where)
    except KernelBuildError as error:
        if error.code != "KC001":
            raise
        told = "mend what was edited, or remove the file to be rid of the edit"
        raise KernelBuildError("KC001", "the C++ compiler refused an edited kernel", where=error.where, why=error.why, hint=told) from None
    return data


def text_of(kernel: LoopKernel, entry: str, target: Target) -> KernelText:
    """The text of a kernel. Raises ``KernelBuildError`` KC004 where it cannot be written."""
    try:
        return kernel_text(kernel, entry, target)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise KernelBuildError(
            "KC004",
            f"no text could be written for kernel {kernel.name}",
            why=f"{type(error).__name__}: {error}",
            hint="a bug, or invalid loop IR",
        ) from error


def _job(texts: list[KernelText], target: Target) -> tuple[str, tuple[str, ...], bool]:
    return source(texts), target.flags, any(name == "uses sleef" for t in texts for name, _ in t.prelude)


def _share(keys: list[str], weights: dict[str, int], workers: int) -> list[list[str]]:
    """Groups of about equal weight, at most one a worker; the largest first to the lightest group."""
    count = max(1, min(workers, len(keys), -(-sum(weights.values()) // _SMALLEST_UNIT)))
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for key in sorted(keys, key=lambda k: (-weights[k], k)):
        n = loads.index(min(loads))
        groups[n].append(key)
        loads[n] += weights[key]
    return [sorted(g) for g in groups if g]
