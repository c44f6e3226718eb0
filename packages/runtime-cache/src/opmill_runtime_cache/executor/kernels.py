"""Generated kernels in this process: from an artifact of the store to what an executor can start."""

from ..devices.protocol import Kernel, Loader
from ..devices.registry import runner
from ..errors import BindError
from ..plan.model import KernelRef
from ..store import Store

LOADERS: dict[str, Loader] = {}
"""How kernels of further kinds are made ready: kinds that no device runs (interpreted ones, say)."""


def kernel_entry(ref: KernelRef, store: Store) -> Kernel:
    """A generated kernel, ready to be started.

    Raises KernelMissing (RC031) where the store lacks the artifact or it was damaged, BindError (RC032, RC033, RC034) for an artifact that
    cannot be loaded, lacks the entry or does not say what it touches, or that no device here runs.
    """
    if (load := LOADERS.get(ref.kind)) is not None:
        return load(ref, store)
    device = runner(ref.kind)
    if device is None:
        raise BindError("RC034", what=f"kernels of kind {ref.kind!r} cannot be run here", why="no device that is installed runs them")
    return device.kinds[ref.kind](ref, store)


__all__ = ["LOADERS", "kernel_entry"]
