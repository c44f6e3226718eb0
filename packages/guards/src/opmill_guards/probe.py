"""Finds out how this torch lays out its tensors, and which of its switches can be read natively.

Nothing is assumed: each offset is found by looking for known facts in real tensors, then the native reader is verified against Python on
tensors that were not used for finding. What is not found or not confirmed is read in Python: slower, never wrong.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
import sys
from collections import deque
from functools import cache
from typing import Any

from .weak import WeakObject

_IMPL_BYTES = (176, 184, 192)  # looked at of a TensorImpl, whose size differs among versions: more only where less did not suffice
_INLINE_DIMS = 5
_DEVICES = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13, "meta": 14}
_PLAIN_KEYS = (
    "CPU CUDA XPU MPS Meta AutogradCPU AutogradCUDA AutogradXPU AutogradMPS AutogradMeta AutocastCPU AutocastCUDA AutocastXPU AutocastMPS"
    " ADInplaceOrView Conjugate Negative ZeroTensor"
).split()
_SYMBOLS = {
    "grad_mode": "_ZN3c108GradMode10is_enabledEv",
    "inference_mode": "_ZN3c1013InferenceMode10is_enabledEv",
    "autocast": "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
    "autocast_dtype": "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE",
    "autocast_cache": "_ZN2at8autocast25is_autocast_cache_enabledEv",
    "default_dtype": "_ZN3c1031get_default_dtype_as_scalartypeEv",
    "function_modes": "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv",
    "function_state": "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv",
    "dispatch_modes": "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
    "deterministic": "_ZNK2at7Context23deterministicAlgorithmsEv",
    "deterministic_warn": "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv",
    "key_included": "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
    "tracing": "_ZN5torch3jit6tracer15getTracingStateEv",
    "anomalies": "_ZN5torch8autograd11AnomalyMode8_enabledE",
    "global_context": "_ZN2at13globalContextEv",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",
}


def _torch() -> Any:
    import torch

    return torch


def _bytes(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


_ANSWERS: tuple[dict[str, Any], ...] = (
    {"dispatch_sizes_strides_policy": "sizes"},
    {"dispatch_sizes_strides_policy": "strides"},
    {"dispatch_device": True},
    {"dispatch_layout": True},
)
"""What of a tensor its class may say instead of the tensor."""


@cache
def _wrapper_class() -> Any:
    torch = _torch()
    names = {"__torch_dispatch__": classmethod(lambda *_: NotImplemented), "__torch_function__": torch._C._disabled_torch_function_impl}
    return type("Wrapper", (torch.Tensor,), names)


def _wrapper(**answers: Any) -> Any:
    """A tensor of a class that takes operators."""
    torch, cls = _torch(), _wrapper_class()
    return torch.Tensor._make_wrapper_subclass(cls, (3, 5), (7, 1), dtype=torch.float16, requires_grad=False, **answers)


def _find_policy(size: int, dtype: int) -> dict[str, int]:
    """Which bits say what the class of such a tensor is asked for: flags in the word that begins with the element type. Nothing where that
    is not plain to see. Bits of no meaning may be anything: one that is taken for a flag only makes a tensor be looked at in Python."""
    torch = _torch()
    known, at = torch._C.DispatchKey, dtype // 8
    usual, *asked = ([_impl_words(_wrapper(**answers), size)[at] for _ in range(4)] for answers in ({}, *_ANSWERS))
    never = ~functools.reduce(operator.or_, usual)
    told = [functools.reduce(operator.and_, words) & never & (2**64 - 1) for words in asked]
    if not all(told):
        return {"policy": 0}
    keys = torch._C.DispatchKeySet(known.Python).raw_repr() | torch._C.DispatchKeySet(known.PythonTLSSnapshot).raw_repr()
    return {"policy": 8 * at, "asked": functools.reduce(operator.or_, told), "wrapper": keys}


def _only(candidates: list[int]) -> int:
    if len(candidates) != 1:
        raise LookupError(f"{len(candidates)} candidates")
    return candidates[0]


def _cdata_offset(tensor: Any) -> int:
    size = type(tensor).__basicsize__
    words = struct.unpack(f"{size // 8}Q", _bytes(id(tensor), size // 8 * 8))
    return _only([8 * i for i, word in enumerate(words) if word == tensor._cdata])


def _impl_words(tensor: Any, size: int) -> tuple[int, ...]:
    return struct.unpack(f"{size // 8}q", _bytes(tensor._cdata, size))


def _find_shape(size: int) -> dict[str, int]:
    torch = _torch()
    base = torch.empty_strided((103, 107, 109), (13, 1511, 170003), device="meta")
    tensor = base.as_strided((101, 97, 89), (13, 1511, 170003), 7919)
    words = _impl_words(tensor, size)
    sizes = _only([i for i in range(1, len(words) - 7) if words[i : i + 3] == (101, 97, 89)])
    if words[sizes - 1] != 3 or words[sizes + _INLINE_DIMS : sizes + _INLINE_DIMS + 3] != (13, 1511, 170003):
        raise LookupError("sizes and strides are not side by side")
    offset = _only([i for i, word in enumerate(words) if word == 7919])
    return {"ndim": 8 * (sizes - 1), "sizes": 8 * sizes, "strides": 8 * (sizes + _INLINE_DIMS), "storage_offset": 8 * offset}


def _find_scalars(dtypes: dict[Any, int], size: int) -> dict[str, int]:
    torch = _torch()
    samples = [torch.empty(2, dtype=dtype, device=device) for dtype in dtypes for device in ("cpu", "meta")]
    images = [_bytes(sample._cdata, size) for sample in samples]
    keys = [torch._C._dispatch_keys(sample).raw_repr() for sample in samples]
    devices = [struct.pack("bb", _DEVICES[sample.device.type], -1) for sample in samples]

    def offset_of(expected: list[bytes], step: int) -> int:
        width = len(expected[0])
        places = range(8, size - width + 1, step)
        return _only([at for at in places if all(image[at : at + width] == e for image, e in zip(images, expected))])

    return {
        "keys": offset_of([struct.pack("Q", k) for k in keys], 8),
        "dtype": offset_of([struct.pack("H", dtypes[sample.dtype]) for sample in samples], 2),
        "device": offset_of(devices, 1),
    }


@cache
def _dtypes() -> dict[Any, int]:
    """Codes of c10::ScalarType, whose order never changes; verified by the layout's search and check."""
    torch = _torch()
    names = {
        "uint8": 0,
        "int8": 1,
        "int16": 2,
        "int32": 3,
        "int64": 4,
        "float16": 5,
        "float32": 6,
        "float64": 7,
        "complex64": 9,
        "complex128": 10,
        "bool": 11,
        "bfloat16": 15,
        "float8_e5m2": 23,
        "float8_e4m3fn": 24,
        "uint16": 27,
        "uint32": 28,
        "uint64": 29,
    }
    return {getattr(torch, name): code for name, code in names.items() if hasattr(torch, name)}


def dtype_code(dtype: Any) -> int | None:
    """The native code of a dtype, None where tensors of it are checked in Python."""
    return _dtypes().get(dtype) if configure() else None


def device_code(device: Any) -> tuple[int, int] | None:
    """(type, index) of a device as tensors hold it, None where its tensors are checked in Python."""
    code = _DEVICES.get(device.type)
    return None if code is None else (code, -1 if device.index is None else device.index)


def functorch_key() -> int:
    """The number of the dispatch key that is included while a functorch transform runs."""
    return int(_torch()._C.DispatchKey.FuncTorchDynamicLayerFrontMode)


def _address(name: str) -> int:
    for library in (ctypes.CDLL(path) for path in _libraries()):
        try:
            return ctypes.cast(getattr(library, _SYMBOLS[name]), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@cache
def _libraries() -> tuple[str, ...]:
    import os

    folder = os.path.join(os.path.dirname(_torch().__file__), "lib")
    names = ("libc10.so", "libtorch_cpu.so", "libc10.dylib", "libtorch_cpu.dylib")
    return tuple(path for path in (os.path.join(folder, name) for name in names) if os.path.exists(path))


def _samples() -> list[Any]:
    """Tensors for verifying what was found; other ones than those used for finding."""
    torch = _torch()
    leaf = torch.nn.Parameter(torch.zeros(3, 4))
    with torch.enable_grad():
        derived = leaf.t() * 2
    with torch.inference_mode():
        inference = torch.zeros(2, 2)
    shapes = [(), (0,), (7,), (2, 3), (2, 3, 4, 5), (1, 2, 1, 2, 3), (2, 1, 2, 1, 2, 3), (1,) * 8]
    made = [torch.empty(shape, dtype=dtype) for shape in shapes for dtype in (torch.float32, torch.int64)]
    made += [torch.empty(3, dtype=dtype, device="meta") for dtype in _dtypes()]
    made += [torch.zeros(6, 5)[1:4, ::2], torch.zeros(2, 3, 4).permute(2, 0, 1), torch.zeros(2, 3, 4, 5, 6, 7).transpose(1, 5)[1:]]
    made += [leaf, leaf.detach(), derived, torch.zeros(3, dtype=torch.complex64).conj(), inference, torch.zeros(3, requires_grad=True)]
    made += [_wrapper(), _wrapper().requires_grad_()]
    return made


def _truth(tensor: Any) -> tuple[Any, ...]:
    return (
        _dtypes()[tensor.dtype],
        *(device_code(tensor.device) or ()),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        _torch()._C._dispatch_keys(tensor).raw_repr(),
        tensor.requires_grad,
    )


def _find_layout() -> dict[str, int] | None:
    return next((found for found in map(_find_layout_within, _IMPL_BYTES) if found is not None), None)


def _find_layout_within(size: int) -> dict[str, int] | None:
    torch = _torch()
    try:
        found = {"cdata": _cdata_offset(torch.empty(2)), **_find_shape(size), **_find_scalars(_dtypes(), size)}
        keys, known = 0, torch._C.DispatchKey
        for name in _PLAIN_KEYS:
            keys |= torch._C.DispatchKeySet(getattr(known, name)).raw_repr() if hasattr(known, name) else 0
        return {**found, **_find_policy(size, found["dtype"]), "plain": keys, "requires_grad": _address("requires_grad")}
    except (LookupError, RuntimeError, AttributeError, struct.error):
        return None


def current_stance() -> str:
    """What ``torch.compiler.set_stance`` put in force. It is kept by torch's own compiler, which a program that set none may not have
    imported."""
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return getattr(stance, "stance", "default")


def forced_eager() -> bool:
    """Whether nothing may run but the program as it is."""
    return current_stance() == "force_eager"


def _switch_truth() -> dict[str, tuple[int, int]]:
    torch = _torch()
    state = 2 if torch._C._is_torch_function_all_disabled() else 0 if torch._C._is_torch_function_enabled() else 1
    return {
        "grad_mode": (0, torch.is_grad_enabled()),
        "inference_mode": (0, torch.is_inference_mode_enabled()),
        "autocast": (0, torch.is_autocast_enabled("cpu")),
        "autocast_dtype": (0, _dtypes()[torch.get_autocast_dtype("cpu")]),
        "autocast_cache": (0, torch.is_autocast_cache_enabled()),
        "default_dtype": (0, _dtypes()[torch.get_default_dtype()]),
        "function_modes": (0, torch._C._len_torch_function_stack()),
        "function_state": (0, state),
        "dispatch_modes": (0, torch._C._len_torch_dispatch_stack()),
        "deterministic": (0, torch.are_deterministic_algorithms_enabled()),
        "deterministic_warn": (0, torch.is_deterministic_algorithms_warn_only_enabled()),
        "key_included": (functorch_key(), torch._C._functorch.peek_interpreter_stack() is not None),
        "tracing": (0, torch._C._get_tracing_state() is not None),
        "forced_eager": (0, forced_eager()),
        "anomalies": (0, torch.is_anomaly_enabled()),
    }


@cache
def _confirmed_switches() -> frozenset[str]:
    from . import _native

    with _torch().no_grad():
        off = {name for name, (argument, value) in _switch_truth().items() if _agrees(_native, name, argument, value)}
    with _torch().enable_grad(), _torch().autocast("cpu", dtype=_torch().float16):
        on = {name for name, (argument, value) in _switch_truth().items() if _agrees(_native, name, argument, value)}
    return frozenset(off & on)


def _agrees(native: Any, name: str, argument: int, value: int) -> bool:
    try:
        return bool(native.global_value(name, argument) == value)
    except KeyError:
        return False


def has_switch(name: str) -> bool:
    """Whether this switch can be read natively."""
    configure()
    return name in _confirmed_switches()


def _quiet(torch: Any) -> bool:
    """Whether tensors made now, torch function modes aside, are ordinary ones: no other mode is on that would make others of them."""
    c = torch._C
    return not (c._len_torch_dispatch_stack() or c._functorch.peek_interpreter_stack() is not None)


_outcome: dict[str, bool] = {}


def configure() -> bool:
    """Sets the native checker up once; whether it reads tensors natively. While a mode is on that changes what tensors are, everything is
    checked in Python, and the next call tries again. Without torch imported there are no tensors, and nothing to set up."""
    if "torch" in _outcome:
        return _outcome["torch"]
    from . import _native

    torch = sys.modules.get("torch")
    objects: dict[str, Any] = {"deque": deque, "weak": WeakObject, "object_getattribute": object.__dict__["__getattribute__"]}
    if torch is None or not hasattr(torch, "nn"):
        _native.configure(objects, None, {})
        return False
    from .reference import tensor_property
    from .tensor_facts import holds

    objects |= {
        "module_getattr": torch.nn.Module.__dict__["__getattr__"],
        "tensor": torch._C.TensorBase,
        "read_property": tensor_property,
        "check_tensor": holds,
    }
    quiet = _quiet(torch)
    with (
        torch.inference_mode(False),
        torch._C.DisableTorchFunction(),
    ):  # a default device is a mode, which many programs are in from their start
        layout = _find_layout() if quiet else None
        symbols = {name: _address(name) for name in _SYMBOLS if name != "requires_grad"}
        if not symbols["global_context"]:
            symbols |= {"deterministic": 0, "deterministic_warn": 0}
        _native.configure(objects, layout, symbols)
        if layout is not None and any(_native.tensor_facts(sample) != _truth(sample) for sample in _samples()):
            layout = None
            _native.configure(objects, None, symbols)
    if quiet:
        _outcome["torch"] = layout is not None
    return layout is not None
