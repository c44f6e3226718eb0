"""Exceptions: made or raised in captured code, or given to it; their tracebacks."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Hashable, NoReturn, cast

from opmill_guards.source import Attr, Source

from ..errors import Unsupported
from .base import MISSING, BuiltinMethod, Machine, NotConstant, Raised, Value
from .constant import ConstantValue, is_none
from .objects import ObjectValue, find_in_mro
from .sequence import ListValue, TupleValue

if TYPE_CHECKING:
    from ..interpretation.frame import Frame


NONE = ConstantValue(None)
#: What each exception keeps beside its arguments, and what a new one has there.
LINKS: dict[str, Value] = {"__cause__": NONE, "__context__": NONE, "__suppress_context__": ConstantValue(False), "__traceback__": NONE}
#: What Python says of its errors beside their arguments.
KEPT_BESIDE: dict[type, tuple[str, ...]] = {
    AttributeError: ("name",),
    NameError: ("name",),
    ImportError: ("name", "path", *(("name_from",) if hasattr(ImportError, "name_from") else ())),
}
#: Classes whose text is made of the arguments alone.
SAID_BY_ARGUMENTS = (BaseException.__str__, KeyError.__str__)


def builtin_class(cls: type) -> type:
    """The class of exceptions of Python's own that a class comes from."""
    return next(c for c in cls.__mro__ if c.__module__ == "builtins")


@dataclass(frozen=True)
class Passage:
    """A frame that an exception came up in or came through, and where; ``outermost``: it is that of the captured function itself."""

    code: types.CodeType
    globals: dict[str, object]
    position: object
    outermost: bool


class ExceptionObject(ObjectValue):
    """An exception. ``fields``: what its class implemented in C keeps, as far as it was looked at; of a new one all that is not MISSING
    there."""

    def __init__(self, cls: type[BaseException], args: list[Value], obj: object = None, source: Source | None = None) -> None:
        super().__init__(cls, obj, source)
        self.fields: dict[str, Value] = {} if source is not None else {"args": TupleValue(args), **LINKS}
        self.written: dict[str, None] = {}
        """Fields that captured code has changed of an exception of before the call."""
        self.raised_at: dict[int, object] = {}
        """By the frame's identity: where in its code the exception was raised or came through."""
        self.passages: list[Passage] = []
        """The same in order, innermost first: what its traceback shows."""
        self.part_of: Value | None = None
        """The group that this one was split from."""
        self.group: tuple[Value, TupleValue] | None = None
        """Message and exceptions of a new group, as they were when it was made: the list that it was given is the program's."""

    def __repr__(self) -> str:
        return f"Exception({self.cls.__name__})"

    def read(self, vm: Machine, name: str) -> Value:
        """One of the ``fields``."""
        if name in self.fields:
            return self.fields[name]
        if self.source is None:
            return self.field_of_class(vm, name)
        if type(vm.hook(self.cls, "__getattribute__")) is types.FunctionType:
            vm.unsupported("FE041", f"{name} of {self.describe()}", "guards would read it by the program's own __getattribute__")
        self.fields[name] = vm.wrap(getattr(self.obj, name), Attr(self.source, name))
        return self.fields[name]

    def arguments(self, vm: Machine) -> list[Value]:
        """The items of ``args``."""
        args = self.read(vm, "args")
        assert isinstance(args, TupleValue), args
        return args.items

    def write(self, vm: Machine, name: str, value: Value) -> None:
        self.fields[name] = value
        if self.source is not None:
            self.written.pop(name, None)  # the last assignment counts, also for the order: that of a cause suppresses the context
            self.written[name] = None
            vm.effects.mutated(self)

    def raised_while(self, vm: Machine, handled: Value | None) -> ExceptionObject:
        """The exception, raised while another one is handled: that becomes its context, and this one nobody's on the way."""
        if handled is self or handled is None:
            return self
        link: Value = handled
        seen: list[Value] = []
        while isinstance(link, ExceptionObject) and not any(link is known for known in seen):
            seen.append(link)
            following = link.read(vm, "__context__")
            if following is self:
                link.write(vm, "__context__", NONE)
                break
            link = following
        if self.read(vm, "__context__") is not handled:
            self.write(vm, "__context__", handled)
        return self

    def passes(self, vm: Machine, frame: Frame, position: object) -> None:
        """The exception comes up in a frame, or comes through it."""
        if id(frame) not in self.raised_at:
            self.raised_at[id(frame)] = position
            self.passages.append(Passage(frame.code, frame.globals, position, frame.caller is None))
            self.fields["__traceback__"] = TracebackValue(self)

    def initialize(self, vm: Machine, base: type, args: list[Value], kwargs: dict[str, Value]) -> None:
        """``base.__init__`` of a class implemented in C: keeps the arguments, and forgets what was kept beside them."""
        if self.source is not None:
            vm.unsupported("FE020", f"method __init__ of {self.describe()}", "the exception was made before the call")
        if kwargs:
            make: Any = base
            try:
                make.__init__(make.__new__(self.cls), **dict.fromkeys(kwargs))
            except TypeError as exc:
                vm.throw_real(exc)
        if issubclass(base, OSError) and not initialized_late(self.cls):
            return  # its ``__new__`` has done it
        if issubclass(base, BaseExceptionGroup):
            vm.unsupported("FE020", f"method __init__ of {self.describe()}", "message and exceptions stay as they are")
        own = [name for name in self.fields if name != "args" and name not in LINKS and find_in_mro(base.__mro__, name)[0] is not None]
        for name in own:
            del self.fields[name]
        self.keep(base, args)
        self.fields |= kwargs

    def hold(self, message: Value, exceptions: Iterable[Value]) -> None:
        """It is a group of these exceptions, whatever becomes of the list that it was given."""
        self.group = message, TupleValue(list(exceptions))

    def given(self) -> list[Value]:
        """What its class is given to make it again."""
        if self.group is not None:
            return [self.group[0], ListValue(list(self.group[1].items))]
        return cast(TupleValue, self.fields["args"]).items

    def keep(self, base: type, args: list[Value]) -> None:
        """The arguments of a new exception; names of files are none to those of an OSError."""
        named = issubclass(base, OSError) and 2 < len(args) <= 5
        self.fields["args"] = TupleValue(args[:2] if named else args)
        if named:
            self.fields |= {"filename": args[2], **({"filename2": args[4]} if len(args) == 5 else {})}

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        if name == "args" or name in LINKS:
            return self.read(vm, name)
        if name in ("with_traceback", "add_note"):
            return BuiltinMethod(self, name)
        if name == "value" and issubclass(self.cls, StopIteration) and self.source is None and name not in self.fields:
            args = self.arguments(vm)
            return args[0] if args else NONE
        if name in ("message", "exceptions") and issubclass(self.cls, BaseExceptionGroup) and self.source is None:
            if self.group is None:
                message, exceptions = self.arguments(vm)
                self.hold(message, vm.unpack(exceptions))
            return cast(tuple[Value, TupleValue], self.group)[name == "exceptions"]
        if name in self.fields or self.is_field(name):
            return self.read(vm, name)
        return super().generic_getattr(vm, name)

    def is_field(self, name: str) -> bool:
        """Whether a class implemented in C keeps the attribute beside the dictionary."""
        owner, raw = find_in_mro(self.cls.__mro__, name)
        return (
            isinstance(raw, (types.MemberDescriptorType, types.GetSetDescriptorType))
            and owner.__module__ == "builtins"
            and issubclass(owner, BaseException)
            and name != "__dict__"
        )

    def field_of_class(self, vm: Machine, name: str) -> Value:
        """What the class implemented in C makes of the arguments: asked of such an exception."""
        base = builtin_class(self.cls)
        try:
            made = base(*[vm.plain(a) for a in vm.unpack(self.read(vm, "args"))])
            return vm.fresh(getattr(made, name))
        except NotConstant:
            return vm.unsupported("FE040", f"attribute {name} of {self.describe()}", "an argument of the exception is unknown at capture")
        except Exception as exc:
            return vm.throw_real(exc)

    def generic_setattr(self, vm: Machine, name: str, value: Value) -> None:
        if name in ("__cause__", "__context__"):
            if not is_none(value) and not issubclass(value.python_type(), BaseException):
                vm.throw(TypeError, f"exception {name.strip('_')} must be None or derive from BaseException")
            self.write(vm, name, value)
            if name == "__cause__":
                self.write(vm, "__suppress_context__", ConstantValue(True))
        elif name == "__traceback__":
            if not is_none(value) and value.python_type() is not types.TracebackType:
                vm.throw(TypeError, "__traceback__ must be a traceback or None")
            self.write(vm, name, value)
        elif name == "__suppress_context__":
            if value.python_type() is not bool:
                vm.throw(TypeError, "attribute value type must be bool")
            self.write(vm, name, ConstantValue(vm.truth(value)))
        elif name in ("message", "exceptions") and find_in_mro(self.cls.__mro__, name)[0] is BaseExceptionGroup:
            vm.throw(AttributeError, "readonly attribute")
        elif name == "args":
            self.write(vm, name, TupleValue(vm.unpack(value)))
        elif self.is_field(name):
            self.write(vm, name, value)
        else:
            super().generic_setattr(vm, name, value)

    def m_with_traceback(self, vm: Machine, tb: Value) -> Value:
        self.generic_setattr(vm, "__traceback__", tb)
        return self

    def m_add_note(self, vm: Machine, note: Value) -> Value:
        if not issubclass(note.python_type(), str):
            vm.throw(TypeError, f"note must be a str, not {note.python_type().__name__!r}")
        notes = vm.attempt(lambda: vm.getattr(self, "__notes__"), AttributeError)
        if notes is None:
            notes = ListValue([])
            vm.setattr(self, "__notes__", notes)
        if not isinstance(notes, ListValue):
            vm.throw(TypeError, "Cannot add note: __notes__ is not a list")
        return notes.m_append(vm, note)

    def real_exception(self, vm: Machine) -> BaseException:
        """An exception of the class with the same text. Raises NotConstant."""
        if self.source is not None and find_in_mro(self.cls.__mro__, "__str__")[1] not in SAID_BY_ARGUMENTS:
            raise NotConstant(self.describe())
        base = builtin_class(self.cls)
        made = base(*[vm.plain(a) for a in vm.unpack(self.read(vm, "args"))])
        for name, value in self.fields.items():
            if name not in ("args", "name", "obj") and name not in LINKS and self.is_field(name):
                setattr(made, name, vm.plain(value))
        return made

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        method = find_in_mro(self.cls.__mro__, name)[1]
        if name not in ("__str__", "__repr__") or isinstance(method, types.FunctionType):
            return super().special(vm, name, args)
        try:
            text = method(self.real_exception(vm))
        except NotConstant:
            vm.unsupported("FE025", "text of an exception with values unknown at capture")
        base = builtin_class(self.cls)
        return ConstantValue(self.cls.__name__ + text.removeprefix(base.__name__) if name == "__repr__" else text)


def initialized_late(cls: type) -> bool:
    """Whether ``OSError.__init__`` looks at the arguments: where the program has an ``__init__`` and no ``__new__`` of its own."""
    init, new = (find_in_mro(cls.__mro__, name)[1] for name in ("__init__", "__new__"))
    return type(init) is types.FunctionType and not isinstance(new, staticmethod)


def raised_by_python(vm: Machine, exc: BaseException) -> ExceptionObject:
    """The tracked value of an exception that Python itself raised at capture, with those that it was raised in the midst of."""
    raised: ExceptionObject = vm.new_exception(type(exc), [vm.of_error(a) for a in exc.args])
    for name in next((KEPT_BESIDE[base] for base in type(exc).__mro__ if base in KEPT_BESIDE), ()):
        raised.fields[name] = ConstantValue(getattr(exc, name))
    for name, kept in vars(exc).items():
        ObjectValue.generic_setattr(raised, vm, name, vm.of_error(kept))
    if isinstance(exc.__context__, Exception) and not isinstance(exc.__context__, (Unsupported, Raised, NotConstant)):
        raised.fields["__context__"] = raised_by_python(vm, exc.__context__)
        if exc.__cause__ is exc.__context__:
            raised.fields["__cause__"] = raised.fields["__context__"]
        raised.fields["__suppress_context__"] = ConstantValue(exc.__suppress_context__)
    return raised


class TracebackValue(Value):
    """A traceback: of an exception that was raised in captured code (``raised``), or one of before the call. It is passed on as it is; what
    it holds is for the program itself to look at, after a graph that ends where the exception came up."""

    def __init__(self, raised: Value | None = None, obj: object = MISSING, source: Source | None = None) -> None:
        self.raised = raised
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return types.TracebackType

    def real(self) -> object:
        return self.obj

    def describe(self) -> str:
        return "a traceback" if self.raised is None else f"the traceback of {self.raised.describe()}"

    def refuse(self, vm: Machine) -> NoReturn:
        """Its frames and lines are those of a run, not of a capture."""
        origin = vm.origins.get(id(self.raised))
        why = "frames and lines are those of a run, not of a capture"
        vm.unsupported("FE044", f"a look at {self.describe()}", why, place=None if origin is None else origin[1])

    def getattr(self, vm: Machine, name: str) -> Value:
        return super().getattr(vm, name) if name == "__class__" else self.refuse(vm)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return None if name in ("__eq__", "__ne__") else self.refuse(vm)

    def key(self, vm: Machine) -> Hashable:
        return self.refuse(vm)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        self.refuse(vm)


__all__ = ["LINKS", "ExceptionObject", "TracebackValue", "initialized_late", "raised_by_python"]
