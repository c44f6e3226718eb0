"""Operator calls of a plan as Python functions: the route that can always be taken."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
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


class _Writer:
    """Collects what an argument list needs while it is written as Python text."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.sizes: list[Size] = []
        self.constants: dict[str, Any] = {}

    def text(self, arg: Arg) -> str:
        return _TEXT[type(arg)](self, arg)

    def slot(self, arg: Slot) -> str:
        if arg.index not in self.slots:
            self.slots.append(arg.index)
        return f"t{self.slots.index(arg.index)}"

    def size(self, arg: Expr) -> str:
        if type(arg.value) is int:
            return self.constant(arg.value)
        if arg.value not in self.sizes:
            self.sizes.append(arg.value)
        return f"n{self.sizes.index(arg.value)}"

    def list(self, arg: ListArg) -> str:
        return "[" + ", ".join(self.text(item) for item in arg.items) + "]"

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


_TEXT: dict[type, Callable[[_Writer, Any], str]] = {
    Slot: _Writer.slot,
    Expr: _Writer.size,
    ListArg: _Writer.list,
    Literal: lambda writer, arg: writer.constant(arg.value),
    Named: lambda writer, arg: writer.constant(named(arg.kind, arg.name)),
    ComplexArg: lambda writer, arg: writer.constant(complex(arg.real, arg.imag)),
}


def python_call(call: Call, bodies: Sequence[Body] = ()) -> PythonCall:
    """``call`` as a Python function; ``bodies`` are the executables of the plan's. Raises BindError for operators and names that torch lacks."""
    writer = _Writer()
    arguments = [writer.text(arg) for arg in call.args]
    arguments += [f"{name}={writer.text(arg)}" for name, arg in call.kwargs.items()]
    parameters = [f"t{i}" for i in range(len(writer.slots))] + [f"n{i}" for i in range(len(writer.sizes))]
    count = len(call.results)
    operator = control_of(call.op, [bodies[number] for number in call.bodies]) if call.bodies else operator_of(call.op)
    scope = {"op": operator, "flat": _flatten, **writer.constants}
    function = eval(_code(f"lambda {', '.join(parameters)}: flat(op({', '.join(arguments)}), {count})"), scope)
    return PythonCall(tuple(writer.slots), tuple(writer.sizes), function)


@lru_cache(1024)
def _code(text: str) -> CodeType:
    """A Python expression, compiled: many calls of a plan read alike."""
    return compile(text, "<call>", "eval")


def _flatten(result: Any, count: int) -> tuple[Any, ...]:
    if count == 0:
        return ()
    if type(result) is torch.Tensor or isinstance(result, torch.Tensor):
        return (result,)
    flat: list[Any] = []
    for item in result:
        flat.extend(item if isinstance(item, (list, tuple)) else [item])
    return tuple(flat)
