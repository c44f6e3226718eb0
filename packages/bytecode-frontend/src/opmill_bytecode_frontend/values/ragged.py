"""The size of a jagged tensor along which its rows differ: an integer without a value, which torch answers for as in eager."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable, NoReturn

import torch

from opmill_fake_tensors.jagged import VALUES
from opmill_guards.source import Attr

from ..entry.varying import SMALLEST, Limits, Varying
from .base import COMPARISONS, Machine, Value
from .constant import ConstantValue
from .number import operand

if TYPE_CHECKING:
    from opmill_guards.source import Source

OPERATIONS = {
    f"__{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs")
} | {name: getattr(operator, name) for name in COMPARISONS}
REFLECTED = {f"__r{name[2:]}": name for name in OPERATIONS if name[2:-2] in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")}


def moving_inside(varying: Varying, obj: Any, source: Source, held: bool) -> dict[str, tuple[Attr, dict[int, Limits], frozenset[int]]]:
    """Of each tensor inside of a jagged one: where it is, its symbolic dimensions, and those whose strides are not assumed. How many
    elements there are in all rows is symbolic at once, and so is how long rows are; how many rows there are, once it was seen to change."""
    found = {}
    for name in obj.__tensor_flatten__()[0]:
        part, where = getattr(obj, name), Attr(source, name)
        limits = {d: Limits(own.low, own.high) for d, own in varying.dimensions(where, part, held).items()}
        rows = obj._ragged_idx - 1 if name == VALUES else 0 if name.endswith("_seqlen_tensor") else None
        if rows is not None and not varying.nothing and not held and part.size(rows) >= SMALLEST:
            limits.setdefault(rows, Limits())
        found[name] = where, limits, varying.moving(where, part)
    return found


class RaggedSize(Value):
    """``number``: a ``torch.SymInt`` of torch's own, known by the offsets of the tensors that have it. It is read from one of these."""

    symbolic = True

    def __init__(self, number: object) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"Ragged({self.number})"

    def python_type(self) -> type:
        return torch.SymInt

    def describe(self) -> str:
        return "the size along which rows of a jagged tensor differ"

    def key(self, vm: Machine) -> NoReturn:
        vm.unsupported("FE024", f"hash of {self.describe()}")

    def truth(self, vm: Machine) -> bool:
        return bool(self._asked(vm, bool))

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        operation = REFLECTED.get(name, name)
        if operation not in OPERATIONS:
            vm.unsupported("FE020", f"{name} of {self.describe()}", "it has no value that a graph knows")
        others = [each.number if type(each) is RaggedSize else operand(each) for each in args]
        if None in others:
            return ConstantValue(NotImplemented)
        pair = [self.number, *others]
        found = self._asked(vm, OPERATIONS[operation], *(reversed(pair) if name in REFLECTED else pair))
        return ConstantValue(bool(found)) if isinstance(found, torch.SymBool) else vm.fresh(found)

    def _asked(self, vm: Machine, function: Callable[..., object], *given: object) -> object:
        """What torch says, which is what eager raises, too."""
        try:
            return function(*(given or (self.number,)))
        except Exception as error:
            vm.throw_real(error)

    def find_method(self, name: str) -> Callable[..., Any] | None:
        return (lambda vm, *args, **kwargs: self.special(vm, name, list(args))) if hasattr(torch.SymInt, name) else None


__all__ = ["RaggedSize", "moving_inside"]
