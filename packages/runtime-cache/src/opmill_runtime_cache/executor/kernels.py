"""Generated kernels in this process: from an artifact of the store to the address of its entry."""

import ctypes
import threading
from collections.abc import Callable

from ..errors import BindError, KernelMissing
from ..plan.model import KernelRef
from ..store import Store

_libraries: dict[tuple[str, str], ctypes.CDLL] = {}
_loading = threading.Lock()


def kernel_entry(ref: KernelRef, store: Store) -> int:
    """The address of the entry of a generated kernel.

    Shared objects stay loaded for the life of the process, one load for each key. Raises KernelMissing (RC031) where the store lacks the
    artifact or it was damaged, BindError (RC032, RC033, RC034) for an artifact that cannot be loaded or lacks the entry.
    """
    loader = LOADERS.get(ref.kind)
    if loader is None:
        raise BindError("RC034", what=f"kernels of kind {ref.kind!r} cannot be run here", why=f"this package runs {', '.join(LOADERS)}")
    return loader(ref, store)


def _load_cpu(ref: KernelRef, store: Store) -> int:
    name = (ref.artifact_kind, ref.key)
    with _loading:
        library = _libraries.get(name)
        if library is None:
            library = _libraries[name] = _open(ref, store)
    try:
        address = ctypes.cast(getattr(library, ref.entry), ctypes.c_void_p).value
    except AttributeError:
        address = None
    if not address:
        raise BindError("RC033", what=f"kernel {ref.key} has no entry {ref.entry!r}", hint="compile again")
    return address


def _open(ref: KernelRef, store: Store) -> ctypes.CDLL:
    path = store.path(ref.artifact_kind, ref.key)
    if path is None:
        raise KernelMissing(
            "RC031", what=f"kernel {ref.artifact_kind}/{ref.key} is not in the store", where=repr(store), hint="compile again"
        )
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BindError(
            "RC032", what=f"kernel {ref.artifact_kind}/{ref.key} cannot be loaded", why=str(error), hint="compile again"
        ) from None


LOADERS: dict[str, Callable[[KernelRef, Store], int]] = {"cpu": _load_cpu}
"""How kernels of each kind become addresses."""
