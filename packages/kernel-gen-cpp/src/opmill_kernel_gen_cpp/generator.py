"""The kernel generator for CPUs. What writes and compiles kernels is imported when it is needed: plans from the store need none of it, and
importing it is a good part of a warm start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.generator.protocol import BuildProgress, GeneratorOptions
from opmill_runtime_cache.plan.contract import encode
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store, key_of, sources_of

from . import toolchain
from .__about__ import __version__
from .names import ARTIFACT, INDEX
from .target import Target, host

if TYPE_CHECKING:
    from opmill_graph_ir.loops.ir import LoopKernel


class CppKernelGenerator:
    """Builds loop kernels with the system's C++ compiler for the vector width of this machine (or of ``target``)."""

    name, extension, comment = "cpp", "cpp", "//"

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or host()
        self.progress = BuildProgress()

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        """Why a kernel cannot be written in C++ for the device of the options; None where it can."""
        if not options.device.startswith("cpu"):
            return f"device {options.device} is not a CPU"
        from .claim import refusal

        return refusal(kernel)

    def available(self) -> str | None:
        """Why no kernel can be built here: there is no C++ compiler; None where there is."""
        found = toolchain.located()  # not run before there is something to build
        return found if isinstance(found, str) else None

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        """One reference for each kernel; what the store has is not built again. Raises ``KernelBuildError`` where a compiler fails."""
        compiler = toolchain.find()
        if isinstance(compiler, str):
            raise KernelBuildError("KC003", "no kernel can be built", why=compiler, hint="install g++ or set CXX")
        keys: dict[LoopKernel, str] = {}
        for kernel in kernels:
            if kernel not in keys:
                keys[kernel] = self._key(kernel, options, compiler, store.portable)
        store.fetch(INDEX, keys.values())
        refs = {key: ref for key in keys.values() if (ref := _known(store, key)) is not None}
        missing = {key: kernel for kernel, key in keys.items() if key not in refs}
        if missing:
            from .build import make

            refs.update(make(missing, compiler, self.target, store, self.progress))
        return [refs[keys[k]] for k in kernels]

    def text(self, kernel: LoopKernel, options: GeneratorOptions) -> str:
        """The kernel in C++, without what all texts begin with."""
        from .build import text_of

        return text_of(kernel, "kernel", self.target).body

    def build_text(self, kernel: LoopKernel, text: str, options: GeneratorOptions, store: Store) -> KernelRef:
        """As an ``EditableGenerator``."""
        compiler = toolchain.find()
        if isinstance(compiler, str):
            raise KernelBuildError("KC003", "no kernel can be built", why=compiler, hint="install g++ or set CXX")
        from .build import make_edited

        return make_edited(kernel, text, self._key(kernel, options, compiler), compiler, self.target, store)

    def _key(self, kernel: LoopKernel, options: GeneratorOptions, compiler: toolchain.Toolchain, portable: bool = False) -> str:
        """The kernel itself is the key, with all that its text and machine code depend on."""
        from opmill_graph_ir.generator.contract import contract_of

        environment = (
            encode(contract_of(kernel)),
            __version__,
            sources_of(__package__, portable),
            compiler.command,
            compiler.version,
            toolchain.BASE_FLAGS,
            toolchain.LINK_FLAGS,
            self.target,
            options,
        )
        return key_of(kernel, *environment)


def _known(store: Store, key: str) -> KernelRef | None:
    """Where a kernel was built before, if its shared object is still there."""
    note = store.get(INDEX, key)
    if note is None:
        return None
    batch, _, entry = note.decode().partition(" ")
    return KernelRef("cpu", ARTIFACT, batch, entry) if store.contains(ARTIFACT, batch) else None
