"""The kernel generator for GPUs, by way of Triton. What writes kernels is imported when one is made: plans from the store need none of
it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import BuildProgress, GeneratorOptions
from opmill_graph_ir.loops.index import Index, mod
from opmill_runtime_cache.plan.launch import VERSION, Arg, Form, LaunchData, Step
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.plan.sealed import seal
from opmill_runtime_cache.store import Store, key_of, sources_of

from . import toolchain
from .__about__ import __version__
from .budget import DEFAULT, Budget, smaller
from .emit.types import ARCH, PROGRAMMATIC, TYPES
from .pool import Compiled, Pool

if TYPE_CHECKING:
    import torch

    from opmill_graph_ir.loops.ir import LoopKernel

    from .kernel import KernelText
    from .nest import Function

ARTIFACT = "cuda-cubin"
"""Artifact kind of a kernel, sealed: launch data, contract and cubins."""
OLDEST = 80
"""The lowest compute capability (times ten) that generated kernels run on: bfloat16, and atomics on it, need it."""

_SHARED = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}
"""KiB of shared memory that a program may have, by compute capability times ten; 99 on others."""


def shared_memory(arch: int) -> int:
    """Bytes of shared memory that a program may have."""
    return _SHARED.get(arch, 99) << 10


class TritonKernelGenerator:
    """Builds loop kernels with Triton, for the device of the options or for ``arch`` (compute capability times ten; needs no GPU)."""

    name, extension, comment = "triton", "py", "#"

    def __init__(self, arch: int | None = None, workers: int | None = None, budget: Budget = DEFAULT) -> None:
        self.arch, self.budget = arch, budget
        self._pool = Pool(workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    @property
    def progress(self) -> BuildProgress:
        """How many functions are compiled of how many."""
        return self._pool.progress

    @property
    def target(self) -> tuple[object, ...]:
        """What kernels are built with and for, besides this package: part of the keys of whole plans."""
        return toolchain.triton_version(), toolchain.assembler_version(), self.arch or toolchain.architectures(), self.budget

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        """Why a kernel cannot be written in Triton for the device of the options; None where it can."""
        if not options.device.startswith("cuda"):
            return f"device {options.device} is not a CUDA device"
        from .claim import refusal

        return refusal(kernel)

    def available(self) -> str | None:
        """Why no kernel can be built: triton is missing, or there is no device to build for, or it is too old."""
        if toolchain.triton_version() is None:
            return "triton is not installed (pip install opmill-kernel-gen-triton[triton])"
        arch = self._target("cuda")
        return arch if isinstance(arch, str) else None

    def _target(self, device: str) -> int | str:
        arch = self.arch if self.arch is not None else toolchain.arch_of(device)
        if isinstance(arch, int) and arch < OLDEST:
            return f"compute capability {arch // 10}.{arch % 10} is older than {OLDEST // 10}.{OLDEST % 10}"
        return arch

    def _arch(self, options: GeneratorOptions) -> int:
        """What to build for. Raises ``KernelBuildError`` where nothing can be built."""
        arch = self._target(options.device)
        reason = arch if isinstance(arch, str) else None if toolchain.triton_version() else self.available()
        if reason is not None or isinstance(arch, str):
            raise KernelBuildError("KT001", "no Triton kernel can be built", why=reason or "", hint="ask available() first")
        return arch

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        """One reference for each kernel; what the store has is not built again. Raises ``KernelBuildError`` where a compiler fails."""
        if not kernels:
            return []
        arch = self._arch(options)
        keys = {k: self._key(k, options, arch, store.portable) for k in dict.fromkeys(kernels)}
        store.fetch(ARTIFACT, keys.values())
        refs = {key: ref for key in keys.values() if (ref := _known(store, key)) is not None}
        missing = {key: kernel for kernel, key in keys.items() if key not in refs}
        if missing:
            refs.update(self._make(missing, options, arch, store))
        return [refs[keys[k]] for k in kernels]

    def text(self, kernel: LoopKernel, options: GeneratorOptions) -> str:
        """The kernel in Triton: its functions in the order of launches, each under a comment that tells how it is launched."""
        from .edited import shown

        return shown(_text(kernel, self.budget, options.precise))

    def build_text(self, kernel: LoopKernel, text: str, options: GeneratorOptions, store: Store) -> KernelRef:
        """As an ``EditableGenerator``. Raises ``KernelBuildError``: KT003 with Triton's message, KT006 where the text is another
        kernel's."""
        from .edited import read

        arch = self._arch(options)
        edited = read(_text(kernel, self.budget, options.precise), text)
        key = key_of(self._key(kernel, options, arch), "edited", text)
        with store.lock(ARTIFACT, key):
            if (known := _known(store, key)) is not None:
                return known
            jobs = _jobs(edited, arch)
            made = dict(zip(jobs, self._pool.compile_all(list(jobs.values())), strict=True))
            if any(one.facts["shared"] > shared_memory(arch) for one in made.values()):
                raise _too_large(kernel.name, arch)
            return _kept(key, kernel, *_assemble(kernel, edited, arch, made), store)

    def seconds(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[float]:
        """As a ``MeasuringGenerator``."""
        import torch

        from opmill_runtime_cache.devices.cuda.kernel import load_cubin

        from .autotune import seconds

        with torch.cuda.device(device := _device(options.device)), torch.no_grad():
            entries = [load_cubin(ref, store) for ref in self.build(kernels, options, store)]
            return [seconds(k, e.data, e.cubins, device) for k, e in zip(kernels, entries, strict=True)]

    def _compiled(
        self, wanted: dict[str, LoopKernel], options: GeneratorOptions, arch: int
    ) -> tuple[dict[str, KernelText], dict[str, Compiled]]:
        """Texts by key, and what became of their functions. Kernels that need more shared memory than there is are written again,
        smaller."""
        texts: dict[str, KernelText] = {}
        made: dict[str, Compiled] = {}
        budget = self.budget
        while wanted:
            texts |= {key: _text(kernel, budget, options.precise) for key, kernel in wanted.items()}
            jobs = {key: _jobs(texts[key], arch) for key in wanted}
            units = {unit: job for found in jobs.values() for unit, job in found.items() if unit not in made}
            made.update(zip(units, self._pool.compile_all(list(units.values())), strict=True))
            wanted = {
                key: kernel for key, kernel in wanted.items() if any(made[unit].facts["shared"] > shared_memory(arch) for unit in jobs[key])
            }
            if wanted and smaller(budget) == budget:
                raise _too_large(next(iter(wanted.values())).name, arch)
            budget = smaller(budget)
        return texts, made

    def _variants(
        self, wanted: dict[str, LoopKernel], texts: dict[str, KernelText], options: GeneratorOptions, arch: int
    ) -> dict[str, list[tuple[LaunchData, bytes]]]:
        """Other ways to write each kernel, where this process can run them."""
        from .autotune import tiles_of, variants

        if toolchain.arch_of(options.device) != arch:
            return {}
        found = {key: [_text(k, b, options.precise) for b in variants(self.budget, tiles_of(k))[1:]] for key, k in wanted.items()}
        ways = {key: [t for t in dict.fromkeys(each) if t.functions != texts[key].functions] for key, each in found.items()}
        jobs = {unit: job for each in ways.values() for text in each for unit, job in _jobs(text, arch).items()}
        try:
            made = dict(zip(jobs, self._pool.compile_all(list(jobs.values())), strict=True))
        except KernelBuildError:  # what the cost model chose can be built, and that is enough
            return {}
        small = {unit for unit, one in made.items() if one.facts["shared"] <= shared_memory(arch)}
        return {key: [_assemble(wanted[key], t, arch, made) for t in each if _jobs(t, arch).keys() <= small] for key, each in ways.items()}

    def _key(self, kernel: LoopKernel, options: GeneratorOptions, arch: int, portable: bool = False) -> str:
        """The kernel itself is the key, with all that its text and machine code depend on."""
        from opmill_graph_ir.generator.contract import contract_of

        versions = __version__, VERSION, sources_of(__package__, portable), toolchain.triton_version(), toolchain.assembler_version()
        return key_of(
            kernel,
            contract_of(kernel),
            versions,
            arch,
            options.precise,
            self.budget,
            *([toolchain.device_name(options.device)] if options.measure else []),
        )

    def _make(self, missing: dict[str, LoopKernel], options: GeneratorOptions, arch: int, store: Store) -> dict[str, KernelRef]:
        refs: dict[str, KernelRef] = {}
        with ExitStack() as locks:
            for key in sorted(missing):
                locks.enter_context(store.lock(ARTIFACT, key))
            wanted = {key: kernel for key, kernel in missing.items() if (ref := _known(store, key)) is None or refs.update({key: ref})}
            texts, made = self._compiled(wanted, options, arch)
            others = self._variants(wanted, texts, options, arch) if options.measure else {}
            for key, text in texts.items():
                data, artifact = _assemble(missing[key], text, arch, made)
                if ways := others.get(key):
                    data, artifact = _fastest(missing[key], [(data, artifact), *ways], options.device)
                refs[key] = _kept(key, missing[key], data, artifact, store)
        return refs


def _kept(key: str, kernel: LoopKernel, data: LaunchData, cubins: bytes, store: Store) -> KernelRef:
    """Puts a kernel into the store, with what it touches."""
    from opmill_graph_ir.generator.contract import contract_of

    store.put(ARTIFACT, key, seal(data, contract_of(kernel), cubins))
    return _ref(key)


def _too_large(name: str, arch: int) -> KernelBuildError:
    return KernelBuildError(
        "KT005", f"kernel {name} needs more shared memory than there is", why=f"a program may have {shared_memory(arch)} bytes"
    )


def _fastest(kernel: LoopKernel, ways: list[tuple[LaunchData, bytes]], device: str) -> tuple[LaunchData, bytes]:
    from .autotune import fastest

    return ways[fastest(kernel, ways, _device(device))]


def _device(name: str) -> torch.device:
    import torch

    place = torch.device(name)
    return torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)


def _ref(key: str) -> KernelRef:
    return KernelRef("cubin", ARTIFACT, key, f"k_{key[:20]}")


def _known(store: Store, key: str) -> KernelRef | None:
    """A kernel built before, if its cubins are still there."""
    return _ref(key) if store.contains(ARTIFACT, key) else None


def _text(kernel: LoopKernel, budget: Budget, precise: bool) -> KernelText:
    from .kernel import kernel_text

    try:
        return kernel_text(kernel, budget, precise)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise KernelBuildError(
            "KT004",
            f"no text could be written for kernel {kernel.name}",
            why=f"{type(error).__name__}: {error}",
            hint="a bug, or invalid loop IR",
        ) from error


def _jobs(text: KernelText, arch: int) -> dict[str, dict[str, Any]]:
    """What is to be compiled, by what identifies it."""
    functions = (f for forms in text.functions for f in forms)
    jobs = (job_of(f, arch, aligned, text.contracts) for f in functions for aligned in alignments(f))
    return {key_of(job): job for job in jobs}


def alignments(function: Function) -> tuple[bool, ...]:
    """Forms to compile: for pointers that are multiples of 16 bytes, and for any."""
    return (True, False) if any(p.kind == "buffer" for p in function.params) else (False,)


def job_of(function: Function, arch: int, aligned: bool, contracts: bool) -> dict[str, Any]:
    """What a compiler process is told."""
    width = "i64" if function.wide else "i32"
    return {
        "text": function.text,
        "name": function.name,
        "signature": {p.name: p.type or width for p in function.params},
        "constants": {**dict(function.constants), ARCH: arch},
        "aligned": [k for k, p in enumerate(function.params) if p.kind in ("buffer", "scratch") and aligned],
        "arch": arch,
        "warps": function.warps,
        "stages": function.stages,
        "contracts": contracts,
    }


def _assemble(kernel: LoopKernel, text: KernelText, arch: int, made: dict[str, Compiled]) -> tuple[LaunchData, bytes]:
    """Launch data, and all cubins in one."""
    from .kernel import LIMIT

    artifact = bytearray()
    places: dict[str, int] = {}
    scratch, offsets = _scratch(text)
    steps = []
    for forms in text.functions:
        compiled = []
        for function in forms:
            for aligned in alignments(function):
                unit = key_of(job_of(function, arch, aligned, text.contracts))
                one = made[unit]
                if unit not in places:
                    artifact += bytes(-len(artifact) % 64)
                    places[unit] = len(artifact)
                    artifact += one.cubin
                fits = tuple(str(s) for s in text.span) if len(forms) > 1 and not function.wide else ()
                facts = one.facts
                compiled.append(
                    Form(
                        places[unit],
                        len(one.cubin),
                        facts["entry"],
                        facts["warps"],
                        facts["shared"],
                        16 if aligned else 1,
                        64 if function.wide else 32,
                        fits,
                        LIMIT if fits else 0,
                        facts["scratch"],
                        facts["profile"],
                        arch >= PROGRAMMATIC,
                    )
                )
        steps.append(Step(_size(forms[0].grid), _args(kernel, forms[0], offsets), tuple(compiled)))
    checks = sum(len(p.checks) for n in kernel.nests for p in n.phases)
    return LaunchData(arch, kernel.symbols, tuple(steps), scratch, checks), bytes(artifact)


def _args(kernel: LoopKernel, function: Function, offsets: dict[str, int | str]) -> tuple[Arg, ...]:
    numbers = {b.name: k for k, b in enumerate(kernel.buffers)}
    out = []
    for p in function.params:
        if p.kind == "buffer" and p.buffer in offsets:
            out.append(Arg("scratch", 0, offsets[p.buffer]))
        elif p.kind == "buffer":
            out.append(Arg("buffer", numbers[p.buffer]))
        elif p.kind == "size":
            out.append(Arg("size", kernel.symbols.index(p.name)))
        else:
            out.append(Arg(p.kind))
    return tuple(out)


def _scratch(text: KernelText) -> tuple[int | str, dict[str, int | str]]:
    """Bytes of scratch, and where each scratch buffer starts."""
    total: Index = Index(())
    offsets: dict[str, int | str] = {}
    for b in text.scratch:
        offsets[b.name] = _size(total)
        numel = b.numel * TYPES[b.dtype].size
        k = numel.constant
        total = total + (-(-k // 256) * 256 if k is not None else numel + 256 + -1 * mod(numel, 256))
    return _size(total), offsets


def _size(i: Index) -> int | str:
    return i.constant if i.constant is not None else str(i)
