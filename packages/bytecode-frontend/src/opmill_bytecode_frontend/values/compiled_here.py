"""What a compiler makes of a function or module while captured code asks for it: it means what it was made of. Who keeps it gets a real
one."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Hashable

from opmill_guards import CompiledFunction

from .base import IdentityKey, Machine, Value
from .functions import FunctionValue, MethodValue
from .modules import ModuleValue

TORCH = "torch._dynamo.eval_frame"


class CompiledHere(Value):
    """``maker(model, **given)``; ``model``: what is compiled."""

    def __init__(self, maker: types.FunctionType, model: Value, given: dict[str, Value]) -> None:
        self.maker = maker
        self.model = model
        self.given = given

    def python_type(self) -> type:
        own = self.model.python_type()
        if isinstance(self.model, ModuleValue):
            return getattr(sys.modules.get(TORCH), "OptimizedModule", own) if self.is_torchs() else own
        if self.is_torchs() or isinstance(self.model, MethodValue):
            return types.FunctionType if self.is_torchs() else own
        return CompiledFunction if isinstance(self.model, FunctionValue) else own

    def is_torchs(self) -> bool:
        return (getattr(self.maker, "__module__", None) or "").split(".")[0] == "torch"

    def describe(self) -> str:
        return f"compiled {self.model.describe()}"

    def key(self, vm: Machine) -> Hashable:
        return IdentityKey(self)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call(self.model, args, kwargs)

    def callee(self) -> object:
        return self.model.callee()

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__class__":
            return vm.wrap(self.python_type())
        return self.model if name in ("__wrapped__", "_orig_mod", "_torchdynamo_orig_callable") else vm.getattr(self.model, name)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if not isinstance(self.model, ModuleValue):
            vm.unsupported("FE021", f"assignment to attribute {name} of {self.describe()}")
        vm.setattr(self.model, name, value)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return None if name in ("__eq__", "__ne__", "__hash__") else self.model.special(vm, name, args)

    def iterate(self, vm: Machine) -> Value:
        return vm.iterate(self.model)


class CompilerHere(Value):
    """``maker(**given)``, a decorator."""

    def __init__(self, maker: object, given: dict[str, Value], compile: Callable[..., Value]) -> None:
        self.maker = maker
        self.given = given
        self.compile = compile

    def python_type(self) -> type:
        return types.FunctionType

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.compile(vm, self.maker, *args, **kwargs, **self.given)


__all__ = ["CompiledHere", "CompilerHere"]
