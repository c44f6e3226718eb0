"""From the names in a plan to the objects of torch and of Python."""

import builtins
import os
from collections.abc import Callable
from typing import Any

import torch

from ..errors import BindError, SizeCheckFailed

NAMED: dict[str, Callable[[str], Any]] = {
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
    "layout": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
}
"""How a `Named` argument of each kind becomes an object."""


def named(kind: str, name: str) -> Any:
    """The torch object of that kind and name. Raises BindError (RC035)."""
    try:
        return NAMED[kind](name)
    except (KeyError, AttributeError, RuntimeError) as error:
        raise BindError("RC035", what=f"torch has no {kind} {name!r}", why=str(error)) from None


def dtype_of(name: str) -> torch.dtype:
    return named("dtype", name)


def operator_of(name: str) -> Any:
    """The OpOverload called ``namespace::name`` or ``namespace::name.overload``. Raises BindError (RC036)."""
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except AttributeError as error:
        raise BindError("RC036", what=f"torch has no operator {name!r}", why=str(error)) from None


def exception_of(name: str) -> type[Exception]:
    """The exception type of that name: Python's, torch's or SizeCheckFailed; RuntimeError where there is none."""
    if name == SizeCheckFailed.__name__:
        return SizeCheckFailed
    found = getattr(builtins, name, None) or getattr(torch, name.rpartition(".")[2], None)
    return found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError


def torch_library(name: str) -> str:
    """The path of one of torch's own shared libraries (``"torch_cpu"``, ``"torch_python"``)."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    paths = [os.path.join(folder, f"lib{name}.{suffix}") for suffix in ("so", "dylib")]
    return next((path for path in paths if os.path.exists(path)), paths[0])
