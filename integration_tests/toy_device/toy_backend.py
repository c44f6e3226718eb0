"""A device as torch wants one: ``torch.device("toy")``, written in Python.

Its memory is malloc's, which torch is given through DLPack as memory of ``PrivateUse1``. Operators are those of processors, run on the same
bytes: what they write is written, and what they make anew is copied to memory of the device.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME, NUMBER = "toy", 20  # c10::DeviceType::PrivateUse1
_DLPACK = 12  # kDLExtDev, which torch takes for PrivateUse1
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [
    ("data", ctypes.c_void_p),
    ("device", ctypes.c_int32 * 2),
    ("ndim", ctypes.c_int32),
    ("dtype", ctypes.c_uint8 * 4),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("offset", ctypes.c_uint64),
    ("context", ctypes.c_void_p),
    ("delete", _Deleter),
]
allocated: dict[int, Any] = {}
"""Blocks of the device that are in use, by the address of what describes them."""


@_Deleter
def _delete(managed: Any) -> None:
    _libc.free(managed.contents.data)
    del allocated[ctypes.addressof(managed.contents)]


def _block(size: int) -> torch.Tensor:
    """Bytes of the device."""
    shape, strides = (ctypes.c_int64 * 1)(size), (ctypes.c_int64 * 1)(1)
    managed = _Managed(
        _libc.malloc(size + 64), (ctypes.c_int32 * 2)(_DLPACK, 0), 1, (ctypes.c_uint8 * 4)(1, 8, 1, 0), shape, strides, 0, None, _delete
    )
    allocated[ctypes.addressof(managed)] = managed, shape, strides
    return torch.from_dlpack(_capsule(ctypes.addressof(managed), b"dltensor", None))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    elements = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    flat = _block(elements * dtype.itemsize)
    return _over(_typed(flat, dtype), size, stride, 0)


def _typed(bytes_: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.ops.aten.view.dtype(bytes_, dtype) if dtype is not torch.uint8 else bytes_


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
    like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    return _empty_strided(size, like.stride(), dtype=dtype)


def _over(base: torch.Tensor, size: Any, stride: Any, offset: Any = None) -> torch.Tensor:
    start = 0 if offset is None else offset - base.storage_offset()
    return torch.ops.inductor._reinterpret_tensor(base, size, stride, start)


def _view(base: torch.Tensor, size: Any) -> torch.Tensor:
    like = torch.empty_strided(base.shape, base.stride(), device="meta", dtype=base.dtype).view(size)
    return _over(base, like.shape, like.stride())


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor of the processor."""
    storage = tensor.untyped_storage()
    count = storage.nbytes()
    if not count:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    whole = torch.frombuffer((ctypes.c_char * count).from_address(storage.data_ptr()), dtype=torch.uint8)
    usable = count - count % tensor.element_size()
    return whole[:usable].view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    one, other = (host(t) if t.device.type == NAME else t for t in (source, target))
    other.copy_(one)
    return target


def _on_processor(op: Any, *args: Any, **kwargs: Any) -> Any:
    given = {}

    def down(t: torch.Tensor) -> torch.Tensor:
        if t.device.type != NAME:
            return t
        twin = host(t)
        given[id(twin)] = t, twin
        return twin

    def up(t: torch.Tensor) -> torch.Tensor:
        if id(t) in given:
            return given[id(t)][0]
        return _empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)

    with torch._C._AutoDispatchBelowAutograd():
        args, kwargs = tree_map_only(torch.Tensor, down, (args, kwargs))
        kwargs = {k: torch.device("cpu") if isinstance(v, torch.device) and v.type == NAME else v for k, v in kwargs.items()}
        return tree_map_only(torch.Tensor, up, op(*args, **kwargs))


_libraries: list[Any] = []


def register() -> None:
    """Makes the device known to torch; once a process."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME)
    aten, every = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    _libraries.extend((aten, every))
    for name, rule in {
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "as_strided": _over,
        "view": _view,
        "_copy_from": _copy,
        "_local_scalar_dense": lambda t: host(t).item(),
    }.items():
        aten.impl(name, rule, "PrivateUse1")
    every.fallback(_on_processor, "PrivateUse1")
