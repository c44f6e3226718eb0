"""Which tracked value stands for which Python object: rows by exact type, then along the MRO."""

from __future__ import annotations

import _thread
import array
import collections
import dataclasses
import enum
import functools
import gc
import inspect
import itertools
import re
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any, Callable, Hashable, TypeVar, cast

import torch

from opmill_fake_tensors.lazily import once_for_each_class
from opmill_guards import CompiledFunction, instance_dict
from opmill_guards.constants import is_constant
from opmill_guards.guard import Equals, Is, Length, Predicate, SameObject, TypeIs
from opmill_guards.release import holds_mortal
from opmill_guards.source import Attr, DictKeyAt, DictValueAt, InstanceDict, Item, Pinned, Source, TypeOf
from opmill_guards.storage import is_of, length_of
from opmill_guards.weak import lasts

from ..assumptions.arrays_before import array_of_before, number_of_before
from ..assumptions.contents import Members, guard_items
from ..effects.lifetimes import keeps_mortal
from ..entry.varying import is_made_by_function
from ..values.assigned_attributes import show
from ..values.base import Lazy, Machine, Value, written_in_python
from ..values.classes import ClassValue, ModuleObject
from ..values.constant import LITERALS, ConstantValue
from ..values.deques import DequeValue
from ..values.enumerated import EnumValue, FrozenObject
from ..values.exceptions import ExceptionObject, TracebackValue
from ..values.floating import float_of
from ..values.functions import BuiltinValue, CellValue, ChangingValue, MethodValue, PartialValue, ViewOfBefore, function_value, stays
from ..values.growing_lists import GrowingDeque, GrowingList
from ..values.handle_ids import holds_hooks
from ..values.locks import LockValue
from ..values.loops import iterator_kind
from ..values.mapping import DictValue, SetValue
from ..values.modules import GLOBAL_HOOKS, HOOKS, STORES, ModuleValue
from ..values.objects import ObjectValue, bound_in_c, builtin_base, find_in_mro
from ..values.opaque import ChanceValue, Untouched
from ..values.per_call import GivenClass, GivenCompiled, GivenFunction, is_plain
from ..values.sequence import ListValue, SliceValue, TupleValue, read_as_tuple
from ..values.thread_locals import ThreadLocalValue
from ..values.varying import MadeAnew, VaryingNumber
from .identity import VIEWS, is_held, root_is_pinned
from .owners import exempt, has_methods, is_disabled, looked_up_in_c

if TYPE_CHECKING:
    from .machine import Interpreter


MOST_PLACES = 64
"""Keys that are looked for by their position: each check counts up to it."""
W = TypeVar("W", bound=Callable[..., Value])
TRACKERS: dict[type, Callable[..., Value]] = {}


def tracks(*types_: type) -> Callable[[W], W]:
    """A row: values of these types (and of subclasses without a row of their own) are tracked by the decorated function."""

    def add(wrapper: W) -> W:
        for t in types_:
            TRACKERS[t] = wrapper
        return wrapper

    return add


@once_for_each_class
def tracker(kind: type) -> Callable[..., Value]:
    """What makes the tracked value of an object of this class: that of the first class of its MRO with a row."""
    for cls in kind.__mro__:
        if cls in TRACKERS:
            return TRACKERS[cls]
    return TRACKERS[object]


def by_identity(vm: Interpreter, obj: object, source: Source | None) -> Source | None:
    """Guards that the source gives this very object; from then on it is found as a pinned object."""
    if source is None:
        return None
    if type(source) is not Pinned:
        vm.guard(Is(source, obj))
        return Pinned(obj, str(source), mortal=True)
    return source


def as_varying(vm: Interpreter, obj: object, source: Source | None) -> Value | None:
    """An object that was another one at each call: its class is guarded, and nobody looks into it. None for others."""
    if source is None or source not in vm.varying.opaque:
        return None
    vm.guard(TypeIs(source, type(obj)))
    plain = type(obj) in LITERALS or written_in_python(type(obj))
    return (VaryingNumber if plain else MadeAnew)(obj, source)


def part_of(source: Source | None, obj: object, label: str) -> Pinned:
    """An object that is known by its identity where what is found at ``source`` holds it: as long as the program has that, the guards
    need not keep it."""
    return Pinned(obj, label, mortal=source is not None and (type(source) is not Pinned or source.mortal))


def by_structure(vm: Interpreter, obj: object, source: Source | None) -> Source | None:
    """Objects that hang on the arguments, or that were seen to be replaced by others, are known by their type and what is read of them;
    others by identity."""
    if source is None or is_held(vm, source, obj):
        return by_identity(vm, obj, source)
    if vm.varying.remade and made_by_calls(type(obj), source) and is_plain(type(obj)):
        vm.wrap(type(obj), TypeOf(source))
    else:
        vm.guard(TypeIs(source, type(obj)))
    return source


def made_by_calls(obj: type | types.FunctionType, source: Source | None) -> bool:
    """Whether a function or class that hangs on the arguments was made by a function of the program: each call may give another one."""
    return source is not None and not root_is_pinned(source) and is_made_by_function(obj) and not exempt(obj.__module__)


def changing_number(vm: Interpreter, obj: object, source: Source) -> Value | None:
    """An int or float whose value is not assumed."""
    if type(obj) is int and vm.varying.is_int(source, obj):
        vm.guard(TypeIs(source, int))
        return vm.recorder.number_input(source, obj)
    if type(obj) is float and vm.varying.is_float(source):
        vm.guard(TypeIs(source, float))
        return float_of(vm, obj, source)
    return None


def is_number_of_numpy(obj: object) -> bool:
    """Whether an object is a number of NumPy's, of its own classes."""
    return type(obj).__module__ == "numpy" and hasattr(type(obj), "tobytes") and not hasattr(type(obj), "__setitem__")


#: Builtin classes of which programs derive their own, and what gives the builtin part of an object of such a class.
PLAIN: dict[type, Any] = {int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__, bytes: bytes.__bytes__}
DERIVABLE = tuple(PLAIN)


def builtin_part(obj: object) -> ConstantValue | None:
    """The number or text that an object of a class derived from one is."""
    base = next((base for base in PLAIN if isinstance(obj, base)), None)
    return None if base is None else ConstantValue(PLAIN[base](obj))


@tracks(*LITERALS, torch.dtype, torch.layout, torch.memory_format, torch.device, range, types.CodeType, complex, torch.finfo, torch.iinfo)
def constant(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A number, a text or another immutable object: guarded by value, or one that may change from call to call."""
    if isinstance(obj, enum.Enum):
        return by_name(vm, obj, source)
    if is_number_of_numpy(obj) and (number := number_of_before(vm, obj, source)) is not None:
        return number
    if type(obj) not in PLAIN and isinstance(obj, DERIVABLE) and (has_methods(type(obj)) or type(obj).__dictoffset__):
        return ObjectValue(type(obj), obj, by_identity(vm, obj, source) or Pinned(obj, "object"), builtin_part(obj))
    if type(obj) in (int, float, complex, str, bytes, range) and (varying := as_varying(vm, obj, source)) is not None:
        return varying
    if source is not None and type(obj) in (int, float) and (number := changing_number(vm, obj, source)) is not None:
        return number
    if source is not None and type(source) is not Pinned:
        if obj is None or obj is Ellipsis or isinstance(obj, (bool, types.CodeType)) or type(obj) is type(NotImplemented):
            vm.guard(Is(source, obj))
        elif isinstance(obj, (int, float, complex, str, bytes, torch.dtype, torch.device)) and type(obj) in LITERALS + (
            torch.dtype,
            torch.device,
        ):
            vm.guard(Equals(source, obj))
        elif isinstance(obj, range):
            vm.guard(TypeIs(source, range))
            for part in ("start", "stop", "step"):
                vm.guard(Equals(Attr(source, part), getattr(obj, part)))
        elif isinstance(obj, (torch.finfo, torch.iinfo)):
            vm.guard(TypeIs(source, type(obj)))
            vm.guard(Equals(Attr(source, "dtype"), obj.dtype))
        else:
            vm.guard(Is(source, obj))
    return ConstantValue(obj, source)


@tracks(torch.Generator)
def generator(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A random generator of torch, known by identity, unless it was another one at each call."""
    return as_varying(vm, obj, source) or ChanceValue(obj, by_identity(vm, obj, source))


@tracks(enum.Enum, torch._C._SDPBackend, re.Pattern, re.Match)
def by_name(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A member of an enumeration, or a pattern of ``re``: known by identity. A pattern may be another one at each call."""
    if isinstance(obj, enum.Enum):
        return EnumValue(type(obj), obj, by_identity(vm, obj, source) or Pinned(obj, f"{type(obj).__name__}.{obj.name}"), builtin_part(obj))
    return as_varying(vm, obj, source) or ConstantValue(obj, by_identity(vm, obj, source))


@tracks(dataclasses.Field, inspect.Signature, inspect.Parameter)
def description(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A description of a field, a parameter or a signature: known by identity, never written to."""
    return as_varying(vm, obj, source) or FrozenObject(type(obj), obj, by_identity(vm, obj, source) or Pinned(obj, type(obj).__qualname__))


@tracks(tuple)
def tuple_(vm: Interpreter, obj: tuple[object, ...], source: Source | None) -> Value:
    """A tuple: guarded by class and length, its items when they are read."""
    if not read_as_tuple(type(obj)):
        vm.unsupported("FE051", f"a tuple of class {type(obj).__qualname__}", "its class has a way of its own to read items")
    if source is None or type(source) is Pinned:
        return TupleValue([Lazy(v, Item(source, i) if source is not None else None) for i, v in enumerate(obj)], type(obj), source, obj)
    vm.guard(TypeIs(source, type(obj)))
    vm.guard(Length(source, tuple.__len__(obj)))
    return TupleValue([Lazy(v, Item(source, i)) for i, v in enumerate(obj)], type(obj), source, obj)


@tracks(list, collections.deque)
def list_(vm: Interpreter, obj: Any, source: Any) -> Value:
    """A list or a deque: guarded by class and length (a list in steps, as it is read), its items when they are read."""
    source = by_structure(vm, obj, source)
    if source is not None and type(obj) is list:
        return GrowingList(vm, source, obj)
    if source in vm.varying.lengths and type(obj) is collections.deque:
        return GrowingDeque(vm, source, obj)
    if source is not None:
        vm.guard(Length(source, length_of(obj) or 0))
    elif length_of(obj):
        vm.unsupported("FE025", f"a {type(obj).__qualname__} that was made at capture", "each call makes its own")
    base = builtin_base(type(obj))
    items = [Lazy(v, Item(source, i)) for i, v in enumerate(base.__iter__(obj))]
    storage = ListValue(items, base, source, obj) if base is list else DequeValue(items, source, obj, obj.maxlen)
    return storage if type(obj) is base else with_storage(vm, obj, source, storage)


def with_storage(vm: Interpreter, obj: object, source: Source | None, storage: Value) -> ObjectValue:
    """An object of a class written in Python on a builtin container."""
    if type(find_in_mro(type(obj).__mro__, "__getitem__")[1]) is types.FunctionType:
        vm.overridden[source] = builtin_base(type(obj))
    return with_own_table(vm, ObjectValue(type(obj), obj, source, storage))


def with_own_table(vm: Interpreter, made: ObjectValue) -> ObjectValue:
    """An object whose instance dictionary nobody else writes, as far as the capture has met others; that of a dictionary may be itself
    (``self.__dict__ = self``)."""
    obj, source = made.obj, cast(Source, made.source)
    if not made.has_dict():
        return made
    table = instance_dict(obj)
    if table is obj and isinstance(made.storage, DictValue):
        vm.guard(SameObject(source, InstanceDict(source)))
        made.share(made.storage)
    elif vm.known.get(id(table), (None,))[0] is table or vm.tables.setdefault(id(table), obj) is not obj:
        vm.unsupported("FE020", f"attributes of {made.describe()}", "their dictionary is another object's, or a container's, as well")
    return made


def keys_are_known(vm: Interpreter, source: Any) -> bool:
    """Dictionaries whose contents need no guard: fields of a dataclass are fixed when it is made, hooks belong to the module tree."""
    if type(source) is Pinned:
        return source.label.endswith("__dataclass_fields__") or source.label in GLOBAL_HOOKS
    if vm.is_module_table(source) and source.key in HOOKS:
        module = vm.modules[source.base.base]
        module.assumes_hooks = module.rehooked is None
        return module.assumes_hooks
    return False


def called(obj: object) -> str:
    """What a key or an item is called in explanations: an object of the program is not asked."""
    return repr(obj)[:40] if type(obj) in LITERALS else type(obj).__qualname__


def dict_items(obj: dict[Any, object], source: Source | None, vm: Interpreter) -> dict[Hashable, tuple[Value, Lazy]]:
    """The items of a real dictionary by their tracked keys; values are wrapped when they are read."""
    fixed = keys_are_known(vm, source)
    items = {}
    pairs = (collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict).items(obj)  # an order of its own
    for i, (k, v) in enumerate(pairs):
        placed = not fixed and i < MOST_PLACES and is_made_of_parts(k)
        found = DictKeyAt(source, i) if placed and source is not None else part_of(source, k, called(k))
        key = ConstantValue(k) if type(k) in LITERALS else vm.wrap(k, found)
        where = None if source is None else DictValueAt(source, i) if placed else Item(source, k)
        items[vm.key(key)] = (key, Lazy(v, part_of(source, v, f"{source}[{k!r}]") if fixed else where))
    return items


def is_made_of_parts(key: object) -> bool:
    """Whether which object a key is does not matter, but what is in it: it has a hash of its own, and others are equal."""
    if type(key) in LITERALS or is_constant(key) or lasts(key) or is_of(key, (torch.Tensor, weakref.ref)):
        return False
    asked = type(find_in_mro(type(key).__mro__, "__hash__")[1]) is types.FunctionType
    return asked or type(key) is types.MethodType or holds_mortal(key)


@tracks(types.MappingProxyType)
def mapping_proxy(vm: Interpreter, obj: types.MappingProxyType[Hashable, object], source: Any) -> Value:
    """A view of a dictionary that others may change. That of a class is made anew by each look at it; parameters of signatures are
    fixed."""
    if type(source) is Attr and source.name == "__dict__" and type(source.base) is Pinned and isinstance(source.base.object, type):
        source = InstanceDict(source.base)
        view = DictValue(dict_items(dict(obj), source, vm), type(obj), source, obj)
        for cls, name, _, new, again in vm.effects.attributes.values():
            if cls is source.base.object:
                show(view, name, new, again)
    else:
        if any(type(shown) not in (dict, collections.OrderedDict) for shown in gc.get_referents(obj)):
            vm.unsupported("FE020", "a mapping proxy", "its mapping has a way of its own to read items")
        source = by_structure(vm, obj, source) or Pinned(obj, "mapping proxy")
        known = next(
            (
                value
                for shown, value in map(vm.known.get, map(id, gc.get_referents(obj)), itertools.repeat((None, None)))
                if type(value) is DictValue
            ),
            None,
        )
        if known is not None:  # whose changes it shows
            known.guard_keys(vm)
            view = DictValue(known.items, type(obj), source, obj)
            view.keys_guarded = view.read_only = True
            return view
        for shown in gc.get_referents(obj):
            vm.tables.setdefault(id(shown), obj)  # what is written to it would have to be seen here
        view = DictValue(dict_items(dict(obj), source, vm), type(obj), source, obj)
        view.guard_keys(vm)
    view.read_only = True
    return view


@tracks(dict)
def dict_(vm: Interpreter, obj: dict[Hashable, object], source: Any) -> Value:
    """A dictionary: guarded by class and keys, its values when they are read."""
    if id(obj) in vm.tables:
        vm.unsupported("FE020", "a dictionary", f"it is that of a {type(vm.tables[id(obj)]).__qualname__} as well")
    of_hooks = holds_hooks(obj, source, vm.modules)
    if vm.is_module_table(source):
        vm.guard(TypeIs(source, type(obj)))  # the path stays: what is found in it is then implied by the module tree
    else:
        source = by_structure(vm, obj, source)
    base = builtin_base(type(obj))
    storage = DictValue(dict_items(obj, source, vm), base, source, obj)
    storage.keys_guarded |= keys_are_known(vm, source)
    if of_hooks:
        storage.keep_hooks(vm)
    if isinstance(obj, collections.defaultdict):
        storage.default = vm.wrap(obj.default_factory, Attr(source, "default_factory"))
    return storage if type(obj) is base else with_storage(vm, obj, source, storage)


@tracks(set, frozenset)
def set_(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A set: guarded by its items where these are plain, else by identity and items."""
    plain = not (source is None or root_is_pinned(source)) and guard_items(vm, obj, source)
    if plain and source in vm.varying.opaque:
        return VaryingNumber(obj, source)
    pinned = source if plain else by_identity(vm, obj, source)
    if pinned is not None and not plain and type(obj) is set:
        vm.guard(Predicate(pinned, Members(obj), f"== {{{', '.join(map(called, obj))}}}"))
    base = builtin_base(type(obj))
    items = {vm.key(value): value for value in (vm.wrap(v, part_of(pinned, v, called(v))) for v in base.__iter__(obj))}
    storage = SetValue(items, base, pinned, obj)
    return storage if type(obj) is base else with_storage(vm, obj, pinned, storage)


@tracks(slice)
def slice_(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A slice, of its three parts."""
    parts = [vm.wrap(getattr(obj, n), Attr(source, n) if source is not None else None) for n in ("start", "stop", "step")]
    if source is not None:
        vm.guard(TypeIs(source, slice))
    return SliceValue(*parts)


@tracks(types.FunctionType)
def function(vm: Interpreter, obj: types.FunctionType, source: Source | None) -> Value:
    """A Python function: guarded by identity, or by its code where each call makes another, and where a guard would keep what dies."""
    if source is not None and made_by_calls(obj, source) and (vm.varying.remade or keeps_mortal(obj)) and not is_disabled(obj):
        return GivenFunction(vm, obj, source)
    return function_value(obj, by_identity(vm, obj, source))


class CompiledValue(BuiltinValue):
    """A compiled function called by captured code: inlined, as the function that it stands for."""

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        wrapped = self.obj.__wrapped__
        return vm.call(vm.wrap(wrapped, Pinned(wrapped, "__wrapped__")), args, kwargs)

    def callee(self) -> object:
        return self.obj.__wrapped__


@tracks(CompiledFunction)
def compiled_function(vm: Interpreter, obj: CompiledFunction, source: Source | None) -> Value:
    """A function that opmill has compiled, known by identity, or by what it is made of where each call makes another."""
    function = cast(types.FunctionType, obj.__wrapped__)
    if source is not None and made_by_calls(function, source) and (vm.varying.remade or keeps_mortal(function)):
        return GivenCompiled(vm, obj, source)
    return CompiledValue(obj, by_identity(vm, obj, source) or Pinned(obj, "compiled function"))


class ScriptedValue(BuiltinValue):
    """A function that ``torch.jit.script`` made, called by captured code: inlined, as the function that it was made of. What
    ``torch.jit.trace`` made is not: it is what the function did once."""

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function: object = getattr(self.obj, "_torchdynamo_inline", None)
        if type(function) is not types.FunctionType or getattr(self.obj, "__name__", "") != "ScriptFunction":
            vm.unsupported("FE010", "a call of what torch.jit.trace made", "it is implemented in C", "call the function that was traced")
        return vm.call(vm.wrap(function, Pinned(function, function.__qualname__)), args, kwargs)


@tracks(torch.jit.ScriptFunction)
def scripted_function(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A function of ``torch.jit.script``, known by identity."""
    return ScriptedValue(obj, by_identity(vm, obj, source) or Pinned(obj, "scripted function"))


@tracks(types.MethodType)
def method(vm: Interpreter, obj: types.MethodType, source: Source | None) -> Value:
    """A bound method: its function and its object, each with its guards."""
    if source is not None and type(source) is not Pinned:
        vm.guard(TypeIs(source, types.MethodType))
    base = source if source is not None else Pinned(obj, obj.__qualname__ if hasattr(obj, "__qualname__") else "method")
    return MethodValue(vm.wrap(obj.__func__, Attr(base, "__func__")), vm.wrap(obj.__self__, Attr(base, "__self__")), source)


@tracks(functools.partial)
def partial(vm: Interpreter, obj: functools.partial[object], source: Source | None) -> Value:
    """A ``functools.partial``: known by identity, or by its parts where each call makes another."""
    if any(find_in_mro(type(obj).__mro__, name)[0] is not functools.partial for name in ("func", "args", "keywords")):
        return object_(vm, obj, source)  # a class that means something else by these
    if vm.varying.remade and source is not None and not root_is_pinned(source):
        vm.guard(TypeIs(source, type(obj)))
        named = cast(DictValue, vm.wrap(obj.keywords, Attr(source, "keywords")))
        named.guard_keys(vm)
        return PartialValue(
            vm.wrap(obj.func, Attr(source, "func")), vm.unpack(vm.wrap(obj.args, Attr(source, "args"))), named, type(obj), source, obj
        )
    pinned = by_identity(vm, obj, source) or Pinned(obj, "partial")
    args = [vm.wrap(a, Item(Attr(pinned, "args"), i)) for i, a in enumerate(obj.args)]
    keywords = cast(DictValue, vm.wrap(obj.keywords, Attr(pinned, "keywords")))
    return PartialValue(vm.wrap(obj.func, Attr(pinned, "func")), args, keywords, type(obj), pinned, obj)


@tracks(BaseException)
def exception(vm: Interpreter, obj: BaseException, source: Source | None) -> Value:
    """An exception of before the call: its class is guarded, its fields when they are read."""
    source = by_structure(vm, obj, source) or Pinned(obj, type(obj).__qualname__)
    return ExceptionObject(type(obj), [], obj, source)


@tracks(types.TracebackType)
def traceback(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A traceback of before the call, known by its place."""
    return TracebackValue(None, obj, by_structure(vm, obj, source) or Pinned(obj, "traceback"))


@tracks(types.CellType)
def cell(vm: Interpreter, obj: types.CellType, source: Source | None) -> Value:
    """A cell of a closure of before the call; its content is read late."""
    return CellValue(obj=obj, source=by_structure(vm, obj, source) or Pinned(obj, "cell"))


@tracks(type)
def class_(vm: Interpreter, obj: type, source: Source | None) -> Value:
    """A class: known by identity, or by what is read of it where each call makes another."""
    if vm.varying.remade and made_by_calls(obj, source) and is_plain(obj):
        given = GivenClass(vm, obj, source)
        vm.know(obj, given)
        given.look_at_functions()
        return given
    return ClassValue(obj, by_identity(vm, obj, source) or Pinned(obj, obj.__qualname__))


@tracks(types.ModuleType)
def module_object(vm: Interpreter, obj: types.ModuleType, source: Source | None) -> Value:
    """An imported module, known by identity; its attributes are guarded when they are read."""
    return ModuleObject(obj, by_identity(vm, obj, source) or Pinned(obj, vars(obj).get("__name__", "module")))


BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)


def bound_builtin(vm: Interpreter, obj: Any, owner: object, source: Source | None) -> Value:
    """A builtin method of an object, made anew by each attribute access: known by its name and its object."""
    if source is None or type(source) is Pinned:
        return bound_in_c(vm, obj, vm.wrap(owner, Pinned(owner, repr(type(owner)))), source)
    vm.guard(TypeIs(source, type(obj)))
    vm.guard(Equals(Attr(source, "__name__"), obj.__name__))
    return bound_in_c(vm, obj, vm.wrap(owner, Attr(source, "__self__")), source)


@tracks(
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, property, classmethod, staticmethod),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops),
    *(types.GenericAlias, types.UnionType, typing._Final, typing.TypeVar, super, functools._lru_cache_wrapper),
)
def builtin(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A function, a method or a descriptor of C, known by identity."""
    owner = getattr(obj, "__self__", None)
    bound = type(obj) in BOUND_IN_C and getattr(obj, "__module__", None) is None  # functions of pybind modules have a module
    if bound and owner is not None and not isinstance(owner, (types.ModuleType, type)):
        return bound_builtin(vm, obj, owner, source)
    return as_varying(vm, obj, source) or BuiltinValue(
        obj, by_identity(vm, obj, source) or Pinned(obj, getattr(obj, "__name__", repr(type(obj))))
    )


@tracks(weakref.ProxyType, weakref.CallableProxyType, types.FrameType, memoryview, types.CoroutineType, types.AsyncGeneratorType)
def untouched(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """What captured code may hand on and not look into; its class is guarded."""
    if source is not None and type(source) is not Pinned:
        vm.guard(TypeIs(source, type(obj)))
    return Untouched(obj, source or Pinned(obj, type(obj).__name__))


@tracks(*VIEWS)
def view(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A view of a dictionary, which knows what that holds: handed on, found where it came from."""
    if source is None or is_held(vm, source, obj):
        return changing(vm, obj, source)
    vm.guard(TypeIs(source, type(obj)))
    return ViewOfBefore(obj, source)


@tracks(bytearray, array.array)
def changing(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """An object whose content Python code can change unseen: handed on, known by identity, unless it was another one at each call."""
    return as_varying(vm, obj, source) or ChangingValue(obj, by_identity(vm, obj, source) or Pinned(obj, type(obj).__qualname__))


@tracks(torch.nn.Module)
def module(vm: Interpreter, obj: torch.nn.Module, source: Source | None) -> Value:
    """A ``torch.nn.Module``, known by its path and its structure; one without stores of its own is a plain object."""
    if not vars(obj).keys() >= set(STORES):  # its ``__init__`` has yet to run
        return object_(vm, obj, source)
    value = ModuleValue(obj, source or Pinned(obj, type(obj).__name__))  # which module it is does not matter: it is known by its path
    if vm.varying.rehooked and any(vars(obj).get(name) for name in HOOKS):
        value.rehooked = vm
    vm.use_module(value)
    return value


@tracks(types.SimpleNamespace)
def namespace(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A ``types.SimpleNamespace``: an object with attributes."""
    return ObjectValue(type(obj), obj, by_structure(vm, obj, source) or Pinned(obj, "namespace"))


@tracks(_thread.LockType, _thread.RLock)
def lock(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A lock: one among the arguments is known by its type; it is taken and given back when the program runs."""
    return LockValue(obj, by_structure(vm, obj, source) or Pinned(obj, "lock"))


@tracks(_thread._local)
def thread_local(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """A ``threading.local``: an object with the attributes of this thread."""
    return ThreadLocalValue(type(obj), obj, by_structure(vm, obj, source) or Pinned(obj, type(obj).__qualname__))


@tracks(object)
def object_(vm: Interpreter, obj: object, source: Source | None) -> Value:
    """Any other object: one of a class of the program by its attributes, one of C by identity."""
    if looked_up_in_c(type(obj)):
        return untouched(vm, obj, source)
    heap = written_in_python(type(obj)) or type(obj) is object
    if not heap and hasattr(type(obj), "__next__"):
        return iterator_kind(obj, source)(obj, by_structure(vm, obj, source) or Pinned(obj, repr(type(obj))))
    if callable(obj) and (not heap or type(obj).__name__ == "cython_function_or_method"):
        return builtin(vm, obj, source)
    if not heap and type(obj).__module__ == "numpy" and type(obj).__name__ == "ndarray":
        return array_of_before(vm, obj, source) or changing(vm, obj, source)
    if not heap and is_number_of_numpy(obj) and (number := number_of_before(vm, obj, source)) is not None:
        return number
    if not heap:
        kind = BuiltinValue if stays(type(obj)) else ChangingValue
        return as_varying(vm, obj, source) or kind(obj, by_identity(vm, obj, source) or Pinned(obj, repr(type(obj))))
    source = by_structure(vm, obj, source) or Pinned(obj, type(obj).__qualname__)
    if type(source) is Pinned:
        vm.guard(TypeIs(source, type(obj)))
    return with_own_table(vm, ObjectValue(type(obj), obj, source))
