"""Arrays of NumPy that tensors do not hold, such as dates, where captured code makes them of constants: what is computed with them is
known, too."""

from __future__ import annotations

from typing import Callable

from .arrays import ASKED_OUTSIDE, Array, ArrayValue
from .base import Machine, NotConstant, Value
from .constant import ConstantValue
from .fixed import fixed_value

#: NumPy's kinds of dtypes: dates and times.
KINDS = "mM"


class KnownArray(Value):
    """``held``: the array, which nobody else writes to."""

    def __init__(self, held: Array) -> None:
        self.held = held

    def python_type(self) -> type:
        return type(self.held)

    def constant(self) -> object:
        return self.held

    def describe(self) -> str:
        return f"a NumPy array of {self.held.dtype}"

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if not callable(getattr(type(self.held), name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return self.method(vm, name, args, {}) if getattr(type(self.held), name, None) is not None else None

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in WRITING:
            vm.unsupported("FE085", f"{name} of {self.describe()}", "there is no program of torch for it")
        try:
            given, named = [plain(vm, a) for a in args], {k: plain(vm, v) for k, v in kwargs.items()}
        except NotConstant:
            vm.unsupported("FE085", f"{name} of {self.describe()}", "it is given what only data tell", "use torch's function on tensors")
        try:
            found = getattr(type(self.held), name)(self.held, *given, **named)
        except Exception as error:
            vm.throw_real(error)
        return ConstantValue(NotImplemented) if found is NotImplemented else vm.fresh(found)

    def getattr(self, vm: Machine, name: str) -> Value:
        if callable(getattr(type(self.held), name, None)):
            return super().getattr(vm, name)
        if name not in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "T"):
            vm.unsupported("FE085", f"attribute {name} of {self.describe()}", "it is about the array itself", ASKED_OUTSIDE)
        return vm.fresh(getattr(self.held, name))


WRITING = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __iand__ __ior__ __ixor__ sort fill put partition "
    "resize itemset setfield setflags byteswap tofile dump".split()
)


def plain(vm: Machine, value: Value) -> Array:
    """A value that is the same at each call. Raises NotConstant."""
    if not isinstance(value, ArrayValue):
        return vm.plain(value)
    found = fixed_value(vm, value.inner)
    if found is None:
        raise NotConstant("an array")
    return found.detach().numpy()[()] if value.is_number else found.detach().numpy()


__all__ = ["KINDS", "KnownArray", "plain"]
