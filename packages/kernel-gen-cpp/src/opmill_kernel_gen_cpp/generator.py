"""The kernel generator for CPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store, key_of

from . import claim, toolchain
from .__about__ import __version__
from .kernel import KernelText, kernel_text, source
from .target import Target, host

ARTIFACT = "cpu-so"
INDEX = "cpu-kernel"
"""Artifact kind of the notes that say which shared object a kernel is in."""
_SMALLEST_UNIT = 12_000
"""Characters of kernel text below which another compiler process costs more than it saves."""


class CppKernelGenerator:
    """Builds loop kernels with the system's C++ compiler for the vector width of this machine (or of ``target``)."""

    name = "cpp"

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or host()

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        if not options.device.startswith("cpu"):
            return f"device {options.device} is not a CPU"
        return claim.refusal(kernel)

    def available(self) -> str | None:
        found = toolchain.find()
        return found if isinstance(found, str) else None

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        compiler = toolchain.find()
        if isinstance(compiler, str):
            raise KernelBuildError("KC003", "no kernel can be built", why=compiler, hint="install g++ or set CXX")
        keys: dict[LoopKernel, str] = {}
        for kernel in kernels:
            if kernel not in keys:
                keys[kernel] = self._key(kernel, options, compiler)
        refs = {key: ref for key in keys.values() if (ref := _known(store, key)) is not None}
        missing = {key: kernel for kernel, key in keys.items() if key not in refs}
        if missing:
            refs.update(self._make(missing, compiler, store))
        return [refs[keys[k]] for k in kernels]

    def _key(self, kernel: LoopKernel, options: GeneratorOptions, compiler: toolchain.Toolchain) -> str:
        """The kernel itself is the key, with all that its text and machine code depend on."""
        environment = (__version__, compiler.command, compiler.version, toolchain.BASE_FLAGS, toolchain.LINK_FLAGS, self.target, options)
        return key_of(kernel, *environment)

    def _text(self, kernel: LoopKernel, entry: str) -> KernelText:
        try:
            return kernel_text(kernel, entry, self.target)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise KernelBuildError(
                "KC004",
                f"no text could be written for kernel {kernel.name}",
                why=f"{type(error).__name__}: {error}",
                hint="a bug, or invalid loop IR",
            ) from error

    def _make(self, missing: dict[str, LoopKernel], compiler: toolchain.Toolchain, store: Store) -> dict[str, KernelRef]:
        texts = {key: self._text(kernel, f"k_{key[:20]}") for key, kernel in missing.items()}
        workers = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
        groups = _share(list(texts), {k: len(t.body) for k, t in texts.items()}, workers or 1)
        batches = {key_of(*group): group for group in groups}
        refs = {}
        with ExitStack() as locks:
            for batch in sorted(batches):
                locks.enter_context(store.lock(ARTIFACT, batch))
            todo = {b: [texts[k] for k in group] for b, group in batches.items() if not store.contains(ARTIFACT, b)}
            made = compiler.compile_all([_job(unit, self.target) for unit in todo.values()], workers or 1)
            for batch, data in zip(todo, made, strict=True):
                store.put(ARTIFACT, batch, data)
            for batch, group in batches.items():
                for key in group:
                    refs[key] = KernelRef("cpu", ARTIFACT, batch, texts[key].entry)
                    store.put(INDEX, key, f"{batch} {texts[key].entry}".encode())
        return refs


def _job(texts: list[KernelText], target: Target) -> tuple[str, tuple[str, ...], bool]:
    return source(texts), target.flags, any(name == "uses sleef" for t in texts for name, _ in t.prelude)


def _known(store: Store, key: str) -> KernelRef | None:
    """Where a kernel was built before, if its shared object is still there."""
    note = store.get(INDEX, key)
    if note is None:
        return None
    batch, _, entry = note.decode().partition(" ")
    return KernelRef("cpu", ARTIFACT, batch, entry) if store.contains(ARTIFACT, batch) else None


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
