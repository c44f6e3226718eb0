"""Constants: immutable Python values and objects known by identity (dtypes, devices, enum members, code objects, ...)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Callable

from opmill_guards.source import Source

from .base import SWAPPED, BuiltinMethod, Machine, NotConstant, Value, content, find_in_mro, turned
from .format_fields import by_fields
from .iterators import STOP, ItemsIterator
from .made_texts import joined, made_text, told
from .warned import called_at_capture

#: Types whose instances are immutable, so that any method of theirs may be called at capture.
LITERALS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))

#: What a with statement calls: of constants only devices have them, and what that does is not computed at capture.
OPENING = ("__enter__", "__exit__")


def takes_content(value: object, name: str) -> bool:
    """Whether an operation of the data model looks at the content of an operand of a derived class, whatever that class says."""
    if name in ("__mod__", "__contains__"):  # formatting asks, and so do containers
        return isinstance(value, (str, bytes)) == (name == "__contains__")
    return name.startswith("__") and name.endswith("__") and name != "__format__"


def is_literal(value: Value) -> bool:
    """Whether it is a number or a text that is known, whose methods Python itself calls."""
    return type(value) is ConstantValue and type(value.value) in LITERALS


def is_nan(value: Value) -> bool:
    """Whether it is a NaN: a constant that differs from itself, so that containers tell it by identity alone."""
    return type(value) is ConstantValue and type(value.value) in (float, complex) and bool(value.value != value.value)


class ConstantValue(Value):
    """An immutable Python value; operations on constants are computed at capture by Python itself."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"

    def python_type(self) -> type:
        return type(self.value)

    def constant(self) -> object:
        return self.value

    def as_told(self) -> object:
        return self.value if type(self.value) in LITERALS else super().as_told()

    def real(self) -> object:
        return self.value

    def describe(self) -> str:
        return f"{type(self.value).__name__} {self.value!r:.60}"

    def key(self, vm: Machine) -> Hashable:
        if is_nan(self):
            vm.guard_object(self)
        return super().key(vm)

    def truth(self, vm: Machine) -> bool:
        try:
            return bool(self.value)
        except Exception as exc:
            vm.throw_real(exc)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if name in OPENING or not hasattr(type(self.value), name):
            return None

        def call(vm: Machine, *args: Value, **kwargs: Value) -> Value:
            return self.method(vm, name, list(args), kwargs)

        return call

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if type(self.value) is str and (text := told(self, name, args, kwargs)) is not None:
            return text
        if (again := self.again(vm, name, args, kwargs)) is not None:
            return again
        if type(self.value) is str and name == "format" and not all(map(is_literal, (*args, *kwargs.values()))):
            if (made := by_fields(vm, self.value, args, kwargs)) is not None:
                return made
        if name in OPENING:
            return vm.call(vm.wrap(getattr(type(self.value), name)), [self, *args], kwargs)
        if isinstance(self.value, str) and name == "join" and len(args) == 1:
            given = args[0] if args[0].python_type() in (list, tuple) else vm.attempt(lambda: vm.iterate(args[0]), TypeError)
            if given is None:
                vm.throw(TypeError, "can only join an iterable")
            items = vm.unpack(given, sized=True)
            if any(item.told_later for item in items) and (text := made_text(joined, [self, *items])) is not None:
                return text
            plain: list[object] = [[v.constant() for v in items]]
        else:
            try:
                plain = [known_part(a) if takes_content(self.value, name) else vm.plain(a) for a in args]
            except NotConstant:
                if name.startswith("__") and name.endswith("__"):
                    return ConstantValue(NotImplemented)
                vm.unsupported("FE025", f"method {name} of {self.describe()} with a value unknown at capture")
        if isinstance(self.value, str) and name == "format":
            kwargs = {k: v for k, v in kwargs.items() if k in self.value}  # ``format(**vars(self))`` is given more than the text names
        try:
            named = {k: vm.plain(v) for k, v in kwargs.items()}
        except NotConstant:
            vm.unsupported("FE025", f"method {name} of {self.describe()} with a value unknown at capture")
        try:
            function = getattr(self.value, name)
        except AttributeError as exc:
            vm.throw_real(exc)
        return self.given(vm, called_at_capture(vm, function, plain, named))

    def again(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """An iterator over it, forward or backward, each time another one; None for other methods."""
        if args or kwargs or not hasattr(type(self.value), name):
            return None
        return self.iterate(vm) if name == "__iter__" else self.m___reversed__(vm) if name == "__reversed__" else None

    def given(self, vm: Machine, result: object) -> Value:
        """What a method gave at capture, as it is given at each call: an iterator that nobody has asked yet."""
        return self.walk(list(result), type(result)) if isinstance(result, Iterator) else vm.fresh(result)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        kind = type(self.value)
        slot = getattr(kind, name, None)
        if slot is None or find_in_mro(kind.__mro__, name)[0] is None:  # its metaclass has one for the class
            return None
        if kind is str and (text := told(self, name, args, {})) is not None:
            return text
        if (again := self.again(vm, name, args, {})) is not None:
            return again
        if name == "__invert__" and type(self.value) is bool:  # which Python warns of
            return vm.fresh(called_at_capture(vm, slot, [self.value], {}))
        if type(self.value) in (int, float, bool) and any(a.symbolic for a in args):
            reflected = SWAPPED.get(name) or turned(name)  # not asked by Python for one type
            return args[0].special(vm, reflected, [self]) if hasattr(int, reflected) else ConstantValue(NotImplemented)
        try:
            plain = [known_part(a) if takes_content(self.value, name) else vm.plain(a) for a in args]
        except NotConstant:
            if name == "__mod__" and isinstance(self.value, str):
                vm.unsupported("FE025", f"formatting {self.value!r:.40} with a value unknown at capture")
            return ConstantValue(NotImplemented)
        if name in ("__mul__", "__rmul__") and type(self.value) in (str, bytes) and not hasattr(plain[0], "__index__"):
            return ConstantValue(NotImplemented)
        try:
            return self.given(vm, slot(self.value, *plain))
        except Exception as exc:
            vm.throw_real(exc)

    def getattr(self, vm: Machine, name: str) -> Value:
        try:
            result = getattr(self.value, name)
        except Exception as exc:
            vm.throw_real(exc)
        if callable(result) and getattr(result, "__self__", None) is self.value and not isinstance(result, type):
            if hasattr(result, "__func__"):
                return vm.wrap(result)
            from_builtin = BuiltinConstantMethod(self, name)
            return from_builtin
        return vm.fresh(result)

    def iterate(self, vm: Machine) -> Value:
        if isinstance(self.value, (range, str, bytes)):  # item by item: a range may be longer than memory
            return self.walk(self.value, type(iter(self.value)))
        try:
            items = list(self.value)
        except Exception as exc:
            vm.throw_real(exc)
        return vm.iterate(vm.fresh(items))

    def walk(self, items: Sequence[object], kind: type) -> Value:
        """An iterator over items that are made when they are asked for."""

        def read(vm: Machine, i: int) -> Value:
            try:
                return vm.fresh(items[i])
            except IndexError:
                return STOP

        return ItemsIterator(read, kind)

    def m___reversed__(self, vm: Machine) -> Value:
        return self.walk(self.value[::-1], type(reversed(self.value)))


def known_part(value: Value) -> object:
    """The constant that a value is, or of an object of a class derived from a number or a text what the builtin class knows of it."""
    part = content(value)
    return part.constant() if isinstance(part, ConstantValue) and part is not value else value.constant()


def is_none(value: Value) -> bool:
    """Whether a value is known to be None."""
    return type(value) is ConstantValue and value.value is None


class BuiltinConstantMethod(BuiltinMethod):
    """A builtin method of a constant, such as ``"".join``."""

    owner: ConstantValue

    def python_type(self) -> type:
        return type(getattr(self.owner.value, self.name))

    def constant(self) -> object:
        return getattr(self.owner.value, self.name)
