"""What a kernel generator is. Generators join through the entry-point group ``opmill.kernel_generators``; the entry is a class or
function that, called without arguments, gives a ``KernelGenerator``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from opmill_fake_tensors.forking import ForkLock
from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

if TYPE_CHECKING:
    from ..loops.ir import LoopKernel

GROUP = "opmill.kernel_generators"


@dataclass(frozen=True)
class GeneratorOptions:
    """What generated code depends on besides the kernel. Hashed whole into the kernel's key.

    ``threads``: how many threads kernels may assume (0: ask at run time). ``precise``: no contraction of a*b+c, no reassociation
    beyond eager's. ``device``: ``"cpu"``, ``"cuda:0"``. ``measure``: generators that can choose among several ways to write a kernel by
    running them do so."""

    device: str = HOST
    threads: int = 0
    precise: bool = False
    measure: bool = False


@runtime_checkable
class KernelGenerator(Protocol):
    """Turns loop kernels into artifacts of the store."""

    name: str

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        """None where the generator takes the kernel; otherwise why not, in a few words. Cheap; called for each kernel."""

    def available(self) -> str | None:
        """None where kernels can be built on this machine; otherwise the reason (no compiler found, say). Asked once a process."""

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        """Builds all kernels, in parallel, taking from the store what is there; refs in the order of ``kernels``.

        Equal kernels (by value, names included; graph-ir hands over canonical names) give the same ref. Raises
        ``opmill_graph_ir.errors.KernelBuildError`` with the toolchain's message."""


@runtime_checkable
class ShowingGenerator(KernelGenerator, Protocol):
    """One that shows what it writes, for ``print_after=("generate",)``."""

    def text(self, kernel: LoopKernel, options: GeneratorOptions) -> str:
        """The kernel in the generator's language, for people."""


@runtime_checkable
class EditableGenerator(ShowingGenerator, Protocol):
    """One that builds texts which people wrote. ``extension``: of files with them; ``comment``: what begins a comment."""

    extension: str
    comment: str

    def build_text(self, kernel: LoopKernel, text: str, options: GeneratorOptions, store: Store) -> KernelRef:
        """Builds what somebody made of ``text(kernel, options)``. Raises ``KernelBuildError`` with the toolchain's message."""


class BuildProgress:
    """How far the builds of a generator are, for people who wait: ``wanted`` pieces of work (of whatever size the generator counts in),
    ``done`` of them. Several threads may build at once; when all is done it begins anew."""

    def __init__(self) -> None:
        self.wanted = self.done = 0
        self._lock = ForkLock()

    def begin(self, pieces: int) -> None:
        with self._lock:
            self.wanted += pieces

    def add(self, pieces: int = 1) -> None:
        """Also for work that failed."""
        with self._lock:
            self.done += pieces
            if self.done >= self.wanted:
                self.wanted = self.done = 0


@runtime_checkable
class TellingGenerator(KernelGenerator, Protocol):
    """One that tells how far it is."""

    progress: BuildProgress


@runtime_checkable
class MeasuringGenerator(KernelGenerator, Protocol):
    """One that can tell how long its kernels take. With ``GeneratorOptions.measure`` it is asked whether an operator of torch's may as well
    be a loop."""

    def seconds(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[float]:
        """Seconds on the device that each kernel takes, built as ``build`` builds it; infinite for one whose checks fail. Raises
        ``KernelBuildError``, and RuntimeError where memory ends for what the kernels work on."""
