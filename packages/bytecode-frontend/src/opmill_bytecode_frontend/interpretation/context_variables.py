"""How context variables and contexts of before the call are tracked."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from opmill_guards.guard import TypeIs
from opmill_guards.source import Pinned, Source

from ..values.base import Value
from ..values.context_variables import ContextVariable as ContextVariable
from ..values.opaque import Untouched
from .tracking import as_varying, by_identity, tracks

if TYPE_CHECKING:
    from .machine import Interpreter


@tracks(contextvars.ContextVar)
def variable(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A context variable, known by identity, unless it was another one at each call."""
    return as_varying(vm, obj, source) or ContextVariable(obj, by_identity(vm, obj, source) or Pinned(obj, "context variable"))


@tracks(contextvars.Context)
def context(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A copy that is made at each call: what it holds is not looked at."""
    if source is not None and type(source) is not Pinned:
        vm.guard(TypeIs(source, type(obj)))
    return Untouched(obj, source or Pinned(obj, "context"))
