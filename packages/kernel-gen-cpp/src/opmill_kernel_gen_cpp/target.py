"""The processor that kernels are made for: one width of vectors, and the instructions that the compiler may use."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """``bits`` is the width of a vector register, ``family`` whose instructions there are ("": nobody's); ``sleef`` the suffix of the Sleef
    functions of that width ("": none), ``flags`` are compiler flags. Part of every kernel's key."""

    name: str
    bits: int
    family: str = ""
    flags: tuple[str, ...] = ()
    sleef: str = ""
    f16c: bool = False
    fma: bool = False


_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mlzcnt")
AVX512 = Target(
    "avx512",
    512,
    "x86",
    (*_AVX2, "-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mprefer-vector-width=512"),
    "avx512f",
    True,
    True,
)
AVX512_VNNI = replace(AVX512, flags=(*AVX512.flags, "-mavx512vnni"))
"""The same with instructions that multiply bytes."""
AVX2 = Target("avx2", 256, "x86", _AVX2, "avx2", True, True)
SSE = Target("sse4", 128, "x86", ("-msse4.2",))
NEON = Target("neon", 128, "arm", (), "advsimd", True, True)
GENERIC = Target("generic", 128)
TARGETS = {t.name: t for t in (AVX512, AVX2, SSE, NEON, GENERIC)}

_NEEDED = {
    "avx512": {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx2", "fma", "f16c", "bmi2"},
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
    "sse4": {"sse4_2"},
}


def choose(machine: str, features: set[str]) -> Target:
    """The widest target that a machine (``platform.machine()``) with these CPU features runs."""
    if machine in ("aarch64", "arm64"):
        return NEON
    for name, needed in _NEEDED.items():
        if needed <= features:
            return AVX512_VNNI if name == "avx512" and "avx512_vnni" in features else TARGETS[name]
    return GENERIC


@cache
def host() -> Target:
    """The target of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except (FileNotFoundError, PermissionError):  # anything else may pass, and the answer is kept
        text = ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return choose(platform.machine(), set(line.partition(":")[2].split()))
