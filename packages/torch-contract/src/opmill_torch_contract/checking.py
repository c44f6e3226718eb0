"""Compares the contract with the torch that is installed."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct

from .layouts import LAYOUTS
from .names import CUDA_NAMES, NAMES
from .row import Row, Version
from .symbols import CPU_SYMBOLS, CUDA_SYMBOLS, PYTHON_SYMBOLS

OLDEST: Version = (2, 11)
NEWEST: Version = (2, 15)
"""The versions of torch that every row was looked for in."""


class Missing(Struct, frozen=True):
    """A row that this torch does not fulfil. ``known``: whether the contract says so for this version."""

    row: Row
    kind: str
    known: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.row.name}: {self.row.lost}{' (known of this version)' if self.known else ''}"


def torch_version() -> Version:
    """Major and minor version of the torch that is installed."""
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    assert numbers is not None
    return int(numbers[1]), int(numbers[2])


def check() -> list[Missing]:
    """What is missing, the required first. Symbols of GPUs are asked for only where torch was built for them."""
    version = torch_version()
    library = Path(torch.__file__).parent / "lib"
    kinds: list[tuple[str, Sequence[Row], Callable[[str], bool]]] = [
        ("name", NAMES, has_name),
        ("layout", LAYOUTS, has_layout),
        ("symbol", CPU_SYMBOLS, _finder(library / "libtorch_cpu.so")),
        ("symbol", PYTHON_SYMBOLS, _finder(library / "libtorch_python.so")),
    ]
    if torch.version.cuda:
        kinds.append(("name", CUDA_NAMES, has_name))
        kinds.append(("symbol", CUDA_SYMBOLS, _finder(library / "libtorch_cuda.so")))
    missing = [Missing(row, kind, not row.expected(version)) for kind, rows, has in kinds for row in rows if not has(row.name)]
    return sorted(missing, key=lambda each: (each.known, not each.row.required))


def summary() -> str:
    """One line: whether this version is known, what it lost, and what others have besides."""
    version, missing = torch_version(), check()
    known = "" if OLDEST <= version <= NEWEST else ", a version that opmill was not tested with"
    lost = [each for each in missing if not each.known]
    told = "; ".join(str(each) for each in missing)
    if lost:
        return f"torch {torch.__version__}{known}: {len(lost)} {'thing is' if len(lost) == 1 else 'things are'} missing; {told}"
    return f"torch {torch.__version__}{known}: all that opmill relies on is there{f' but {told}' if told else ''}"


def has_name(name: str) -> bool:
    """Whether a dotted name can be had; modules on the way are imported, but never torch's own compiler."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 1):
        if not hasattr(value, part):
            with contextlib.suppress(ImportError):
                value = importlib.import_module(".".join(parts[:number]))  # a function may hide the module of its name
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join(parts[: number + 1]))
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def has_layout(name: str) -> bool:
    """Whether an object lies in memory as native code expects."""
    probe: Callable[[], bool] = LAYOUT_PROBES[name]
    return probe()


def _tensor_word() -> bool:
    """The address of the C++ tensor is one of the first words of the Python object."""
    tensor = torch.empty(1)
    words = ctypes.cast(id(tensor), ctypes.POINTER(ctypes.c_void_p))
    return tensor._cdata in [words[k] for k in range(8)]


def _data_word() -> bool:
    """The address of the data can be reached from the C++ tensor: through its storage, which is one of its first words."""
    tensor = torch.empty(1)
    storage = tensor.untyped_storage()
    words = ctypes.cast(tensor._cdata, ctypes.POINTER(ctypes.c_void_p))
    return storage._cdata in [words[k] for k in range(16)]


LAYOUT_PROBES: dict[str, Callable[[], bool]] = {"tensor object": _tensor_word, "tensor implementation": _data_word}


def _finder(library: Path) -> Callable[[str], bool]:
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError:
        return lambda name: False
    return lambda name: hasattr(loaded, name)
