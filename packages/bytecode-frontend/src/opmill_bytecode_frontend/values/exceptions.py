"""Exceptions raised or made in captured code."""

from __future__ import annotations

import types
from typing import Any

from .base import BuiltinMethod, NotConstant, Value
from .constant import ConstantValue
from .objects import ObjectValue, find_in_mro
from .sequence import TupleValue


class ExceptionObject(ObjectValue):
    """An exception raised or made in captured code."""

    def __init__(self, cls: type[BaseException], args: list[Value]) -> None:
        super().__init__(cls)
        self.args = args
        self.cause: Value | None = None
        self.context: Value | None = None
        self.suppress = False
        self.fields: dict[str, Value] = {}
        """What its class keeps beside the arguments: the name of an AttributeError, the path of an ImportError."""
        self.raised_at: dict[int, Any] = {}
        """By the frame's identity: where in its code the exception was raised or came through."""
        self.part_of: Value | None = None
        """The group that this one was split from."""

    def raised_while(self, handled: Value | None) -> ExceptionObject:
        """The exception, raised while another one is handled: that becomes its context."""
        link = handled
        while isinstance(link, ExceptionObject) and link is not self:
            if link.context is self:
                link.context = None
            link = link.context
        if handled is not self and handled is not None:
            self.context = handled
        return self

    def generic_getattr(self, vm: Any, name: str) -> Value:
        if name == "args":
            return TupleValue(list(self.args))
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else ConstantValue(None)
        if name == "message" and issubclass(self.cls, BaseExceptionGroup):
            return self.args[0]
        if name == "exceptions" and issubclass(self.cls, BaseExceptionGroup):
            return TupleValue(vm.unpack(self.args[1]))
        if name in ("__cause__", "__context__"):
            return (self.cause if name == "__cause__" else self.context) or ConstantValue(None)
        if name == "__traceback__":
            return ConstantValue(None)
        if name == "__suppress_context__":
            return ConstantValue(self.suppress)
        if name == "with_traceback":
            return BuiltinMethod(self, name)
        if name in self.fields:
            return self.fields[name]
        owner, raw = find_in_mro(self.cls.__mro__, name)
        if isinstance(raw, (types.MemberDescriptorType, types.GetSetDescriptorType)) and owner.__module__ == "builtins" and name != "__dict__":
            return self.field_of_class(vm, name)
        return super().generic_getattr(vm, name)

    def field_of_class(self, vm: Any, name: str) -> Value:
        """What the class implemented in C makes of the arguments: asked of such an exception."""
        base = next(c for c in self.cls.__mro__ if c.__module__ == "builtins")
        try:
            made = base(*[vm.plain(a) for a in self.args])
            return vm.fresh(getattr(made, name))  # type: ignore[no-any-return]
        except NotConstant:
            return vm.unsupported("FE040", f"attribute {name} of {self.describe()}", "an argument of the exception is unknown at capture")  # type: ignore[no-any-return]
        except Exception as exc:
            return vm.throw_real(exc)  # type: ignore[no-any-return]

    def generic_setattr(self, vm: Any, name: str, value: Value) -> None:
        if name in ("__cause__", "__context__", "__traceback__", "__suppress_context__"):
            if name in ("__cause__", "__context__"):
                setattr(self, name.strip("_"), None if isinstance(value, ConstantValue) else value)
                self.suppress |= name == "__cause__"
            elif name == "__suppress_context__":
                self.suppress = vm.truth(value)
            return
        if name == "args":
            self.args = vm.unpack(value)
            return
        if isinstance(find_in_mro(self.cls.__mro__, name)[1], (types.MemberDescriptorType, types.GetSetDescriptorType)):
            self.fields[name] = value
            return
        super().generic_setattr(vm, name, value)

    def m_with_traceback(self, vm: Any, tb: Value) -> Value:
        return self

    def m_add_note(self, vm: Any, note: Value) -> Value:
        return ConstantValue(None)

    def real_exception(self, vm: Any) -> BaseException:
        return self.cls(*[vm.plain(a) for a in self.args])

    def special(self, vm: Any, name: str, args: list[Value]) -> Value | None:
        if name in ("__str__", "__repr__") and not isinstance(find_in_mro(self.cls.__mro__, name)[1], types.FunctionType):
            try:
                return ConstantValue(getattr(self.real_exception(vm), name)())
            except NotConstant:
                vm.unsupported("FE025", "text of an exception with values unknown at capture")
        return super().special(vm, name, args)
