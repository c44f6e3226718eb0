"""``copy.copy`` and ``copy.deepcopy`` over tracked values."""

from __future__ import annotations

import copyreg
import enum
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...interpretation.owners import written_in_python
from ...values.base import MISSING, Value
from ...values.classes import ClassValue
from ...values.constant import LITERALS, ConstantValue
from ...values.functions import BuiltinValue, ChangingValue, FunctionValue
from ...values.mapping import DictValue
from ...values.objects import ObjectValue, find_in_mro
from ...values.sequence import ListValue, TupleValue
from ...values.sets import SetValue
from ...values.tensor import TensorValue
from ..registry import named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


#: Values that are their own copies.
ATOMIC = (ConstantValue, FunctionValue, ClassValue, BuiltinValue)


#: Objects with a name that Python refuses to copy.
UNCOPIED = (types.CoroutineType, types.AsyncGeneratorType, types.GeneratorType)


def is_atomic(value: Value) -> bool:
    """Numbers of classes written in Python have attributes, and say themselves how they are copied."""
    if isinstance(value, ChangingValue) or (isinstance(value, ConstantValue) and type(value.value).__dictoffset__ != 0):
        return False
    if isinstance(value, ConstantValue) and isinstance(value.value, torch.Generator):
        return False
    if value.symbolic:
        return value.python_type() in LITERALS  # numbers and texts that are not assumed
    return isinstance(value, ATOMIC) and not isinstance(value.real(), UNCOPIED)


#: What copies of containers ask of these, and do with them.
BY_ITEMS = ("__iter__", "items", "__setitem__", "append", "extend")
CUSTOM = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs_ex__", "__getnewargs__")


def is_plain(vm: Interpreter, value: ObjectValue) -> bool:
    """Whether copying goes by the instance's own parts: no method of the protocol is written in Python."""
    if issubclass(value.cls, (BaseException, torch.nn.Module)) or value.cls.__module__ == "enum":
        return False
    if value.has_dict() and not value.shows_dict():
        return False  # what is copied goes into what ``__dict__`` gives
    if value.storage is None and has_hidden_parts(value.cls):
        return False
    registered = vm.read_global(vars(copyreg), "dispatch_table")
    if not isinstance(registered, DictValue) or registered.lookup(vm, vm.key(vm.wrap(value.cls))) is not MISSING:
        return False
    asked = CUSTOM if value.storage is None else (*CUSTOM, *BY_ITEMS)
    return not any(type(vm.hook(value.cls, name)) is types.FunctionType for name in asked)


def has_hidden_parts(cls: type) -> bool:
    """Whether a class of C keeps more in its objects than attributes and slots: those are copied in a way of their own, or not at all."""
    return next(c for c in cls.__mro__ if not written_in_python(c)) not in (object, types.SimpleNamespace)


def slot_names(cls: type) -> list[str]:
    """The slots of a class and those above it; what classes of C show of their objects (``complex.real``) is no attribute to set."""
    written = [c for c in cls.__mro__ if written_in_python(c)]
    return [name for c in written for name, raw in c.__dict__.items() if type(raw) is types.MemberDescriptorType]


def copy_object(vm: Interpreter, value: ObjectValue, part: Callable[..., Any]) -> ObjectValue:
    """A new object of the same class; ``part`` copies what it holds."""
    made = ObjectValue(value.cls)
    part(value, made)
    if value.storage is not None:
        made.storage = part(value.storage)
    if value.has_dict():
        for key, item in zip(value.attrs.key_values(vm), value.attrs.all_values(vm)):
            made.attrs.store(vm, key, part(item))
    for name in slot_names(value.cls):
        held = vm.attempt(functools.partial(value.read_slot, vm, name), AttributeError)
        if held is not None:
            made.slots[name] = part(held)
    return made


def without_attributes(vm: Interpreter, value: Value) -> None:
    """An OrderedDict may have attributes, which its copy has as well."""
    if getattr(value, "extra", None) or getattr(value.real(), "__dict__", None):
        vm.unsupported("FE017", f"a copy of {value.describe()}", "it has attributes")


@named("copy.copy")
def copy_copy(vm: Interpreter, value: Value) -> Value | None:
    """``copy.copy()``: the object's own way, else a new object with the same items and attributes."""
    if isinstance(value, (ListValue, DictValue, SetValue)):
        without_attributes(vm, value)
        return value.m_copy(vm)
    if isinstance(value, TupleValue):
        return copied_tuple(vm, value, value.values(vm))
    if is_atomic(value) or issubclass(value.python_type(), enum.Enum):
        return value
    if isinstance(value, (ConstantValue, ChangingValue)):
        vm.unsupported("FE017", f"copy.copy of {value.describe()}")
    if isinstance(value, ObjectValue):
        if vm.hook(value.cls, "__copy__") not in (None, MISSING):
            return value.special(vm, "__copy__", [])
        if is_plain(vm, value):
            return copy_object(vm, value, lambda item, made=None: shallow_storage(vm, value, item, made))
    return None


def shallow_storage(vm: Interpreter, owner: Any, item: Any, made: object) -> object:
    """What a shallow copy holds at one place: a copy of the storage of a builtin base, else the same item."""
    is_storage = item is owner.storage and hasattr(item, "m_copy")
    return item.m_copy(vm) if is_storage else item


def copied_tuple(vm: Interpreter, value: TupleValue, items: list[Value]) -> TupleValue:
    """A tuple is its own copy; of a class derived from it another one is made, as a named tuple is pickled."""
    if value.cls is tuple:
        return value if all(a is b for a, b in zip(value.values(vm), items)) else TupleValue(items)
    if value.cls is torch.Size:  # which reduces to a call of its class
        return TupleValue(items, torch.Size)
    maker = find_in_mro(value.cls.__mro__, "__new__")[0]
    written = any(value.written_now(vm, name) is not None for name in (*CUSTOM[:-1], "__copy__", "__deepcopy__"))
    if written or not ("_fields" in vars(maker) or maker is tuple):
        vm.unsupported("FE017", f"a copy of {value.describe()}", "its class says in Python how it is made")
    if value.cls.__dictoffset__ and value.source is not None:
        vm.unsupported("FE017", f"a copy of {value.describe()}", "it may have attributes")
    return TupleValue(items, value.cls)


@named("copy.deepcopy")
def copy_deepcopy(vm: Interpreter, value: Value, memo: Value | None = None, *rest: Value) -> Value | None:
    """``copy.deepcopy()``; a memo of the program is refused (FE017)."""
    if memo is not None and not (isinstance(memo, ConstantValue) and memo.value is None):
        vm.unsupported("FE017", "copy.deepcopy with a memo of the program")
    return deep(vm, value, {})


def deep(vm: Interpreter, value: Value, memo: dict[int, Value]) -> Value:
    """A deep copy; ``memo``: what was copied already, by identity of the tracked value."""
    known = memo.get(id(value))
    if known is not None:
        return known
    if is_atomic(value):
        return value
    for kind, rule in RULES.items():
        if isinstance(value, kind):
            return rule(vm, value, memo)
    return vm.unsupported("FE017", f"copy.deepcopy of {value.describe()}")


def remember(memo: dict[int, Any], value: Value, made: Value) -> None:
    """Notes the copy of a value for whoever meets the value again."""
    memo[id(value)] = made
    memo.setdefault(-1, []).append(value)  # keeps the original alive, so that its identity stays its own


def deep_list(vm: Interpreter, value: ListValue, memo: dict[int, Value]) -> Value:
    """A deep copy of a list. ``memo``: copies so far, by id; it is known there before its items are copied."""
    made = value.make([])
    remember(memo, value, made)
    made.items.extend(deep(vm, v, memo) for v in value.values(vm))
    return made


def deep_tuple(vm: Interpreter, value: TupleValue, memo: dict[int, Value]) -> Value:
    """A deep copy of a tuple; the tuple itself where its items are their own copies."""
    old = value.values(vm)
    items = [deep(vm, v, memo) for v in old]
    made = value if all(a is b for a, b in zip(old, items)) and value.cls is tuple else copied_tuple(vm, value, items)
    remember(memo, value, made)
    return made


def deep_dict(vm: Interpreter, value: DictValue, memo: dict[int, Value]) -> Value:
    """A dictionary of copies of its keys and items."""
    without_attributes(vm, value)
    if value.read_only:
        vm.throw(TypeError, "cannot pickle 'mappingproxy' object")
    made = DictValue({}, value.cls)
    made.default = value.default
    remember(memo, value, made)
    for key, item in zip(value.key_values(vm), value.all_values(vm)):
        made.store(vm, deep(vm, key, memo), deep(vm, item, memo))
    return made


def deep_set(vm: Interpreter, value: SetValue, memo: dict[int, Value]) -> Value:
    """A deep copy of a set."""
    items = [deep(vm, v, memo) for v in vm.unpack(value)]
    made = SetValue({vm.key(v): v for v in items}, value.cls)
    remember(memo, value, made)
    return made


def deep_tensor(vm: Interpreter, value: TensorValue, memo: dict[int, Value]) -> Value:
    """A copy of a tensor without a history, by a step of the graph."""
    if value.fake.requires_grad or value.cls is not torch.Tensor or not value.fake.is_contiguous():
        vm.unsupported(
            "FE017",
            f"copy.deepcopy of {value.describe()}",
            "only plain contiguous tensors without gradients are copied in a graph",
            "use clone()",
        )
    if type(vm.getattr(value, "grad")) is TensorValue:
        vm.unsupported("FE017", f"copy.deepcopy of {value.describe()}", "its gradient is copied with it")
    made: Any = value.method(vm, "clone", [], {})
    remember(memo, value, made)
    for key, item in zip(value.attrs.key_values(vm), value.attrs.all_values(vm)):
        made.attrs.store(vm, key, deep(vm, item, memo))
    return made


def deep_object(vm: Interpreter, value: ObjectValue, memo: dict[int, Value]) -> Value:
    """An object of the program, by its own ``__deepcopy__`` or part by part."""
    if issubclass(value.cls, enum.Enum):
        return value
    if vm.hook(value.cls, "__deepcopy__") not in (None, MISSING):
        own = value.dunder(vm, "__deepcopy__", [DictValue({})])
        remember(memo, value, own)
        return own
    if not is_plain(vm, value):
        vm.unsupported("FE017", f"copy.deepcopy of {value.describe()}", "its class says in Python how it is copied")

    def part(item: Value, made: Value | None = None) -> object:
        if made is not None:
            remember(memo, item, made)
            return None
        return deep(vm, item, memo)

    return copy_object(vm, value, part)


RULES: dict[type, Callable[..., Value]] = {
    ListValue: deep_list,
    TupleValue: deep_tuple,
    DictValue: deep_dict,
    SetValue: deep_set,
    TensorValue: deep_tensor,
    ObjectValue: deep_object,
}
