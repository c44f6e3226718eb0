"""The machine code of a Triton kernel for given arguments, where a driver can start it as it is: without Triton, which takes its time for
each launch.

Triton compiles as it would for the launch itself. What it does at a launch besides starting the kernel is left to it: choosing among
configurations, hooks, looking after globals, clusters, memory for the kernel to work in."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_BITS = {"fp32": ("<f", "<I"), "fp64": ("<d", "<q")}
"""How a number in Python becomes the bits of a parameter."""
_ALIGNMENT = 16


@dataclass(frozen=True)
class Machine:
    """``image`` is machine code for a device of compute capability ``arch`` (times ten). ``parameters``: of each the number of the tensor
    that it points to, or its bits."""

    arch: int
    image: bytes
    entry: str
    warps: int
    shared: int
    parameters: tuple[tuple[str, int], ...]


class _Pointer:
    """Stands for a tensor: Triton asks for its type, and whether its address is a multiple of 16."""

    def __init__(self, dtype: torch.dtype, aligned: bool) -> None:
        self.dtype, self._address = dtype, 0 if aligned else _ALIGNMENT // 2

    def data_ptr(self) -> int:
        return self._address


def machine_of(
    kernel: Any, tensors: Mapping[str, tuple[int, torch.dtype]], others: Mapping[str, object], device: int, aligned: bool
) -> Machine | None:
    """``tensors``: parameters with the number and type of their tensor; ``others``: all other arguments and launch options. None where
    Triton is needed for the launch, or refuses the kernel."""
    if device < 0 or type(kernel).__name__ != "JITFunction" or getattr(kernel, "pre_run_hooks", None):
        return None
    pointers = {name: _Pointer(dtype, aligned) for name, (_, dtype) in tensors.items()}
    try:
        with torch.cuda.device(device):
            found = kernel.warmup(grid=(1,), **pointers, **others)
            found = found.result() if hasattr(found, "result") else found
    except Exception:  # it says so itself where it is launched
        return None
    if found is None or getattr(kernel, "used_global_vals", None):
        return None
    return _machine(found, {name: number for name, (number, _) in tensors.items()}, others, device)


def _machine(found: Any, tensors: Mapping[str, int], others: Mapping[str, object], device: int) -> Machine | None:
    facts, image = found.metadata, found.asm.get("cubin")
    special = ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl", "tensordesc_meta")
    if image is None or getattr(facts, "num_ctas", 1) != 1 or any(getattr(facts, name, None) for name in special):
        return None
    if facts.shared > getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 << 10):
        return None
    parameters = parameters_of(found.src.signature, tensors, others)
    return None if parameters is None else Machine(facts.target.arch, image, facts.name, facts.num_warps, facts.shared, parameters)


def parameters_of(
    signature: Mapping[str, object], tensors: Mapping[str, int], others: Mapping[str, object]
) -> tuple[tuple[str, int], ...] | None:
    """What the machine code takes, in order: what is a constant to it is not among it. None where an argument has a type that is not known
    here."""
    out: list[tuple[str, int]] = []
    for name, kind in signature.items():
        if kind == "constexpr":
            continue
        if not isinstance(kind, str) or (kind.startswith("*") != (name in tensors)) or name not in (*tensors, *others):
            return None
        if name in tensors:
            out.append(("tensor", tensors[name]))
            continue
        bits = _bits(kind, others[name])
        if bits is None:
            return None
        out.append(("word", bits))
    return tuple(out)


def _bits(kind: str, value: object) -> int | None:
    """The bits of a parameter, as a signed number of 64 bits."""
    if kind in _BITS and isinstance(value, (int, float)):
        as_number, as_bits = _BITS[kind]
        return int(struct.unpack(as_bits, struct.pack(as_number, value))[0])
    if kind[:1] in ("i", "u") and kind[1:].isdigit() and isinstance(value, int):
        return int(struct.unpack("<q", struct.pack("<Q", value & (1 << 64) - 1))[0])
    return None


__all__ = ["Machine", "machine_of", "parameters_of"]
