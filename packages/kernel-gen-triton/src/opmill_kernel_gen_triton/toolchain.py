"""Triton and the assembler in it: found and identified without importing them."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def triton_version() -> str | None:
    """The installed version, None where there is none."""
    try:
        if importlib.util.find_spec("triton") is None:
            return None
    except ValueError:  # a module without a spec: someone hides it
        return None
    for name in ("triton", "pytorch-triton", "triton-windows"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "triton of unknown version"


@cache
def assembler_version() -> str:
    """What the assembler that ships with Triton is known by: the versions in its package, and its size (it has no own metadata)."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent / "backends" / "nvidia"
    facts = []
    for file in sorted([*folder.glob("bin/ptxas*"), *folder.glob("lib/*.bc"), *folder.glob("*.json")]):
        facts.append((file.name, file.stat().st_size))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@cache
def architectures() -> tuple[int, ...]:
    """Compute capability times ten of every device that torch sees."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(10 * major + minor for major, minor in map(torch.cuda.get_device_capability, range(count)))


def arch_of(device: str) -> int | str:
    """Compute capability times ten of a device (``"cuda:0"``), or why it is not known."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device is available"
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def device_name(device: str) -> str:
    """What the vendor calls a device: what has been measured on it holds for others of that name."""
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else ""
