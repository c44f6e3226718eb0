"""Generated kernels in this process: from an artifact of the store to what an executor can start."""

import ctypes
from collections.abc import Callable

import msgspec

from ..errors import BindError, KernelMissing
from ..forking import ForkLock
from ..plan import contract
from ..plan.contract import Contract
from ..plan.launch import LaunchData, decode
from ..plan.model import KernelRef
from ..store import Store

_libraries: dict[tuple[str, str], ctypes.CDLL] = {}
_loading = ForkLock()


class CudaKernel(msgspec.Struct, frozen=True):
    """A GPU kernel: ``data`` says how to launch it, ``cubins`` is its machine code. ``name`` tells kernels apart in a process."""

    name: str
    data: LaunchData
    cubins: bytes
    contract: Contract | None = None


class CpuKernel(msgspec.Struct, frozen=True):
    """A kernel of this process: the address of its entry, and what it touches. ``contract`` None: made here by somebody who answers for each
    launch of it himself."""

    address: int
    contract: Contract | None = None


Entry = CpuKernel | CudaKernel
"""A kernel that can be started."""


def kernel_entry(ref: KernelRef, store: Store) -> Entry:
    """A generated kernel, ready to be started.

    Shared objects stay loaded for the life of the process, one load for each key. Raises KernelMissing (RC031) where the store lacks the
    artifact or it was damaged, BindError (RC032, RC033, RC034) for an artifact that cannot be loaded, lacks the entry or does not say what
    it touches.
    """
    loader = LOADERS.get(ref.kind)
    if loader is None:
        raise BindError("RC034", what=f"kernels of kind {ref.kind!r} cannot be run here", why=f"this package runs {', '.join(LOADERS)}")
    return loader(ref, store)


def _load_cpu(ref: KernelRef, store: Store) -> CpuKernel:
    name = (ref.artifact_kind, ref.key)
    with _loading:
        library = _libraries.get(name)
        if library is None:
            library = _libraries[name] = _open(ref, store)
    try:
        address = ctypes.cast(getattr(library, ref.entry), ctypes.c_void_p).value
        said = ctypes.addressof(ctypes.c_char.in_dll(library, f"{ref.entry}_contract"))
    except (AttributeError, ValueError):
        address = said = None
    if not address or not said:
        raise BindError("RC033", what=f"kernel {ref.key} has no entry {ref.entry!r} with a contract", hint="compile again")
    try:
        return CpuKernel(address, contract.decode(ctypes.string_at(said)))
    except msgspec.MsgspecError as error:
        raise _unloadable(ref, f"its contract: {error}") from None


def _open(ref: KernelRef, store: Store) -> ctypes.CDLL:
    path = store.path(ref.artifact_kind, ref.key)
    if path is None:
        raise _missing(ref, store)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise _unloadable(ref, str(error)) from None


def _load_cubin(ref: KernelRef, store: Store) -> CudaKernel:
    cubins = store.get(ref.artifact_kind, ref.key)
    if cubins is None:
        raise _missing(ref, store)
    try:
        data = decode(str(ref.meta.get("launch", "")))
    except msgspec.MsgspecError as error:
        raise _unloadable(ref, f"launch data: {error}") from None
    forms = [form for step in data.steps for form in step.forms]
    if any(form.scratch or form.profile for form in forms):
        raise _unloadable(ref, "it takes memory that no launcher gives")
    if any(form.offset + form.size > len(cubins) for form in forms):
        raise _unloadable(ref, "launch data and machine code do not belong together")
    return CudaKernel(f"{ref.artifact_kind}/{ref.key}", data, cubins)


def _missing(ref: KernelRef, store: Store) -> KernelMissing:
    return KernelMissing("RC031", what=f"kernel {ref.artifact_kind}/{ref.key} is not in the store", where=repr(store), hint="compile again")


def _unloadable(ref: KernelRef, why: str) -> BindError:
    return BindError("RC032", what=f"kernel {ref.artifact_kind}/{ref.key} cannot be loaded", why=why, hint="compile again")


LOADERS: dict[str, Callable[[KernelRef, Store], Entry]] = {"cpu": _load_cpu, "cubin": _load_cubin}
"""How kernels of each kind are made ready."""
