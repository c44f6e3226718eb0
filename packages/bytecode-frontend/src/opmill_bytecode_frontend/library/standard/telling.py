"""Objects told as texts by functions that tell an object within itself as ``...``."""

from __future__ import annotations

import dataclasses
import reprlib
from types import FunctionType
from typing import TYPE_CHECKING

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...effects.filters import frames_of
from ...values.base import Value
from ...values.constant import ConstantValue
from ..registry import coded

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@dataclasses.dataclass
class _Told:
    """One of a class whose ``__repr__`` was made for it."""


@coded(_Told.__repr__.__code__, reprlib.recursive_repr()(_Told.__repr__).__code__)
def tell_once(vm: Interpreter, wrapper: FunctionType, told: Value) -> Value | None:
    """A ``__repr__`` of ``reprlib.recursive_repr`` or of a data class. Which object it is does not matter, as long as the function tells
    none outside of captured code: it is compared with those that captured code tells."""
    cells = {name: cell.cell_contents for name, cell in zip(wrapper.__code__.co_freevars, wrapper.__closure__ or ())}
    function, running = cells.get("user_function"), cells.get("repr_running")
    if running or type(function) is not FunctionType:
        return None
    vm.guard(Predicate(Pinned(running, "repr_running"), lambda now: not now, "is empty"))
    for frame in frames_of(vm.frame):
        if frame.code is function.__code__ and frame.locals.get(frame.code.co_varnames[0]) is told:
            return ConstantValue(cells.get("fillvalue", "..."))
    return vm.call(vm.wrap(function, Pinned(function, function.__qualname__)), [told], {})
