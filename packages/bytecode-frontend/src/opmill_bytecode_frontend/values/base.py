"""What every tracked value is, and the small protocol by which values reach the interpreter."""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Hashable, NoReturn, Protocol, TypeVar, final

from opmill_guards.source import Source

if TYPE_CHECKING:
    from opmill_guards.guard import SizeRelation

    from ..effects.changes import Effects
    from ..entry.varying import Varying
    from ..graph.recorder import Recorder
    from ..interpretation.frame import Frame
    from ..options import CaptureOptions
    from .classes import ClassValue
    from .exceptions import ExceptionObject
    from .functions import FunctionValue
    from .tensor import TensorValue


MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()
V = TypeVar("V", bound="Value")
_Told = TypeVar("_Told")


def find_in_mro(mro: tuple[type, ...], name: str) -> tuple[Any, Any]:
    """(class that defines it, raw attribute) or (None, MISSING): what ``_PyType_Lookup`` finds."""
    for cls in mro:
        raw = cls.__dict__.get(name, MISSING)
        if raw is not MISSING:
            return cls, raw
    return None, MISSING


def written_in_python(cls: type) -> bool:
    """Whether a class was made by a ``class`` statement. Heap types of extension modules are immutable (the deque of 3.12), or
    their objects have no dictionary, and they do not say so by ``__slots__`` (``zlib.Compress``), or C makes them (``ast.AST``)."""
    flags = cls.__flags__
    if not flags & (1 << 9) or flags & (1 << 8) or not (cls.__dictoffset__ or "__slots__" in cls.__dict__):
        return False
    new = cls.__dict__.get("__new__")
    return type(new) is not types.BuiltinFunctionType or new.__self__ is not cls


def name_in_c(cls: type) -> str:
    """How functions of C name a class in their messages."""
    return cls.__name__ if written_in_python(cls) or cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def full_name(cls: type) -> str:
    """How C's ``%T`` names a class (since Python 3.13)."""
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def nowhere_to_store(vm: Machine, owner: Value, name: str, hooked: bool = False) -> NoReturn:
    """An attribute that the class does not know is set, or deleted, of an object without a dictionary. ``hooked``: the class has a
    ``__setattr__`` or ``__delattr__`` of its own."""
    about = f"{name_in_c(owner.python_type())!r} object has no attribute {name!r}"
    if sys.version_info < (3, 13):
        vm.throw(AttributeError, about)  # which knows neither the object nor the name, other than that of a lookup
    vm.no_attribute(owner, name, about if hooked else f"{about} and no __dict__ for setting new attributes")


class NotConstant(Exception):
    """A tracked value has no Python constant that stands for it."""


class Raised(Exception):
    """A Python exception raised by the interpreted program; ``value`` is the tracked exception object."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Machine(Protocol):
    """What values may ask of the interpreter."""

    recorder: Recorder
    effects: Effects
    may_break: bool
    frame: Frame
    relations: list[SizeRelation]
    compared: list[tuple[Source, Source]]
    varying: Varying
    attempts: int
    behind: Any
    known: dict[int, tuple[object, Value]]
    origins: dict[int, tuple[Value, int]]
    options: CaptureOptions
    entry_switches: dict[object, tuple[object, ...]]

    def wrap(self, obj: object, source: Source | None = None) -> Value: ...
    def know(self, obj: object, value: V) -> V: ...
    def fresh(self, obj: object) -> Value: ...
    def plain(self, value: Value) -> Any: ...
    def call(self, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
    def inline(self, fn: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
    def guard(self, guard: object) -> None: ...
    def guard_object(self, value: Value) -> None: ...
    def guard_class(self, owner: type, name: str, raw: object) -> None: ...
    def guard_lookup(self, cls: type, owner: type | None, name: str) -> None: ...
    def guard_shadowed(self, cls: type, owner: type | None, name: str, raw: object) -> None: ...
    def hook(self, cls: type, name: str) -> object: ...
    def is_made(self, cls: type) -> bool: ...
    def unsupported(
        self, code: str, what: str, why: str = "", hint: str = "", place: int | None = None, whole: bool = False
    ) -> NoReturn: ...
    def throw(self, cls: type[BaseException], *args: object) -> NoReturn: ...
    def no_attribute(self, owner: Value, name: str, message: str) -> NoReturn: ...
    def throw_real(self, exc: BaseException) -> NoReturn: ...
    def new_exception(self, cls: type[BaseException], args: list[Value]) -> ExceptionObject: ...
    def truth(self, value: Value) -> bool: ...
    def is_same(self, left: Value, right: Value) -> bool: ...
    def key(self, value: Value) -> Hashable: ...
    def unpack(self, value: Value, sized: bool = ...) -> list[Value]: ...
    def iterate(self, value: Value) -> Value: ...
    def compare(self, op: str, left: Value, right: Value) -> Value: ...
    def equal(self, left: Value, right: Value) -> bool: ...
    def getattr(self, value: Value, name: str) -> Value: ...
    def place(self) -> int: ...
    def attempt(self, read: Callable[[], Value], cls: type[BaseException] | tuple[type[BaseException], ...]) -> Value | None: ...
    def setattr(self, value: Value, name: str, new: Value) -> None: ...
    def getitem(self, owner: Value, key: Value) -> Value: ...
    def next(self, iterator: Value) -> Value: ...
    def call_builtin(self, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
    def binary(self, op: str, left: Value, right: Value, direct: bool = ...) -> Value: ...
    def guard_tensor(self, guard: object, held: bool) -> None: ...
    def of_error(self, arg: object) -> Value: ...
    def added(self, value: TensorValue, name: str) -> Value: ...
    def bind(self, function: Value, owner: Value) -> Value: ...
    def class_source(self, owner: type, name: str, raw: object) -> Source: ...
    def construct(self, cls: ClassValue, args: list[Value], kwargs: dict[str, Value], plain: bool = ...) -> Value: ...
    def location(self) -> str: ...
    def names(self, namespace: dict[str, object]) -> Value: ...
    def read_global(self, namespace: dict[str, object], name: str, module: object = ...) -> Value: ...


@final
class Lazy:
    """A value not looked at yet: nothing is guarded until it is."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source | None) -> None:
        self.obj = obj
        self.source = source


class Value:
    """A tracked value. ``source`` tells where an object that existed before the call is found; None for what the call made.

    The slots of Python's data model are methods here: ``m_<name>`` is the builtin method ``<name>`` of the value's type."""

    source: Any = None  # a Source or None: checked by whoever reads it
    symbolic: bool | str = False
    """Whether it is a number whose value is not assumed unless somebody asks for it as a constant."""

    told_later: bool = False
    """Whether it is a number or text that may be told in a text and that nobody knows, or assumes, at capture."""

    def as_told(self) -> object:
        """What it could be, for a look at what telling it would do. Raises NotConstant for what is no number or text."""
        raise NotConstant(type(self).__name__)

    def python_type(self) -> type:
        """The exact ``type()`` of the value."""
        raise NotImplementedError(type(self).__name__)

    def constant(self) -> Any:
        """The Python object that this value certainly is or equals (immutable or compared by identity). Raises NotConstant."""
        raise NotConstant(type(self).__name__)

    def real(self) -> Any:
        """The object of before the call that this value stands for, or MISSING."""
        return MISSING

    def describe(self) -> str:
        return f"{self.python_type().__qualname__} object"

    def find_method(self, name: str) -> Callable[..., Value] | None:
        """The implementation of the builtin method ``name`` or None."""
        return getattr(self, "m_" + name, None)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call the builtin method ``name``."""
        found = self.find_method(name)
        if found is None:
            vm.unsupported("FE020", f"method {name} of {self.describe()}", "it has no symbolic counterpart")
        return apply(vm, found, name, args, kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        """Call the dunder ``name`` looked up on the type; None when the type has none."""
        found = self.find_method(name)
        if found is not None:
            return found(vm, *args)
        owner = next((c for c in self.python_type().__mro__ if c.__dict__.get(name) is not None), object)
        if owner is not object and not (name == "__ne__" and self.find_method("__eq__") is not None):
            vm.unsupported("FE020", f"{name} of {self.describe()}", "it has no symbolic counterpart")
        return None

    def as_operand(self, vm: Machine) -> Value:
        """What torch's functions take for it."""
        return self

    def as_subscript(self, vm: Machine) -> Value:
        """What it is for a tensor as a subscript."""
        return self.as_operand(vm)

    def as_bound(self, vm: Machine) -> Value:
        """What it is for a tensor as a part of a slice."""
        return self.as_operand(vm)

    def dunder(self, vm: Machine, name: str, args: list[Value]) -> Value:
        """As ``special``, of a method that the type has."""
        found = self.special(vm, name, args)
        assert found is not None, name
        return found

    def getattr(self, vm: Machine, name: str) -> Value:
        cls = self.python_type()
        if name == "__class__":
            return vm.wrap(cls)
        if self.find_method(name) is not None:
            return BuiltinMethod(self, name)
        raw = find_in_mro(cls.__mro__, name)[1]
        if isinstance(raw, types.ClassMethodDescriptorType):
            return vm.getattr(vm.wrap(cls), name)
        if raw is not MISSING:
            if isinstance(raw, (str, int, type(None))):
                return vm.fresh(raw)
            if isinstance(raw, (types.GetSetDescriptorType, types.MemberDescriptorType, property)):
                vm.unsupported("FE020", f"attribute {name} of {self.describe()}", "it has no symbolic counterpart")
            return BuiltinMethod(self, name)
        vm.no_attribute(self, name, f"{name_in_c(cls)!r} object has no attribute {name!r}")

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        cls = self.python_type()
        hook = next(c.__dict__["__setattr__"] for c in cls.__mro__ if "__setattr__" in c.__dict__)
        if not cls.__dictoffset__ and hook is object.__dict__["__setattr__"] and not hasattr(cls, name):
            nowhere_to_store(vm, self, name)
        vm.unsupported("FE021", f"assignment to attribute {name} of {self.describe()}")

    def delattr(self, vm: Machine, name: str) -> None:
        vm.unsupported("FE021", f"deletion of attribute {name} of {self.describe()}")

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cls = self.python_type()
        if not any("__call__" in c.__dict__ for c in cls.__mro__):  # not asked of the class itself: its metaclass has one
            vm.throw(TypeError, f"{cls.__name__!r} object is not callable")
        vm.unsupported("FE022", f"call of {self.describe()}", "the callee has no symbolic counterpart")

    def callee(self) -> object:
        """The Python function whose result a call gives as it is, with nothing run before or after it; None where there is none."""
        return None

    def raised_while(self, vm: Machine, handled: Value | None) -> Value:
        """The exception that this is, raised while ``handled`` is handled."""
        return self

    def passes(self, vm: Machine, frame: Frame, position: object) -> None:
        """The exception that this is comes up in a frame, or comes through it."""

    def iterate(self, vm: Machine) -> Value:
        cls = self.python_type()
        if hasattr(cls, "__iter__"):
            vm.unsupported("FE023", f"iteration over {self.describe()}")
        vm.throw(TypeError, f"{cls.__name__!r} object is not iterable")

    def truth(self, vm: Machine) -> bool:
        found = self.find_method("__len__")
        if found is not None:
            return bool(found(vm).constant())
        return True

    def key(self, vm: Machine) -> Hashable:
        """A hashable that is equal for values that are equal keys."""
        try:
            value = self.constant()
            hash(value)
            return value
        except NotConstant:
            vm.unsupported("FE024", f"hash of {self.describe()}")
        except TypeError as exc:
            vm.throw_real(exc)


class ExistingObject(Value):
    """An object that existed before the call, of which nothing is tracked."""

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def real(self) -> object:
        return self.obj


class KnownObject(ExistingObject):
    """One that is assumed to be the same in each call."""

    def constant(self) -> Any:
        return self.obj


def apply(vm: Machine, function: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """What the library's ``function`` gives for a call of ``name``. Where the arguments do not fit it, the native call tells what is
    wrong."""
    try:
        return function(vm, *args, **kwargs)
    except TypeError as exc:
        if exc.__traceback__ is not None and exc.__traceback__.tb_next is not None:
            raise
        vm.unsupported("FE022", f"call of {name}", "it does not take these arguments")


def content(value: Value) -> Value:
    """A value, or of an object of a class derived from a builtin one the part that the builtin class knows."""
    storage = getattr(value, "storage", None)
    return value if storage is None else storage


#: The methods of comparisons, and how programs write them.
COMPARISONS = {"__lt__": "<", "__le__": "<=", "__eq__": "==", "__ne__": "!=", "__gt__": ">", "__ge__": ">="}
OPERATORS = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor".split()
)
SEQUENCES = (list, tuple, str, bytes, bytearray, range, collections.deque)


#: The numbers that the methods of a number know; of another one, what it is called by goes on to the other number's.
NUMBERS_KNOWN: dict[type, tuple[type, ...]] = {
    bool: (bool, int),
    int: (bool, int),
    float: (bool, int, float),
    complex: (bool, int, float, complex),
}


def numbers_known(kind: type) -> tuple[type, ...]:
    """The numbers that the methods know which a class has from Python's own numbers; none where it has none."""
    return next((NUMBERS_KNOWN[each] for each in kind.__mro__ if each in NUMBERS_KNOWN), ())


def number_in(value: Value) -> Value:
    """The number that an object of a class derived from numbers holds: their methods do not ask those of its class."""
    storage: Value | None = getattr(value, "storage", None)
    return value if storage is None else storage


def named_by_program(vm: Machine, owner: Value, name: str, result: Value, args: Sequence[Value] = ()) -> Value:
    """The result of a method that the program calls by its name, with ``args``. Where an operator would go on to the other operand
    (NotImplemented), the methods of sequences ask that for an index, or raise: this runs natively. A tracked number's method may have
    gone on already, or not have known how another one is tracked: which of them it knows is what Python says."""
    nothing = getattr(result, "value", None) is NotImplemented
    if (known := numbers_known(owner.python_type())) and len(args) == 1 and (name in OPERATORS or name in COMPARISONS):
        fits = issubclass(args[0].python_type(), known)
        return vm.fresh(NotImplemented) if not fits else reflected(vm, number_in(owner), name, number_in(args[0])) if nothing else result
    if nothing and name in COMPARISONS and args and issubclass(args[0].python_type(), owner.python_type()):
        vm.unsupported("FE025", f"method {name} of {owner.describe()} with {args[0].describe()}", "it is not known while capturing")
    if nothing and name not in COMPARISONS and (name not in OPERATORS or issubclass(owner.python_type(), SEQUENCES)):
        vm.unsupported("FE020", f"method {name} of {owner.describe()}", "it has no symbolic counterpart for this argument")
    return result


SWAPPED = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__", "__eq__": "__eq__", "__ne__": "__ne__"}


def turned(name: str) -> str:
    """The method of an operator that the other operand is asked for: ``__radd__`` for ``__add__``, and the other way round."""
    plain = f"__{name[3:]}"
    return plain if name[2] == "r" and plain in OPERATORS else f"__r{name[2:]}"


def reflected(vm: Machine, owner: Value, name: str, other: Value) -> Value:
    """What the method ``name`` of a tracked number gives, said by the other number's own way of being tracked."""
    result = other.special(vm, SWAPPED.get(name) or turned(name), [owner])
    if result is None or getattr(result, "value", None) is NotImplemented:
        vm.unsupported("FE020", f"method {name} of {owner.describe()}", f"it is not known for {other.describe()}")
    return result


class BuiltinMethod(Value):
    """A builtin method bound to a tracked value."""

    def __init__(self, owner: Value, name: str) -> None:
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type([].append)

    def describe(self) -> str:
        return f"method {self.name} of {self.owner.describe()}"

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return named_by_program(vm, self.owner, self.name, self.owner.method(vm, self.name, args, kwargs), args)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if name not in ("__eq__", "__ne__"):
            return super().special(vm, name, args)
        other = args[0]
        same = type(other) is type(self) and other.name == self.name and vm.is_same(other.owner, self.owner)
        return vm.fresh(same == (name == "__eq__"))

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return vm.fresh(self.name)
        if name == "__qualname__":
            return vm.fresh(f"{self.owner.python_type().__qualname__}.{self.name}")
        return super().getattr(vm, name)


def class_has(vm: Machine, value: Value, name: str) -> bool:
    """Whether the class of a value has an attribute, which is assumed to stay so."""
    return vm.hook(value.python_type(), name) is not MISSING


SEARCHED = "iterable" if sys.version_info < (3, 14) else "a container or iterable"
"""What Python says is lacking where ``in`` has nothing to look through."""


def is_iterable(vm: Machine, value: Value) -> bool:
    """Whether ``iter`` of a value asks its class at all."""
    return any(vm.hook(value.python_type(), name) is not MISSING for name in ("__iter__", "__getitem__"))


def is_callable(vm: Machine, value: Value) -> bool:
    """What ``callable`` says: whether the class has a ``__call__``."""
    return class_has(vm, value, "__call__")


class ProgramKey:
    """Key of an object whose class defines ``__hash__`` or ``__eq__`` in Python: compares as the program does, with each other key once."""

    __slots__ = ("answers", "hash", "value", "vm")

    def __init__(self, vm: Machine, value: Value, hash_: int) -> None:
        self.vm = vm
        self.value = value
        self.hash = hash_
        self.answers: dict[int, tuple[object, bool]] = {}
        """By the identity of a key that this one was compared with. One operation on a dictionary may look a key up more than once."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ProgramKey) and other.value is self.value:
            return True
        found = self.answers.get(id(other))
        if found is None:
            equal = asked_of_key(self.vm, lambda: self.vm.truth(self.vm.compare("==", self.value, key_value(self.vm, other))))
            found = self.answers[id(other)] = (other, equal)
        return found[1]

    def __hash__(self) -> int:
        return self.hash


def asked_of_key(vm: Machine, ask: Callable[[], _Told]) -> _Told:
    """What the program's code says of a key. Containers ask it in an order, and as often as they need to: where somebody can see that,
    those of Python are asked; one graph that has to be whole asks as it is said here."""
    before = vm.effects.state()
    told = ask()
    if vm.may_break and vm.effects.state() != before:
        vm.unsupported("FE024", "a key that changes something when it is hashed or compared", "how often it is asked is seen", whole=True)
    return told


def hash_told(vm: Machine, told: Value) -> int:
    """What ``hash`` makes of the result of ``__hash__``: numbers as large as hashes are taken as they are."""
    if not issubclass(told.python_type(), int):
        vm.throw(TypeError, "__hash__ method should return an integer")
    number: int = told.constant()
    return (-2 if number == -1 else int(number)) if -sys.maxsize - 1 <= number <= sys.maxsize else hash(number)


def program_hash(key: object) -> int | None:
    """The hash of a key that the program's own code told at capture, or None where the code tells nothing of it."""
    parts = key if type(key) is tuple else (key,)
    asked = [part for part in parts if isinstance(part, ProgramKey)]
    return hash(key) if asked and all(isinstance(part, (ProgramKey, int, float, str, bytes)) for part in parts) else None


def key_value(vm: Machine, key: object) -> Value:
    """The tracked value that a key was made of, or an equal one."""
    if isinstance(key, (ProgramKey, IdentityKey)):
        return key.value
    return key if isinstance(key, Value) else vm.wrap(key)


class IdentityKey:
    """Key of an object that hashes by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
