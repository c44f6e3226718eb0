"""What torch's own compiler, and strict export, find where they trace a call of a compiled function: functions of Python, by which what was
compiled is read as a part of the program. Calls that nobody traces do not come here."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from opmill_guards import CompiledFunction
from opmill_guards._native import show


def called(self: CompiledFunction, /, *args: Any, **kwargs: Any) -> Any:
    """``CompiledFunction.__call__``."""
    if torch.compiler.is_dynamo_compiling():
        return self.__wrapped__(*args, **kwargs)
    return natively(self, *args, **kwargs)


def bound(self: CompiledFunction, instance: object, owner: type | None = None) -> Callable[..., Any]:
    """``CompiledFunction.__get__``."""
    if instance is None:
        return self
    if torch.compiler.is_dynamo_compiling():
        return functools.partial(self.__wrapped__, instance)  # which it can make, as it cannot make a method
    return types.MethodType(self, instance)


natively = show("__call__", called)
show("__get__", bound)

__all__ = ["called"]
