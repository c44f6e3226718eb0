"""The processor: kernels are functions in shared objects."""

from __future__ import annotations

import ctypes

import msgspec

from ..errors import BindError
from ..forking import ForkLock
from ..plan import contract
from ..plan.model import KernelRef
from ..store import Store
from .host import HOST
from .loading import missing, unloadable
from .protocol import Device, HostKernel, Traits

SHIMS: dict[str, tuple[str, str]] = {
    "aten::mm.out": ("aoti_torch_cpu_mm_out", "TTT>0"),
    "aten::bmm.out": ("aoti_torch_cpu_bmm_out", "TTT>0"),
    "aten::addmm.out": ("aoti_torch_cpu_addmm_out", "TTTTFF>0"),
    "aten::baddbmm.out": ("aoti_torch_cpu_baddbmm_out", "TTTTFF>0"),
    "aten::add.Tensor": ("aoti_torch_cpu_add_Tensor", "TTF>1"),
    "aten::add.Scalar": ("aoti_torch_cpu_add_Scalar", "TFF>1"),
    "aten::mul.Scalar": ("aoti_torch_cpu_mul_Scalar", "TF>1"),
    "aten::pow.Tensor_Scalar": ("aoti_torch_cpu_pow_Tensor_Scalar", "TF>1"),
    "aten::pow.Scalar": ("aoti_torch_cpu_pow_Scalar", "FT>1"),
    "aten::convolution": ("aoti_torch_cpu_convolution", "TTOLLLBLI>1"),
    "aten::_scaled_dot_product_flash_attention_for_cpu": ("aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu", "TTTFBOE>2"),
    "aten::convolution_backward": ("aoti_torch_cpu_convolution_backward", "TTTPLLLBLIM>3"),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward",
        "TTTTTTFBOE>3",
    ),
    "aten::max_pool2d_with_indices": ("aoti_torch_cpu_max_pool2d_with_indices", "TLLLLB>2"),
    "aten::avg_pool2d": ("aoti_torch_cpu_avg_pool2d", "TLLLBBN>1"),
    "aten::_adaptive_avg_pool2d": ("aoti_torch_cpu__adaptive_avg_pool2d", "TL>1"),
    "aten::fill_.Scalar": ("aoti_torch_cpu_fill__Scalar", "TF>0"),
    "mkldnn::_convolution_pointwise": ("aoti_torch_cpu_mkldnn__convolution_pointwise", "TTOLLLISXQ>1"),
    "mkldnn::_convolution_pointwise.binary": ("aoti_torch_cpu_mkldnn__convolution_pointwise_binary", "TTTOLLLISEQXQ>1"),
    "mkldnn::_convolution_pointwise_.binary": ("aoti_torch_cpu_mkldnn__convolution_pointwise_binary_", "TTTOLLLISEQXQ>1"),
    "mkldnn::_linear_pointwise": ("aoti_torch_cpu__linear_pointwise", "TTOSXQ>1"),
}
"""Shims by operator: (symbol, signature as ``native/shims.cpp`` spells it). Out variants take ``out`` first in C."""

_libraries: dict[tuple[str, str], ctypes.CDLL] = {}
_loading = ForkLock()


def load_library(ref: KernelRef, store: Store, number: int = 0) -> HostKernel:
    """The entry of a shared object, which stays loaded for the life of the process, one load for each key. ``number``: torch's number of
    the device whose memory it takes. Raises KernelMissing (RC031), BindError (RC032, RC033)."""
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
        return HostKernel(address, contract.decode(ctypes.string_at(said)), number)
    except msgspec.MsgspecError as error:
        raise unloadable(ref, f"its contract: {error}") from None


def _open(ref: KernelRef, store: Store) -> ctypes.CDLL:
    path = store.path(ref.artifact_kind, ref.key)
    if path is None:
        raise missing(ref, store)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise unloadable(ref, str(error)) from error


class Processor(Device):
    """The processor, whose memory is the host's."""

    type = HOST
    number = 0
    traits = Traits(host=True, processor=True)
    kinds = {"cpu": load_library}

    def shim(self, op: str) -> tuple[str, str] | None:
        return SHIMS.get(op)


DEVICE = Processor()

__all__ = ["DEVICE", "SHIMS", "load_library"]
