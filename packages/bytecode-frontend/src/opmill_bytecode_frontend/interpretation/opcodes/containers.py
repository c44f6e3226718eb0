"""Building and unpacking containers and strings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...breaks.returning import asked
from ...values.base import NotConstant, class_has, is_iterable
from ...values.constant import ConstantValue
from ...values.data_dependent import LateText
from ...values.functions import FunctionValue, MethodValue
from ...values.iterators import STOP
from ...values.loops import is_ahead
from ...values.made_texts import joined, made_text
from ...values.mapping import DictValue, SetValue, update_from
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.tensor import TensorValue
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ...values.base import Value
    from ..frame import Frame
    from ..machine import Interpreter


@opcode("BUILD_TUPLE")
def build_tuple(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops items, and pushes a tuple of them."""
    frame.push(TupleValue(frame.popn(ins.argval)))


@opcode("BUILD_LIST")
def build_list(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops items, and pushes a list of them."""
    frame.push(ListValue(frame.popn(ins.argval)))


@opcode("BUILD_SET")
def build_set(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops items, and pushes a set of them; of equal ones the first stays."""
    result = SetValue({})
    for v in frame.popn(ins.argval):
        result.m_add(vm, v)
    frame.push(result)


@opcode("BUILD_MAP")
def build_map(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops keys and values in turns, and pushes a dict of them."""
    items = frame.popn(2 * ins.argval)
    result = DictValue({})
    for key, value in zip(items[::2], items[1::2]):
        result.store(vm, key, value)
    frame.push(result)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a tuple of keys and the values, and pushes a dict of them."""
    keys = vm.unpack(frame.pop())
    result = DictValue({})
    for key, value in zip(keys, frame.popn(ins.argval)):
        result.store(vm, key, value)
    frame.push(result)


@opcode("LIST_APPEND")
def list_append(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a list further down, as comprehensions do."""
    value = frame.pop()
    frame.stack[-ins.argval].m_append(vm, value)


@opcode("SET_ADD")
def set_add(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value into a set further down."""
    value = frame.pop()
    frame.stack[-ins.argval].m_add(vm, value)


@opcode("MAP_ADD")
def map_add(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a key and its value into a dict further down."""
    value = frame.pop()
    key = frame.pop()
    frame.stack[-ins.argval].store(vm, key, value)


@opcode("LIST_EXTEND")
def list_extend(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an iterable, and puts its items into a list further down."""
    value = frame.pop()
    if not is_iterable(vm, value):
        vm.throw(TypeError, f"Value after * must be an iterable, not {value.python_type().__name__}")
    frame.stack[-ins.argval].m_extend(vm, value)


@opcode("SET_UPDATE")
def set_update(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an iterable, and puts its items into a set further down."""
    value = frame.pop()
    frame.stack[-ins.argval].m_update(vm, value)


@opcode("DICT_UPDATE")
def dict_update(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a mapping, and puts its items into a dict further down."""
    value = frame.pop()
    if not class_has(vm, value, "keys"):
        vm.throw(TypeError, f"{value.python_type().__name__!r} object is not a mapping")
    update_from(vm, frame.stack[-ins.argval], value)


@opcode("DICT_MERGE")
def dict_merge(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """As `dict_update` for keywords of a call: a key that is there already is an error."""
    value = frame.pop()
    target = frame.stack[-ins.argval]
    function = function_text(frame.stack[-ins.argval - 2 - (sys.version_info >= (3, 13))])
    if not class_has(vm, value, "keys"):
        vm.throw(TypeError, f"{function} argument after ** must be a mapping, not {value.python_type().__name__}")
    more = DictValue({})
    update_from(vm, more, value)
    for hashed, (key, item) in more.items.items():
        if not isinstance(key.constant(), str):
            vm.throw(TypeError, "keywords must be strings")
        if hashed in target.items:
            vm.throw(TypeError, f"{function} got multiple values for keyword argument {key.constant()!r}")
        target.put(vm, hashed, key, item)


def function_text(value: Value) -> str:
    """How messages about arguments name what is called."""
    function = value.function if isinstance(value, MethodValue) else value
    if isinstance(function, FunctionValue):
        module, name = function.globals.get("__name__"), function.qualname
    else:
        real = value.real()
        module, name = getattr(real, "__module__", None), getattr(real, "__qualname__", "")
    return f"{module}.{name}()" if module not in (None, "builtins") else f"{name}()"


@opcode("LIST_TO_TUPLE")
def list_to_tuple(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a list, and pushes a tuple of its items."""
    frame.push(TupleValue(frame.pop().items))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an iterable of so many items, and pushes these, the first on top."""
    value = frame.pop()
    if type(value) is TupleValue and len(value.items) == ins.argval and any(map(is_ahead, value.items)):
        stored = frame.stores()  # what goes into a variable need not be looked at
        frame.stack.extend([v if i < stored and is_ahead(v) else value.item(vm, i) for i, v in enumerate(value.items)][::-1])
        return
    items = unpacked(vm, value, ins.argval)
    if len(items) < ins.argval:
        vm.throw(ValueError, f"not enough values to unpack (expected {ins.argval}, got {len(items)})")
    if len(items) > ins.argval:
        vm.throw(ValueError, f"too many values to unpack (expected {ins.argval})")
    frame.stack.extend(reversed(items))


def unpacked(vm: Interpreter, value: Value, count: int, rest: bool = False) -> list[Value]:
    """The items of a value that is assigned to several targets; of an iterator no more than one beyond ``count``. ``rest``: those behind
    ``count`` become a list."""
    if isinstance(value, SequenceValue):
        return value.values(vm)
    if not is_iterable(vm, value):
        vm.throw(TypeError, f"cannot unpack non-iterable {value.python_type().__name__} object")
    iterator = vm.iterate(value)
    items: list[Value] = []
    while len(items) < count + (not rest) and (item := vm.next(iterator)) is not STOP:
        items.append(item)
    return [*items, *vm.unpack(iterator, sized=True)] if rest and len(items) == count else items


@opcode("UNPACK_EX")
def unpack_ex(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an iterable, and pushes items from both its ends and a list of what is between them."""
    before, after = ins.argval & 0xFF, ins.argval >> 8
    items = unpacked(vm, frame.pop(), before, rest=True)
    if len(items) < before + after:
        vm.throw(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = items[before : len(items) - after]
    frame.stack.extend(reversed([*items[:before], ListValue(middle), *items[len(items) - after :]]))


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, perhaps with a format, and pushes its text (f-strings)."""
    flags = ins.argval or 0
    spec = frame.pop() if flags & 4 else ConstantValue("")
    value = frame.pop()
    frame.push(format_one(vm, value, flags & 3, spec))


CONVERSIONS: dict[int, Callable[[object], str]] = {1: str, 2: repr, 3: ascii}


def format_one(vm: Interpreter, value: Value, conversion: int, spec: Value) -> Value:
    """One field of an f-string: converted, then formatted."""
    plain = isinstance(spec, ConstantValue) and spec.value == ""
    if plain and conversion != 3:
        vm.frame.expects(*(asked(CONVERSIONS[conversion], value) if conversion else asked(format, value)))
    if plain and conversion == 0 and vm.recorder.counts and type(value) is TensorValue and value.fake.dim() and not value.is_known():
        return LateText(vm, value)
    if conversion:
        value = vm.call(vm.wrap(CONVERSIONS[conversion]), [value], {})
    return vm.call(vm.wrap(format), [value, spec], {})


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes its ``str``, ``repr`` or ``ascii``."""
    value = frame.pop()
    if ins.argval != 3:
        frame.expects(*asked(CONVERSIONS[ins.argval], value))
    frame.push(vm.call(vm.wrap(CONVERSIONS[ins.argval]), [value], {}))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes its text without a format."""
    frame.push(format_one(vm, frame.pop(), 0, ConstantValue("")))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a format and a value, and pushes the text."""
    spec = frame.pop()
    frame.push(format_one(vm, frame.pop(), 0, spec))


@opcode("BUILD_STRING")
def build_string(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops texts, and pushes them joined."""
    parts = frame.popn(ins.argval)
    if late := [part for part in parts if type(part) is LateText]:
        frame.push(LateText(vm, late[0].tensor, min(part.place for part in late)))
        return
    if any(part.told_later for part in parts) and (text := made_text(joined, [ConstantValue(""), *parts])) is not None:
        frame.push(text)
        return
    try:
        frame.push(ConstantValue("".join(v.constant() for v in parts)))
    except NotConstant:
        vm.unsupported("FE025", "a string made from a value unknown at capture")
