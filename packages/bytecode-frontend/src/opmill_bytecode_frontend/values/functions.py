"""Functions, closure cells, bound methods, partials, and callables implemented in C."""

from __future__ import annotations

import decimal
import functools
import operator
import re
import types
import weakref
from collections.abc import Sequence
from typing import Any, Hashable, NoReturn, cast

import torch

from opmill_guards.guard import Absent, Predicate
from opmill_guards.source import Attr, CellContents, InstanceDict, Item, Pinned, Source

from .base import COMPARISONS, MISSING, BuiltinMethod, KnownObject, Lazy, Machine, NotConstant, Value, apply, find_in_mro
from .constant import ConstantValue
from .mapping import DictValue
from .sequence import TupleValue


class CellValue(Value):
    """A closure cell; one of before the call reads its contents lazily."""

    def __init__(self, content: Value | Lazy = MISSING, obj: types.CellType | None = None, source: Source | None = None) -> None:
        self.content = content
        self.settled_at: int | None = None
        """Where a hook was made a part of the graph that reads it when the backward runs: what it holds may not change from there on."""
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return types.CellType

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def get(self, vm: Machine) -> Any:
        if self.content is MISSING and self.obj is not None:
            try:
                content = self.obj.cell_contents
            except ValueError:
                if self.source is not None:
                    vm.guard(Predicate(self.source, holds_nothing, "is empty"))
                return MISSING
            self.content = vm.wrap(content, CellContents(self.source))
        return self.content

    def set(self, vm: Machine, value: Value | Lazy) -> None:
        if self.settled_at is not None:
            vm.unsupported("FE033", "a variable that the hook of a tensor reads", "it changes before the backward", place=self.settled_at)
        self.content = value
        if self.source is not None:
            vm.effects.mutated(self)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "cell_contents":
            content = self.get(vm)
            if content is MISSING:
                vm.throw(ValueError, "Cell is empty")
            return content
        return super().getattr(vm, name)


def holds_nothing(cell: types.CellType) -> bool:
    """Whether a variable that inner functions see has no value."""
    try:
        cell.cell_contents  # noqa: B018 - that it raises is the answer
    except ValueError:
        return True
    return False


#: Attributes that functions have by themselves.
OF_FUNCTIONS = frozenset([*dir(types.FunctionType), "__module__"])


class FunctionValue(Value):
    """A Python function: one of before the call (``obj``), or made in captured code."""

    def __init__(
        self,
        code: types.CodeType,
        globals_: dict[str, object],
        name: str,
        qualname: str = "",
        defaults: Sequence[object] = (),
        kwdefaults: dict[str, Any] | None = None,
        closure: Sequence[Any] = (),
        obj: types.FunctionType | None = None,
        source: Source | None = None,
        annotations: Any = None,
    ) -> None:
        self.code = code
        self.globals = globals_
        self.name = name
        self.qualname = qualname or name
        self.defaults = defaults
        self.kwdefaults = kwdefaults or {}
        self.keyword_table: DictValue | None = None
        """``__kwdefaults__``, once somebody has asked for it: it may be changed."""
        self.closure = closure
        self.obj = obj
        self.source = source
        self.annotations = annotations
        """Of a new function: a tuple of names and values in turn, and the dictionary of them once somebody has asked for it."""
        self._attrs: DictValue | None = None
        self.known: dict[str, Value] = {}
        """What was assigned to its ``__name__``, ``__doc__`` and the like."""

    def __repr__(self) -> str:
        return f"Function({self.qualname})"

    def python_type(self) -> type:
        return types.FunctionType

    def constant(self) -> object:
        if self.obj is None:
            raise NotConstant("a function made in captured code")
        return self.obj

    def real(self) -> object:
        return MISSING if self.obj is None else self.obj

    def describe(self) -> str:
        return f"function {self.qualname}"

    def key(self, vm: Machine) -> Hashable:
        return self if self.obj is None else self.obj

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.inline(self, args, kwargs)

    def callee(self) -> FunctionValue:
        return self

    @property
    def attrs(self) -> DictValue:
        """``__dict__``."""
        if self._attrs is None and (real := self.real()) is MISSING:
            self._attrs = DictValue({})
            self._attrs.part_of = self
        elif self._attrs is None:
            source = InstanceDict(self.source)
            self._attrs = DictValue(
                {k: (ConstantValue(k), Lazy(v, Item(source, k))) for k, v in real.__dict__.items()}, dict, source, real.__dict__
            )
        return self._attrs

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__get__":
            return DescriptorGet(self)
        if name in self.known:
            return self.known[name]
        if name == "__dict__":
            return self.attrs
        if name == "__globals__":
            return vm.names(self.globals)
        if name == "__kwdefaults__" and self.real() is not MISSING:
            table = vm.wrap(getattr(self.real(), name), Attr(self.source, name))
            self.keyword_table = table if isinstance(table, DictValue) else None
            return table
        if name in OF_FUNCTIONS and (real := self.real()) is not MISSING:
            found = getattr(real, name)
            own = type(found) in (types.BuiltinFunctionType, types.MethodWrapperType) and found.__self__ is real
            return super().getattr(vm, name) if own else vm.wrap(found, Attr(self.source, name))
        known = {"__name__": self.name, "__qualname__": self.qualname, "__module__": self.globals.get("__name__"), "__doc__": self.doc()}
        known["__type_params__"] = ()  # those that the program gave it are ``known`` otherwise
        if name in known and name in OF_FUNCTIONS:
            return vm.fresh(known[name])
        if name == "__code__":
            return ConstantValue(self.code)
        if name == "__defaults__":
            return TupleValue(list(self.defaults)) if self.defaults else ConstantValue(None)
        if name == "__kwdefaults__":
            if self.keyword_table is None and self.kwdefaults:
                self.keyword_table = DictValue({k: (ConstantValue(k), v) for k, v in self.kwdefaults.items()})
                self.keyword_table.part_of, self.keyword_table.attribute = self, name
            return self.keyword_table if self.keyword_table is not None else ConstantValue(None)
        if name == "__closure__":
            return TupleValue(list(self.closure)) if self.closure else ConstantValue(None)
        if name == "__annotations__":
            return self.annotated()
        found = self.attrs.lookup(vm, name)
        if found is not MISSING:
            return found
        if name in OF_FUNCTIONS:
            return super().getattr(vm, name)
        vm.no_attribute(self, name, f"'function' object has no attribute {name!r}")

    def keyword_defaults(self) -> dict[str, Any]:
        """As captured code has left them."""
        table = self.keyword_table
        return self.kwdefaults if table is None or not table.version else {str(k): v for k, (_, v) in table.items.items()}

    def doc(self) -> str | None:
        """The text that the function's code begins with. (3.13 marks its presence, before it is the first constant or that is None.)"""
        first = self.code.co_consts[0] if self.code.co_consts else None
        return first if isinstance(first, str) else None

    def annotated(self) -> DictValue:
        """``__annotations__`` of a function made in captured code."""
        if not isinstance(self.annotations, DictValue):
            given = [] if self.annotations is None else self.annotations.items
            self.annotations = DictValue({k.constant(): (k, v) for k, v in zip(given[::2], given[1::2])})
        return self.annotations

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if self.real() is not MISSING and name in OF_FUNCTIONS:
            vm.unsupported("FE021", f"assignment to attribute {name} of {self.describe()}")
        if name in ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__dict__"):
            vm.unsupported("FE021", f"assignment to {name} of a function made in captured code")
        if name == "__annotations__":
            self.annotations = value
        elif name in OF_FUNCTIONS:
            self.known[name] = value
        else:
            self.attrs.store(vm, ConstantValue(name), value)

    def delattr(self, vm: Machine, name: str) -> None:
        if name in OF_FUNCTIONS:
            super().delattr(vm, name)
        if self.attrs.lookup(vm, name) is MISSING:
            vm.no_attribute(self, name, f"'function' object has no attribute {name!r}")
        self.attrs.m_pop(vm, ConstantValue(name))


def function_value(fn: types.FunctionType, source: Source | None) -> FunctionValue:
    """The tracked value of a function of before the call, whose identity is guarded. ``source``: the pinned function, if the program has
    it."""
    pinned = Pinned(fn, fn.__qualname__, mortal=type(source) is Pinned and source.mortal)
    defaults = [Lazy(d, Pinned(d, f"default of {fn.__qualname__}", pinned.mortal)) for d in fn.__defaults__ or ()]
    kwdefaults = {k: Lazy(d, Pinned(d, f"default {k}", pinned.mortal)) for k, d in (fn.__kwdefaults__ or {}).items()}
    value = FunctionValue(fn.__code__, fn.__globals__, fn.__name__, fn.__qualname__, defaults, kwdefaults, fn.__closure__ or (), fn, pinned)
    return value


class DescriptorGet(Value):
    """``function.__get__``."""

    def __init__(self, function: Value) -> None:
        self.function = function

    def python_type(self) -> type:
        return types.MethodWrapperType

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(args[0], ConstantValue) and args[0].value is None:
            return self.function
        return MethodValue(self.function, args[0])


class MethodValue(Value):
    """A Python callable bound to a value."""

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.function = function
        self.owner = owner
        self.source = source

    def __repr__(self) -> str:
        return f"Method({self.function!r})"

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def constant(self) -> object:
        owner = self.owner.real()
        if owner is MISSING:
            raise NotConstant("method of an object made in captured code")
        return types.MethodType(self.function.constant(), owner)

    def key(self, vm: Machine) -> Hashable:
        return (vm.key(self.function), vm.key(self.owner))

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call(self.function, [self.owner, *args], kwargs)

    def callee(self) -> object:
        return self.function.callee()

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__func__":
            return self.function
        if name == "__self__":
            return self.owner
        return vm.getattr(self.function, name)

    def m___eq__(self, vm: Machine, other: Value) -> Value:
        return ConstantValue(
            isinstance(other, MethodValue) and other.owner is self.owner and vm.key(other.function) == vm.key(self.function)
        )


class PartialValue(Value):
    """``functools.partial``."""

    def __init__(
        self, function: Value, args: list[Value], keywords: DictValue, cls: type, source: Source | None = None, obj: object = None
    ) -> None:
        self.function, self.args, self.keywords = function, args, keywords
        self.cls, self.source, self.obj = cls, source, obj
        self.attrs: dict[str, Value] = {}
        self.shown: TupleValue | None = None
        """What ``args`` gave."""
        self.shows_keywords = False
        """Whether the program has seen the dictionary itself."""

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.source is None else self.obj

    def key(self, vm: Machine) -> Hashable:
        vm.guard_object(self)
        return self if self.obj is None else self.obj

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call(self.function, [*self.args, *args], {**self.bound_keywords(vm), **kwargs})

    def bound_keywords(self, vm: Machine) -> dict[str, Value]:
        """The keyword arguments as they are now: the dictionary may be changed."""
        return {k.constant(): v for k, v in zip(self.keywords.key_values(vm), self.keywords.all_values(vm))}

    def callee(self) -> object:
        return self.function.callee()

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            if self.obj is not None:
                return vm.wrap(cast(functools.partial[object], self.obj).args, Attr(self.source, "args"))
            self.shown = self.shown or TupleValue(list(self.args))
            return self.shown
        if name == "keywords":
            self.shows_keywords = True
            return self.keywords
        if name in self.attrs:
            return self.attrs[name]
        if self.obj is not None and name in self.obj.__dict__:
            return vm.wrap(self.obj.__dict__[name], Item(InstanceDict(self.source), name))
        if self.obj is not None:
            vm.guard(Absent(InstanceDict(self.source), name))
        return super().getattr(vm, name)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if self.obj is not None:
            return super().setattr(vm, name, value)
        self.attrs[name] = value


class BuiltinValue(KnownObject):
    """A callable or other object known by identity whose behaviour the library of handlers knows (or Python can fold)."""

    def as_operand(self, vm: Machine) -> Value:
        """Torch takes NumPy's truths for floats, and of its single complex numbers the real part."""
        kind: str = self.obj.dtype.kind if type(self.obj).__module__ == "numpy" and hasattr(type(self.obj), "dtype") else ""
        if kind == "c":
            name = type(self.obj).__name__
            why, hint = "torch leaves its imaginary part out, and warns", "use Python's number, complex(...) of it"
            vm.unsupported("FE034", f"an operator of a tensor and a {name} of NumPy's", why, hint)
        return vm.fresh(float(self.obj)) if kind == "b" else self

    def __repr__(self) -> str:
        return f"Builtin({self.obj!r})"

    def describe(self) -> str:
        module = getattr(self.obj, "__module__", None)
        name = getattr(self.obj, "__qualname__", None) or getattr(self.obj, "__name__", repr(self.obj))
        return f"{module}.{name}" if module else str(name)

    def truth(self, vm: Machine) -> bool:
        return bool(self.obj)

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return vm.call_builtin(self.obj, args, kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if type(self.obj).__name__ == "ufunc":
            return vm.call_builtin(getattr(self.obj, name), args, kwargs)
        return super().method(vm, name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__get__" and isinstance(self.obj, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return DescriptorGet(self)
        try:
            found = getattr(self.obj, name)
        except Exception as exc:
            vm.throw_real(exc)
        if (
            type(found) in (types.BuiltinFunctionType, types.MethodWrapperType)
            and found.__self__ is self.obj
            and not isinstance(self.obj, type)
        ):
            return BuiltinMethod(self, name)
        return vm.wrap(found, Attr(Pinned(self.obj, self.describe()), name))

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        slot = getattr(type(self.obj), name, None)
        if slot is None:
            return None
        if type(self.obj) is decimal.Decimal:
            now = rules()
            vm.guard(Predicate(Pinned(rules, "decimal.getcontext()"), lambda asked: asked() == now, "is the same"))
        try:
            return vm.fresh(slot(self.obj, *[a.constant() for a in args]))
        except NotConstant as exc:
            return knows_itself_only(vm, slot, name, self, args, exc)
        except Exception as exc:
            vm.throw_real(exc)


def rules() -> tuple[object, ...]:
    """By what decimals are computed with now; not what came up while they were."""
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, tuple(context.traps.items())


def knows_itself_only(vm: Machine, slot: object, name: str, owner: Value, args: list[Value], exc: NotConstant) -> Value:
    """The answer of an object of C to an operand that has no constant: that it knows none, where that is so."""
    tensor = any(hasattr(a, "fake") or hasattr(a, "inner") for a in args)  # which has an answer of its own
    if not tensor and slot is not getattr(object, name, None):
        vm.unsupported("FE020", f"{name} of {owner.describe()} and {exc}", "it has no symbolic counterpart")
    return ConstantValue(NotImplemented)


def stays(cls: type) -> bool:
    """Whether objects of a class of C are what they are for good: those that are equal by their content have a hash of it."""
    return issubclass(cls, STAYING) or (cls.__hash__ not in (None, object.__hash__) and not hasattr(cls, "__setitem__"))


STAYING = (re.Match, torch.finfo, torch.iinfo)


class ChangingValue(BuiltinValue):
    """An object of a class of C whose content may change from call to call (``bytearray``, an array): known by identity alone."""

    def describe(self) -> str:
        return f"a {type(self.obj).__qualname__}"

    def constant(self) -> object:
        raise NotConstant(f"the content of a {type(self.obj).__qualname__}")

    def refuse(self, vm: Machine, *args: object) -> NoReturn:
        vm.unsupported(
            "FE020",
            f"a look into a {type(self.obj).__qualname__}",
            "its content may be another at the next call",
            "pass a tensor or a tuple",
        )

    iterate = refuse

    def truth(self, vm: Machine) -> bool:
        return not any(hasattr(type(self.obj), name) for name in ("__bool__", "__len__")) or self.refuse(vm)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        slot = getattr(type(self.obj), name, None)
        if slot is None or slot is getattr(object, name, None):
            return super().special(vm, name, args)
        self.refuse(vm)


class ViewOfBefore(ChangingValue):
    """A view of a dictionary of before the call: another one may be found in its place."""

    def getattr(self, vm: Machine, name: str) -> Value:
        found = super().getattr(vm, name)
        return found if isinstance(found, BuiltinMethod) else self.refuse(vm)


class Closure(Value):
    """A callable that the library makes."""

    def __init__(self, function: object) -> None:
        self.function = function

    def python_type(self) -> type:
        return operator.itemgetter

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return apply(vm, self.function, "what a function made", args, kwargs)


class WeakReference(Value):
    """A weak reference made in captured code; what it refers to lives as long as the capture."""

    def __init__(self, target: Value) -> None:
        self.target = target

    def python_type(self) -> type:
        return weakref.ref

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.target

    def key(self, vm: Machine) -> Hashable:
        """References to one object are equal keys, those of before the call among them; they ask the object for its hash and equality."""
        real = self.target.real()
        asked = [find_in_mro(type(real).__mro__, name)[1] for name in ("__hash__", "__eq__")]
        if any(type(raw) is types.FunctionType for raw in asked):
            vm.unsupported(
                "FE024", f"hash of a weak reference to {self.target.describe()}", "its class has a __hash__ or __eq__ of its own"
            )
        vm.key(self.target)  # what has none raises, what it assumes is assumed
        return weakref.ref(real)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if name not in ("__eq__", "__ne__"):
            return super().special(vm, name, args)
        other = args[0].real()
        if isinstance(args[0], WeakReference):
            return vm.compare(COMPARISONS[name], self.target, args[0].target)
        if not isinstance(other, weakref.ref):
            return ConstantValue(NotImplemented)
        found = other()
        return (
            ConstantValue(name == "__ne__")
            if found is None
            else vm.compare(COMPARISONS[name], self.target, vm.wrap(found, Pinned(found, "referent")))
        )
