"""Calls of classes: builtin constructors, then ``__new__`` and ``__init__`` as the data model has it."""

from __future__ import annotations

import collections
import enum
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.modules import module as torch_module

from opmill_fake_tensors.wrappers import takes_operators
from opmill_guards.source import Pinned

from ...breaks.returning import Made
from ...interpretation.owners import exempt, looked_up_in_c
from ...values.arrays import ArrayValue, known_number
from ...values.base import MISSING, NotConstant, Value, apply, is_callable, written_in_python
from ...values.classes import ClassValue, ModuleObject, SuperValue
from ...values.constant import ConstantValue, is_none
from ...values.deques import DequeValue, longest
from ...values.exceptions import initialized_late
from ...values.functions import CellValue, MethodValue, PartialValue
from ...values.immutable import PLACEMENTS
from ...values.made_texts import formatted, made_text
from ...values.mapping import DictValue, SetValue
from ...values.objects import ObjectValue, builtin_base, find_in_mro
from ...values.sequence import ListValue, SequenceValue, SliceValue, TupleValue, demanded_index, read_as_tuple
from ...values.sets import operand
from ...values.tensor import TensorValue
from ..dispatch import fold, formatted_content, is_torch, lookup
from ..numpy.calls import computes_arrays
from ..numpy.converter import converter, walk
from ..registry import handles
from ..standard.numpy_chance import made_generator
from .class_bodies import made_by_function
from .groups import checked_group

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


BUILTIN_NEW = tuple(
    c.__new__
    for c in (object, dict, collections.OrderedDict, list, set, collections.deque, collections.defaultdict, BaseException, Exception)
)
ABSTRACT = 1 << 20
CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential)
STORAGE: dict[type, Callable[[], Value]] = {
    dict: lambda: DictValue({}),
    collections.OrderedDict: lambda: DictValue({}, collections.OrderedDict),
    collections.defaultdict: lambda: DictValue({}, collections.defaultdict),
    list: lambda: ListValue([]),
    set: lambda: SetValue({}),
    collections.deque: lambda: DequeValue([]),
}


def construct(vm: Interpreter, cls: type, args: list[Value], kwargs: dict[str, Value], plain: bool = False) -> Value:
    """``cls(*args, **kwargs)``; ``plain``: as ``type.__call__`` does it, whatever the metaclass says."""
    handler = lookup(cls)
    if handler is not None:
        return apply(vm, handler, cls.__qualname__, args, kwargs)
    direct = vm.frame is not None and vm.frame.makes(cls)
    meta: Any = type(cls)
    meta_call = vm.hook(meta, "__call__")
    if isinstance(cls, enum.EnumMeta):
        return call_enumeration(vm, cls, args, kwargs)
    if type(meta_call) is types.FunctionType and not plain:
        return vm.call(MethodValue(vm.wrap(meta_call, Pinned(meta_call, "__call__")), vm.wrap(cls)), args, kwargs)
    if isinstance(meta_call, type) and not plain:  # which binds nothing
        return vm.call(vm.wrap(meta_call), args, kwargs)
    if any(cls is each for each in CONTAINERS) and not kwargs and (inside := modules_among(vm, cls, args)):
        return container(vm, cls, inside)
    if takes_operators(cls):
        return vm.recorder.call_function(vm, cls, args, kwargs)
    if issubclass(cls, PLACEMENTS):
        return fold(vm, cls, args, kwargs)
    if issubclass(cls, torch.Tensor) and type(find_in_mro(cls.__mro__, "__new__")[1]) is not staticmethod:
        vm.unsupported("FE012", f"making a {cls.__qualname__} in captured code", "", "make it outside of the compiled function")
    known = walk(vm, cls, args, kwargs) or made_generator(vm, cls, args, kwargs)
    if known is not None:
        return known
    owner, new = find_in_mro(cls.__mro__, "__new__")
    vm.guard_lookup(cls, owner, "__new__")
    vm.guard_class(owner, "__new__", new)
    if issubclass(cls, BaseException) and not isinstance(new, staticmethod):
        return make_exception(vm, cls, args, kwargs)
    new = new.__func__ if isinstance(new, staticmethod) else new
    if type(new) is types.FunctionType:
        made = vm.call(vm.wrap(new, Pinned(new, "__new__")), [vm.wrap(cls), *args], kwargs)
    elif new is type.__new__:
        made = vm.call_builtin(new, [vm.wrap(cls), *args], kwargs)
    elif new is tuple.__new__ or cls.__module__ == "torch.return_types":
        made = make_tuple(vm, cls, args)
    elif written_in_python(cls) and new in BUILTIN_NEW:
        made = new_object(vm, cls)
    elif is_torch(cls) and (issubclass(cls, property) or not written_in_python(cls)):
        return fold(vm, cls, args, kwargs)
    elif cls.__module__ in ("builtins", "fractions", "decimal", "inspect") or cls is torch.device:
        return fold(vm, cls, args, kwargs)
    elif computes_arrays(cls):
        return converter(vm, cls, args) or fold(vm, cls, args, kwargs)
    else:
        vm.unsupported("FE012", f"making a {cls.__module__}.{cls.__qualname__}", "its constructor is implemented in C")
    if cls not in made.python_type().__mro__:
        return made
    owner, init = find_in_mro(made.python_type().__mro__, "__init__")
    vm.guard_lookup(made.python_type(), owner, "__init__")
    vm.guard_class(owner, "__init__", init)
    if type(init) is types.FunctionType:
        if direct:
            vm.frame.expects(init, Made(made))
        given = vm.call(MethodValue(vm.wrap(init, Pinned(init, f"{cls.__qualname__}.__init__")), made), args, kwargs)
        if given.python_type() is not type(None):
            vm.throw(TypeError, f"__init__() should return None, not {given.python_type().__name__!r}")
    elif init is not object.__init__:
        vm.call_builtin(init, [made, *args], kwargs)
    elif kwargs and new is tuple.__new__ and cls.__module__ != "torch.return_types":
        vm.throw(TypeError, "tuple() takes no keyword arguments")
    elif (args or kwargs) and new is object.__new__:
        vm.throw(TypeError, f"{cls.__name__}() takes no arguments")
    return made


def call_enumeration(vm: Interpreter, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The member with a value; of an enumeration without members, called with names, another enumeration."""
    if not cls.__members__ and len(args) + len(kwargs) > 1:
        return made_by_function(vm, cls, args, kwargs)
    member = missing_member(vm, cls, args)
    return vm.wrap(vm.plain(fold(vm, cls, args, kwargs))) if member is None else member


def missing_member(vm: Interpreter, cls: Any, args: list[Value]) -> Value | None:
    """What the program's own ``_missing_`` says where no member has a value; None where it is not asked."""
    asked = vars(next(c for c in cls.__mro__ if "_missing_" in vars(c)))["_missing_"]
    if len(args) != 1 or not cls.__members__ or exempt(asked.__func__.__module__):
        return None
    value = args[0].constant()
    if any(value == member.value for member in cls.__members__.values()) or isinstance(value, cls):
        return None
    return vm.call(vm.wrap(enum.Enum.__new__), [vm.wrap(cls), *args], {})


def modules_among(vm: Interpreter, cls: type, args: list[Value]) -> list[Value]:
    """The modules that a container is made of (a slice of another one, mostly); none where its ``__init__`` must be asked."""
    if cls is torch.nn.ModuleList:
        args = args[0].values(vm) if len(args) == 1 and isinstance(args[0], SequenceValue) else []
    if not all(issubclass(each.python_type(), torch.nn.Module) for each in args):
        return []
    hooks = torch_module._global_module_registration_hooks
    return [] if vm.wrap(hooks, Pinned(hooks, "_global_module_registration_hooks")).truth(vm) else args


def container(vm: Interpreter, cls: type, inside: list[Value]) -> Value:
    """A ``ModuleList`` or ``Sequential`` as adding one module after the other would make it, in a step for each."""
    made = construct(vm, cls, [], {})
    table = made.getattr(vm, "_modules")
    for place, module in enumerate(inside):
        table.dunder(vm, "__setitem__", [ConstantValue(str(place)), module])
    return made


def new_object(vm: Interpreter, cls: type) -> ObjectValue:
    """``cls.__new__`` of a class written in Python, on one of the builtin bases that are tracked."""
    if cls.__flags__ & ABSTRACT:
        try:
            object.__new__(cls)
        except TypeError as exc:
            vm.throw_real(exc)
    if find_in_mro(cls.__mro__, "__del__")[1] is not MISSING:
        vm.unsupported(
            "FE012",
            f"making a {cls.__qualname__}",
            "its __del__ runs when the last reference goes, which a capture does not see",
            "the function runs as it is, and what it calls is captured",
            whole=True,
        )
    if looked_up_in_c(cls):
        vm.unsupported("FE012", f"making a {cls.__qualname__}", "attributes of its objects are looked up in C")
    for base in cls.__mro__:
        if base in STORAGE:
            return ObjectValue(cls, storage=STORAGE[base]())
        if not written_in_python(base) and base is not object:
            vm.unsupported("FE012", f"making a {cls.__qualname__}", f"its base {base.__qualname__} is implemented in C")
    return ObjectValue(cls)


def make_exception(vm: Interpreter, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A new exception of a builtin class, with what its class keeps beside the arguments."""
    if cls is OSError and len(args) > 1 and isinstance(args[0], ConstantValue):
        cls = type(OSError(args[0].value, ""))  # the number tells which
    if issubclass(cls, BaseExceptionGroup):
        cls, args = checked_group(vm, cls, args)
    made = vm.new_exception(cls, [] if issubclass(cls, OSError) and initialized_late(cls) else list(args))
    if issubclass(cls, BaseExceptionGroup):
        made.hold(args[0], vm.unpack(args[1]))
    if args and not initialized_late(cls):
        made.keep(cls, list(args))
    init = vm.hook(cls, "__init__")
    if kwargs and type(init) is not types.FunctionType:
        if not issubclass(cls, (AttributeError, NameError, ImportError)) or set(kwargs) - {"name", "obj", "path"}:
            vm.throw(TypeError, f"{cls.__name__}() takes no keyword arguments")
        made.fields.update(kwargs)
    if type(init) is types.FunctionType:
        vm.call(MethodValue(vm.wrap(init, Pinned(init, "__init__")), made), args, kwargs)
    return made


def make_tuple(vm: Interpreter, cls: type, args: list[Value]) -> Value:
    """``tuple.__new__`` of a class derived from it."""
    if not read_as_tuple(cls):
        vm.unsupported("FE012", f"making a {cls.__qualname__}", "its class has a way of its own to read items")
    if len(args) > 1:
        vm.throw(TypeError, f"tuple expected at most 1 argument, got {len(args)}")
    return TupleValue(vm.unpack(args[0], sized=True) if args else [], cls)


@handles(*BUILTIN_NEW)
def builtin_new(vm: Interpreter, cls: ClassValue, *args: Value, **kwargs: Value) -> Value:
    """``object.__new__`` and its like: an object of the class with the storage of its builtin base."""
    plain = cls.obj
    if issubclass(plain, BaseExceptionGroup):
        kind, given = checked_group(vm, plain, list(args))
        made = vm.new_exception(kind, given)
        made.hold(given[0], vm.unpack(given[1]))
        return made
    if issubclass(plain, BaseException):
        return vm.new_exception(plain, list(args))
    if (args or kwargs) and builtin_base(plain) is object:
        if find_in_mro(plain.__mro__, "__new__")[0] is not object:
            vm.throw(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
        if find_in_mro(plain.__mro__, "__init__")[0] is object:
            vm.throw(TypeError, f"{plain.__name__}() takes no arguments")
    return new_object(vm, plain) if written_in_python(plain) else construct(vm, plain, list(args), kwargs)


@handles(tuple.__new__)
def tuple_new(vm: Interpreter, cls: ClassValue, *items: Value) -> Value:
    """``tuple.__new__``: a tuple of that class."""
    return make_tuple(vm, cls.obj, list(items))


def made_super(vm: Interpreter, after: type, owner: Value) -> Value:
    """``super(after, owner)``; raises TypeError as Python does where the object is of another class."""
    given = owner.obj if isinstance(owner, ClassValue) else owner.python_type()
    if not issubclass(given, after) and not issubclass(owner.python_type(), after):
        vm.throw(TypeError, "super(type, obj): obj must be an instance or subtype of type")
    return SuperValue(after, owner)


@handles(super)
def super_(vm: Interpreter, *args: Value) -> Value:
    """``super`` of a class and an object, or of those of the method that calls it."""
    if args:
        if len(args) != 2 or not isinstance(args[0], ClassValue):
            vm.unsupported("FE010", "super() with other than a class and an object")
        after, owner = args[0].obj, args[1]
        return made_super(vm, after, owner)
    frame = vm.frame
    if not frame.code.co_argcount:
        vm.throw(RuntimeError, "super(): no arguments")
    if "__class__" not in frame.cells:
        vm.throw(RuntimeError, "super(): __class__ cell not found")
    name = frame.code.co_varnames[0]
    owner = frame.locals.get(name, MISSING)
    if name in frame.cells:
        owner = frame.cells[name].get(vm)
    if owner is MISSING:
        vm.throw(RuntimeError, "super(): arg[0] deleted")
    if not isinstance(owner, Value):
        owner = vm.wrap(owner.obj, owner.source)
    cls = frame.cells["__class__"].get(vm)
    if cls is MISSING:
        vm.throw(RuntimeError, "super(): empty __class__ cell")
    if not isinstance(cls, ClassValue):
        vm.throw(RuntimeError, f"super(): __class__ is not a type ({cls.python_type().__name__})")
    return made_super(vm, cls.obj, owner)


@handles(list)
def list_(vm: Interpreter, items: Value | None = None) -> Value:
    """``list()`` of what an iterable gives."""
    return ListValue([] if items is None else list(vm.unpack(items, sized=True)))


@handles(tuple)
def tuple_(vm: Interpreter, items: Value | None = None) -> Value:
    """``tuple()`` of what an iterable gives; a plain tuple is itself."""
    if isinstance(items, TupleValue) and items.cls is tuple:
        return items
    return TupleValue([] if items is None else list(vm.unpack(items, sized=True)))


@handles(torch.Generator)
def generator(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.Generator()`` is refused (FE012)."""
    return vm.unsupported(
        "FE012", "making a torch.Generator in captured code", "each call has a new one", "make it outside of the compiled function"
    )


@handles(torch.Size)
def size(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.Size()`` of what an iterable gives; of items that are no numbers it is asked itself."""
    if kwargs or len(args) > 1:
        return fold(vm, torch.Size, list(args), kwargs)  # which raises
    items = list(vm.unpack(args[0], sized=True)) if args else []
    fitting = all(v.python_type() is int and not (isinstance(v, ConstantValue) and abs(v.value) >> 63) for v in items)
    return TupleValue(items, torch.Size) if fitting else fold(vm, torch.Size, [TupleValue(items)], {})


@handles(set)
def set_(vm: Interpreter, items: Value | None = None) -> Value:
    """``set()`` of what an iterable gives."""
    return made_of(vm, items, set)


@handles(frozenset)
def frozenset_(vm: Interpreter, items: Value | None = None) -> Value:
    """``frozenset()`` of what an iterable gives; a plain one is itself."""
    if isinstance(items, SetValue) and items.cls is frozenset:
        return items
    return made_of(vm, items, frozenset)


def made_of(vm: Interpreter, items: Value | None, cls: type) -> Value:
    """A new set of items, which is made in another way of other sets and of dictionaries."""
    if items is None:
        return SetValue({}, cls)
    keys, shape = operand(vm, items)
    return SetValue.made_of(keys, cls, shape)


@handles(dict)
def dict_(vm: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """``dict()`` of a mapping or of pairs, and of keywords."""
    if len(args) > 1:
        vm.throw(TypeError, f"dict expected at most 1 argument, got {len(args)}")
    out = DictValue({})
    out.m_update(vm, *args, **kwargs)
    return out


@handles(collections.OrderedDict)
def ordered_dict(vm: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """``collections.OrderedDict()``."""
    if len(args) > 1:
        vm.throw(TypeError, f"expected at most 1 arguments, got {len(args)}")
    out = DictValue({}, collections.OrderedDict)
    out.m_update(vm, *args, **kwargs)
    return out


@handles(collections.defaultdict)
def default_dict(vm: Interpreter, factory: Value = ConstantValue(None), /, *args: Value, **kwargs: Value) -> Value:
    """``collections.defaultdict()``; the factory is called when a key is missed."""
    if not is_none(factory) and not is_callable(vm, factory):
        vm.throw(TypeError, "first argument must be callable or None")
    if len(args) > 1:
        vm.throw(TypeError, f"dict expected at most 1 argument, got {len(args)}")
    out = DictValue({}, collections.defaultdict)
    out.default = factory
    out.m_update(vm, *args, **kwargs)
    return out


@handles(collections.deque)
def deque(vm: Interpreter, items: Value | None = None, maxlen: Value = ConstantValue(None)) -> Value:
    """``collections.deque()`` with its greatest length."""
    out = DequeValue([], maxlen=longest(vm, maxlen))
    if items is not None:
        out.m_extend(vm, items)
    return out


@handles(types.MappingProxyType)
def mapping_proxy(vm: Interpreter, mapping: Value) -> Value:
    """``types.MappingProxyType()`` of a plain dictionary; others are refused (FE020)."""
    if type(mapping) is not DictValue:
        vm.unsupported("FE020", "a mapping proxy", f"it shows a {mapping.python_type().__qualname__}")
    return mapping.proxy(vm)


@handles(slice)
def slice_(vm: Interpreter, *args: Value) -> Value:
    """``slice()`` of one to three parts."""
    none = ConstantValue(None)
    if not 1 <= len(args) <= 3:
        vm.throw(TypeError, f"slice expected at {'least 1 argument' if not args else 'most 3 arguments'}, got {len(args)}")
    parts = [none, args[0], none] if len(args) == 1 else [*args, none][:3]
    return SliceValue(*parts)


@handles(range)
def range_(vm: Interpreter, *args: Value) -> Value:
    """``range()``; sizes that change become guards here."""
    plain = []
    if len(args) > 3:
        vm.throw(TypeError, f"range expected at most 3 arguments, got {len(args)}")
    for a in args:
        try:
            plain.append(a.constant())
        except NotConstant:
            plain.append(demanded_index(vm, a).constant())
    try:
        return ConstantValue(range(*plain))
    except Exception as exc:
        return vm.throw_real(exc)


def _number(cls: type, *dunders: str) -> Callable[..., Value]:
    def convert(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if len(args) == 1 and not kwargs and args[0].symbolic and cls is not complex:
            return args[0].dunder(vm, dunders[0], [])
        if len(args) == 1 and not kwargs:
            try:
                plain = args[0].constant()
            except NotConstant:
                for name in dunders:
                    result = args[0].special(vm, name, [])
                    if result is not None and not isinstance(result, ConstantValue) and not issubclass(result.python_type(), cls):
                        vm.unsupported("FE011", f"{cls.__name__}() of a number unknown at capture")
                    wanted: Any = {"__float__": float, "__complex__": complex}.get(name, int)
                    if result is not None and (
                        name == "__trunc__" or (result.python_type() is not wanted and issubclass(result.python_type(), wanted))
                    ):
                        vm.unsupported(
                            "FE011",
                            f"{cls.__name__}() of a number whose {name} gives a {result.python_type().__name__}",
                            "Python warns of it",
                        )
                    if isinstance(result, ConstantValue) and not isinstance(result.value, wanted):
                        said = f"{args[0].python_type().__name__}.{name}" if name == "__float__" else name
                        vm.throw(TypeError, f"{said} returned non-{wanted.__name__} (type {type(result.value).__name__})")
                    if result is not None:
                        return ConstantValue(cls(result.value)) if isinstance(result, ConstantValue) else result
                given = args[0].python_type()
                if any(hasattr(given, name) for name in dunders) or issubclass(given, (str, bytes)):
                    vm.unsupported("FE011", f"{cls.__name__}() of {args[0].describe()}")
                vm.throw(TypeError, f"{cls.__name__}() {WANTED[cls]}, not {given.__name__!r}")
            try:
                made = cls(plain)
                return args[0] if made is plain and type(args[0]) is ConstantValue else ConstantValue(made)
            except Exception as exc:
                vm.throw_real(exc)
        return fold(vm, cls, list(args), kwargs)

    return convert


WANTED = {
    int: "argument must be a string, a bytes-like object or a real number",
    float: "argument must be a string or a real number",
    complex: "first argument must be a string or a number",
}
handles(int)(_number(int, "__int__", "__index__", "__trunc__"))
handles(float)(_number(float, "__float__", "__index__"))
handles(complex)(_number(complex, "__complex__", "__float__", "__index__"))


@handles(bool)
def bool_(vm: Interpreter, value: Value = ConstantValue(False)) -> Value:
    """``bool()``; of a tensor with one element whose value nobody knows yet it is read from the graph's tensor."""
    held = value.inner if isinstance(value, ArrayValue) else value
    if type(held) is TensorValue and not held.is_known() and all(type(n) is int and n == 1 for n in held.fake.shape):
        truth = held if held.fake.dtype is torch.bool else held.method(vm, "ne", [ConstantValue(0)], {})
        if (late := cast(TensorValue, truth).late(vm, "item")) is not None:
            return late
    return ConstantValue(vm.truth(value))


def checked_text(vm: Interpreter, name: str, result: Value) -> Value:
    """What ``str`` and ``repr`` do with the result of the method that they asked."""
    if not issubclass(result.python_type(), str):
        vm.throw(TypeError, f"{name} returned non-string (type {result.python_type().__name__})")
    return result


def text(vm: Interpreter, value: Value, name: str) -> Value:
    """``str`` or ``repr`` of a value (``name``: the method), by the program's own methods where there are any."""
    if isinstance(value, TensorValue):
        vm.unsupported("FE025", "text of a tensor", "it depends on data")
    if value.told_later and name == "__str__" and value.python_type() is str:
        return value
    if value.told_later and (made := made_text(str if name == "__str__" else repr, [value])) is not None:
        return made
    known = known_number(vm, value) if isinstance(value, ArrayValue) and value.is_number else None
    if name == "__str__" and known is not None and type(known) is not float:
        return ConstantValue(str(known))
    if isinstance(value, TupleValue):
        asked = "__repr__" if value.written_now(vm, name) is None else name
        if value.written_now(vm, asked) is not None:
            return checked_text(vm, name, value.dunder(vm, asked, []))
    if isinstance(value, ObjectValue) or (isinstance(value, ClassValue) and (value.of_metaclass(name) or value.of_metaclass("__repr__"))):
        result = value.special(vm, "__repr__" if vm.hook(value.python_type(), name) is object.__str__ else name, [])
        if result is not None:
            return checked_text(vm, name, result)
    if isinstance(value, ModuleObject) and any(namespace is value.obj.__dict__ for namespace, _, _ in vm.effects.globals.values()):
        vm.unsupported("FE025", f"text of {value.describe()}", "captured code has assigned to some of its names")
    try:
        plain = vm.plain(value)
    except NotConstant as exc:
        vm.unsupported("FE025", f"text of {exc}")
    return ConstantValue(str(plain) if name == "__str__" else repr(plain))


@handles(str)
def str_(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``str()``: by ``__str__`` of the class."""
    return text(vm, args[0], "__str__") if len(args) == 1 and not kwargs else fold(vm, str, list(args), kwargs)


@handles(repr)
def repr_(vm: Interpreter, value: Value) -> Value:
    """``repr()``: by ``__repr__`` of the class."""
    return text(vm, value, "__repr__")


@handles(ascii)
def ascii_(vm: Interpreter, value: Value) -> Value:
    """``ascii()``: ``repr()`` with escapes."""
    return ConstantValue(text(vm, value, "__repr__").constant().encode("ascii", "backslashreplace").decode())


def says_as_enum(cls: type) -> bool:
    """Whether the text of an enum's members is what Python makes of it, not the program."""
    return all(
        type(raw) is not types.FunctionType or exempt(owner.__module__)
        for owner, raw in (find_in_mro(cls.__mro__, n) for n in ("__str__", "__repr__", "__format__"))
    )


@handles(format)
def format_(vm: Interpreter, value: Value, spec: Value = ConstantValue("")) -> Value:
    """``format()``: by ``__format__`` of the class."""
    cls = value.python_type()
    owner, written = find_in_mro(cls.__mro__, "__format__")[0], vm.hook(cls, "__format__")
    if isinstance(value, (ObjectValue, TupleValue, ClassValue)) and not (issubclass(cls, enum.Enum) and says_as_enum(cls)):
        if type(written) is types.FunctionType and owner is not enum.Enum:
            result = vm.call(MethodValue(vm.wrap(written, Pinned(written, "__format__")), value), [spec], {})
            if not issubclass(result.python_type(), str):
                vm.throw(TypeError, f"__format__ must return a str, not {result.python_type().__name__}")
            return result
        if written is object.__format__ and isinstance(spec, ConstantValue) and spec.value:
            vm.throw(TypeError, f"unsupported format string passed to {cls.__name__}.__format__")
        known = formatted_content(vm, value, written, spec)
        if known is not None:
            return known
        value = text(vm, value, "__str__")
    if isinstance(value, TensorValue) and value.cls is torch.Tensor and not value.fake.dim():
        value = value.late(vm, "item") or value
    if isinstance(value, TensorValue):
        vm.unsupported("FE025", "text of a tensor", "it depends on data")
    if (made := formatted(value, spec)) is not None:
        return made
    if isinstance(value, ArrayValue) and value.is_number and (number := known_number(vm, value)) is not None and type(number) is not float:
        value = ConstantValue(number)
    return fold(vm, format, [value, spec], {})


@handles(functools.partial)
def partial(vm: Interpreter, fn: Value, /, *args: Value, **kwargs: Value) -> Value:
    """``functools.partial()``; one of a partial takes that one's arguments over, as Python does."""
    if not is_callable(vm, fn):
        vm.throw(TypeError, "the first argument must be callable")
    flat = isinstance(fn, PartialValue) and not fn.attrs and not (fn.obj is not None and fn.obj.__dict__)
    inner = fn if isinstance(fn, PartialValue) and flat else PartialValue(fn, [], DictValue({}), functools.partial)
    keywords = {**inner.bound_keywords(vm), **kwargs}
    return PartialValue(
        inner.function, [*inner.args, *args], DictValue({k: (ConstantValue(k), v) for k, v in keywords.items()}), functools.partial
    )


@handles(types.MethodType)
def method_type(vm: Interpreter, fn: Value, owner: Value) -> Value:
    """``types.MethodType()``: a function bound to an object."""
    return MethodValue(fn, owner)


@handles(types.CellType)
def cell_type(vm: Interpreter, *content: Value) -> Value:
    """``types.CellType()``: a cell, empty without a content."""
    return CellValue(content[0] if content else MISSING)


@handles(object)
def object_(vm: Interpreter) -> Value:
    """``object()``."""
    return ObjectValue(object)


__all__ = ["ClassValue", "construct"]
