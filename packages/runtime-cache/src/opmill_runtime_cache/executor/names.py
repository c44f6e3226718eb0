"""From the names in a plan to the objects of torch and of Python."""

import builtins
from collections.abc import Callable
from typing import Any

import torch

from ..errors import BindError, SizeCheckFailed


def _of(kind: type) -> Callable[[str], Any]:
    """Looks up constants of ``torch`` of that type, and nothing else: other names would give functions, or import modules."""

    def find(name: str) -> Any:
        found = vars(torch).get(name)
        if type(found) is not kind:
            raise AttributeError(name)
        return found

    return find


NAMED: dict[str, Callable[[str], Any]] = {
    "dtype": _of(torch.dtype),
    "device": torch.device,
    "layout": _of(torch.layout),
    "memory_format": _of(torch.memory_format),
}
"""How a `Named` argument of each kind becomes an object."""


def named(kind: str, name: str) -> Any:
    """The torch object of that kind and name. Raises BindError (RC035)."""
    try:
        return NAMED[kind](name)
    except (KeyError, AttributeError, RuntimeError) as error:
        raise BindError("RC035", what=f"torch has no {kind} {name!r}", why=str(error).partition("\n")[0]) from None


def dtype_of(name: str) -> torch.dtype:
    """Torch's element type of that name. Raises BindError (RC035)."""
    found: torch.dtype = named("dtype", name)
    return found


def operator_of(name: str) -> Any:
    """The OpOverload called ``namespace::name`` or ``namespace::name.overload``. Raises BindError (RC036)."""
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = None
    if all(part.isascii() and part.isidentifier() for part in (space, packet, overload or "default")):
        found = getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise BindError("RC036", what=f"torch has no operator {name!r}")
    return found


EXCEPTIONS: dict[str, type[Exception]] = {
    **{name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)},
    **{name: kind for name, kind in vars(torch).items() if isinstance(kind, type) and issubclass(kind, Exception)},
    **{f"torch.{name}": kind for name, kind in vars(torch).items() if isinstance(kind, type) and issubclass(kind, Exception)},
    SizeCheckFailed.__name__: SizeCheckFailed,
}
"""The exceptions that a plan can name: Python's, torch's and SizeCheckFailed."""


def exception_of(name: str) -> type[Exception]:
    """The exception type of that name; RuntimeError where there is none."""
    return EXCEPTIONS.get(name, RuntimeError)
