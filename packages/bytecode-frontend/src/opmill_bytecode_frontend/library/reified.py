"""Objects of captured code as real ones, for what is called while the graph is compiled."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..values.base import MISSING, Value
from ..values.constant import ConstantValue
from ..values.functions import CellValue, FunctionValue, PartialValue
from ..values.sequence import SequenceValue

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


def real_of(vm: Interpreter, value: Value) -> object:
    """The object, made anew where captured code made it of objects that were there before; MISSING where that cannot be."""
    if isinstance(value, ConstantValue):
        return value.value
    if (found := value.real()) is not MISSING:
        return found
    if isinstance(value, SequenceValue) and value.cls in (list, tuple):
        return _of(vm, value.values(vm), lambda *items: value.cls(items))
    if isinstance(value, PartialValue):
        names, given = zip(*value.bound_keywords(vm).items(), strict=True) if value.keywords.items else ((), ())
        count = 1 + len(value.args)
        return _of(
            vm,
            [value.function, *value.args, *given],
            lambda *made: functools.partial(*made[:count], **dict(zip(names, made[count:], strict=True))),
        )
    if isinstance(value, FunctionValue) and not value.defaults and not value.keyword_defaults():
        cells = [cell.get(vm) if isinstance(cell, CellValue) else MISSING for cell in value.closure]
        if any(cell is MISSING for cell in cells):
            return MISSING
        return _of(
            vm, cells, lambda *made: types.FunctionType(value.code, value.globals, value.name, None, tuple(map(types.CellType, made)))
        )
    return MISSING


def _of(vm: Interpreter, parts: Iterable[Value], make: Any) -> object:
    made = [real_of(vm, part) for part in parts]
    return MISSING if any(m is MISSING for m in made) else make(*made)
