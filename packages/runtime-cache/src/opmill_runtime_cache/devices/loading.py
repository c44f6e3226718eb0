"""What loaders of kernels share: how they refuse."""

from __future__ import annotations

import os

import torch

from ..errors import BindError, KernelMissing
from ..plan.model import KernelRef
from ..store import Store


def missing(ref: KernelRef, store: Store) -> KernelMissing:
    """The error of a kernel that is not in the store."""
    return KernelMissing("RC031", what=f"kernel {ref.artifact_kind}/{ref.key} is not in the store", where=repr(store), hint="compile again")


def unloadable(ref: KernelRef, why: str) -> BindError:
    """The error of a kernel that is there and cannot be loaded."""
    return BindError("RC032", what=f"kernel {ref.artifact_kind}/{ref.key} cannot be loaded", why=why, hint="compile again")


def torch_library(name: str) -> str:
    """The path of one of torch's own shared libraries (``"torch_cpu"``, ``"torch_python"``)."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    paths = [os.path.join(folder, f"lib{name}.{suffix}") for suffix in ("so", "dylib")]
    return next((path for path in paths if os.path.exists(path)), paths[0])


__all__ = ["missing", "torch_library", "unloadable"]
