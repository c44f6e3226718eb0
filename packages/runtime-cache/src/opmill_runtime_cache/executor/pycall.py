"""Operator calls of a plan as Python functions: the route that can always be taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct

from ..plan.model import Arg, Call, ComplexArg, Expr, ListArg, Literal, Named, Size, Slot
from .control import Body, control_of
from .names import named, operator_of


class PythonCall(Struct, frozen=True):
    """A call as ``function(*tensors, *sizes) -> tuple of tensors``: ``tensors`` are those in ``slots``, ``sizes`` the values of ``sizes``.

    The tuple holds one entry for each of the call's ``results``.
    """

    slots: tuple[int, ...]
    sizes: tuple[Size, ...]
    function: Callable[..., tuple[Any, ...]]


class _Template:
    """Collects what an argument list needs: which slots and sizes it takes, and how an argument follows from their values."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.sizes: list[Size] = []

    def scan(self, arg: Arg) -> None:
        """Notes the slots and sizes in an argument, in the order in which the call is given them."""
        if type(arg) is Slot and arg.index not in self.slots:
            self.slots.append(arg.index)
        elif type(arg) is Expr and type(arg.value) is not int and arg.value not in self.sizes:
            self.sizes.append(arg.value)
        elif type(arg) is ListArg:
            for item in arg.items:
                self.scan(item)

    def part(self, arg: Arg) -> _Part:
        if type(arg) is Slot:
            return self.slots.index(arg.index), None
        if type(arg) is Expr and type(arg.value) is not int:
            return len(self.slots) + self.sizes.index(arg.value), None
        if type(arg) is ListArg:
            parts = [self.part(item) for item in arg.items]
            if all(at == _FIXED for at, _ in parts):
                return _FIXED_LIST, [value for _, value in parts]
            return _LIST, parts
        return _FIXED, _CONSTANTS[type(arg)](arg)


_FIXED, _LIST, _FIXED_LIST = -1, -2, -3
_Part = tuple[int, Any]
"""How an argument is made: (position among the call's values, None), or one of the numbers above with a constant or parts."""

_CONSTANTS: dict[type, Callable[[Any], Any]] = {
    Expr: lambda arg: arg.value,
    Literal: lambda arg: arg.value,
    Named: lambda arg: named(arg.kind, arg.name),
    ComplexArg: lambda arg: complex(arg.real, arg.imag),
}


def _fill(part: _Part, values: Sequence[Any]) -> Any:
    at, constant = part
    if at >= 0:
        return values[at]
    if at == _FIXED:
        return constant
    return list(constant) if at == _FIXED_LIST else [_fill(item, values) for item in constant]


def python_call(call: Call, bodies: Sequence[Body] = ()) -> PythonCall:
    """``call`` as a Python function; ``bodies`` are the executables of the plan's. Raises BindError for operators and names that torch
    lacks."""
    template = _Template()
    for arg in (*call.args, *call.kwargs.values()):
        template.scan(arg)
    positional = [template.part(arg) for arg in call.args]
    keywords = [(name, template.part(arg)) for name, arg in call.kwargs.items()]
    count = len(call.results)
    operator = control_of(call.op, [bodies[number] for number in call.bodies]) if call.bodies else operator_of(call.op)

    def function(*values: Any) -> tuple[Any, ...]:
        given = {name: _fill(part, values) for name, part in keywords}
        return _flatten(operator(*[_fill(part, values) for part in positional], **given), count)

    return PythonCall(tuple(template.slots), tuple(template.sizes), function)


def _flatten(result: Any, count: int) -> tuple[Any, ...]:
    if count == 0:
        return ()
    if type(result) is torch.Tensor or isinstance(result, torch.Tensor):
        return (result,)
    flat: list[Any] = []
    for item in result:
        flat.extend(item if isinstance(item, (list, tuple)) else [item])
    return tuple(flat)
