"""Floats and truths that only data tell: tensors without dimensions in the graph, read when it has run."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable, NoReturn

import torch

from ..interpretation.optimizing import in_optimizer
from .assertions import demanded_of, may_demand, raising
from .base import COMPARISONS, MISSING, Machine, Value
from .constant import ConstantValue
from .floating import OF_DATA, FloatNumber
from .number import SymbolicNumber

if TYPE_CHECKING:
    pass

ARITHMETIC = ("__add__", "__sub__", "__mul__", "__truediv__")
POWERS = ("__pow__", "__rpow__")
REFLECTED = {f"__r{name[2:]}": name for name in ARITHMETIC}
ITSELF = ("__pos__", "__float__")
UNARY = {"__neg__": operator.neg, "__abs__": operator.abs}
EXACT = 1 << 53
"""Integers below it are doubles."""
LARGEST = torch.finfo(torch.float32).max
OVERFLOW = "value cannot be converted to type float without overflow"


class Late(Value):
    """``tensor`` holds the number: of float64 or bool, without dimensions, and without gradients. Where the number is needed the graph ends
    before it was read (``place``): what follows is then computed with a number of Python's, which may change from call to call."""

    symbolic = OF_DATA
    cls: type

    def __init__(self, vm: Machine, tensor: Any, place: int | None = None) -> None:
        self.vm = vm
        self.tensor = tensor
        self.place = vm.place() if place is None else place

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({self.tensor!r})"

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING

    def describe(self) -> str:
        return f"a {self.cls.__name__} that only data tell"

    def constant(self) -> NoReturn:
        hint = "compute with the tensor itself, or outside of the compiled function"
        self.vm.unsupported("FE037", f"{self.describe()} is needed", "the graph has not run yet", hint, self.place)

    def key(self, vm: Machine) -> NoReturn:
        self.constant()

    def truth(self, vm: Machine) -> bool:
        if may_demand(vm) and (way := raising(vm)) is not None:
            return demanded_of(vm, self.nonzero(vm), way)
        hint = "torch.where chooses without deciding"
        vm.unsupported("FE037", f"a decision on {self.describe()}", "the graph has not run yet", hint, self.place)

    def nonzero(self, vm: Machine) -> object:
        """A tensor of whether it is true."""
        return self.tensor

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return (lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)) if hasattr(self.cls, name) else None

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = self.special(vm, name, args) if not kwargs else None
        return self.constant() if found is None else found

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__class__" or callable(getattr(self.cls, name, None)):
            return super().getattr(vm, name)
        if not hasattr(self.cls, name):  # which no value has
            return ConstantValue(self.cls()).getattr(vm, name)
        self.constant()


class LateTruth(Late):
    """A truth that only data tell."""

    cls = bool
    told_later = True

    def as_told(self) -> bool:
        return True

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return self.constant() if hasattr(bool, name) else None


class LateText(Late):
    """A text that tells what a tensor holds, ``f"{x}"``. Checks are given such for the case that they fail: the program then makes it."""

    cls = str

    def constant(self) -> NoReturn:
        self.vm.unsupported("FE025", "text of a tensor", "it depends on data", place=self.place)

    def truth(self, vm: Machine) -> bool:
        self.constant()

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return self.constant() if hasattr(str, name) else None


class LateFloat(Late):
    """A float that only data tell. What is computed of it is computed by the graph."""

    cls = float
    told_later = True

    def __init__(
        self, vm: Machine, tensor: object, place: int | None = None, single: bool = False, of: torch.SymFloat | None = None
    ) -> None:
        """``single``: it is an item of a tensor of single or half precision, or as small. ``of``: what it is, where that is computed from
        integers, as it can be on any device."""
        super().__init__(vm, tensor, place)
        self.single = single
        self.of = of

    def as_told(self) -> float:
        return 1.5

    def fills(self, dtype: torch.dtype) -> None:
        """It is written into a tensor of this type, which raises where the type's largest number is smaller."""
        if dtype is torch.float64 or (dtype is torch.float32 and self.single):
            return
        if dtype is not torch.float32 or not may_demand(self.vm):
            self.constant()
        size = self.tensor.method(self.vm, "abs", [], {})
        large = size.method(self.vm, "gt", [ConstantValue(LARGEST)], {})
        infinite = size.method(self.vm, "eq", [ConstantValue(math.inf)], {})
        demanded_of(self.vm, large.method(self.vm, "eq", [infinite], {}), (False, "RuntimeError", OVERFLOW))

    def nonzero(self, vm: Machine) -> object:
        return self.tensor.method(vm, "ne", [ConstantValue(0)], {})

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if not hasattr(float, name):
            return None
        if name in ITSELF:
            return self
        if name in UNARY:
            return LateFloat(vm, vm.recorder.call_function(vm, UNARY[name], [self.tensor], {}), self.place, self.single)
        if name in POWERS and in_optimizer(vm):
            return self.power(vm, args[0], name == "__rpow__")
        operation = REFLECTED.get(name, name)
        if operation not in ARITHMETIC and operation not in COMPARISONS:
            return self.constant()
        other = self.operand(vm, args[0])
        if other is None:
            return ConstantValue(NotImplemented)
        left, right = (other, self.tensor) if name in REFLECTED else (self.tensor, other)
        if operation == "__truediv__":
            self.check_divisor(vm, right)
            if type(left) in (ConstantValue, SymbolicNumber):  # torch multiplies a number by the reciprocal, which rounds twice
                left = vm.recorder.call_function(vm, torch.full_like, [self.tensor, left], {})
        found = vm.recorder.call_function(vm, getattr(operator, operation), [left, right], {})
        place = min(self.place, args[0].place) if isinstance(args[0], LateFloat) else self.place
        return LateTruth(vm, found, place) if operation in COMPARISONS else LateFloat(vm, found, place)

    def operand(self, vm: Machine, value: Value) -> Value | None:
        """The other number of an operation, as the graph takes it; None for what is no number. Python's own arithmetic is that of doubles
        where integers are small."""
        if isinstance(value, LateFloat):
            return value.tensor
        if type(value) is SymbolicNumber and value.python_type() is int:
            return value
        if type(value) is FloatNumber:
            return vm.recorder.scalars.input_of(value, self.tensor.fake.device)
        if not value.symbolic and type(value) is not ConstantValue:
            return None
        plain = value.constant()
        if type(plain) not in (int, float, bool):
            return None
        return ConstantValue(float(plain)) if type(plain) is float or abs(plain) < EXACT else self.constant()

    def power(self, vm: Machine, other: Value, swapped: bool) -> Value:
        """Of numbers for which Python has a float, too."""
        operand = self.operand(vm, other)
        if operand is None:
            return ConstantValue(NotImplemented)
        left, right = (operand, self.tensor) if swapped else (self.tensor, operand)
        if not swapped and type(operand) is ConstantValue and operand.value == 0.5:
            return LateFloat(vm, vm.recorder.call_function(vm, torch.sqrt, [left], {}), self.place)
        return LateFloat(vm, vm.recorder.call_function(vm, torch.pow, [left, right], {}), self.place)

    def check_divisor(self, vm: Machine, divisor: object) -> None:
        """Division by zero raises, which a tensor does not do."""
        if in_optimizer(vm):
            return
        if type(divisor) is ConstantValue and divisor.value != 0:
            return
        if type(divisor) is ConstantValue or type(divisor) is SymbolicNumber or not may_demand(vm):
            self.constant()
        demanded_of(vm, LateFloat(vm, divisor).nonzero(vm), (False, "ZeroDivisionError", "float division by zero"))
