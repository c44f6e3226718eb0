"""Building and unpacking containers and strings."""

from __future__ import annotations

from typing import Any

from ..values.base import NotConstant
from ..values.constant import ConstantValue
from ..values.mapping import DictValue, SetValue, mapping_of, update_from
from ..values.sequence import ListValue, TupleValue
from .registry import opcode


@opcode("BUILD_TUPLE")
def build_tuple(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(TupleValue(frame.popn(ins.argval)))


@opcode("BUILD_LIST")
def build_list(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(ListValue(frame.popn(ins.argval)))


@opcode("BUILD_SET")
def build_set(vm: Any, frame: Any, ins: Any) -> None:
    result = SetValue({})
    for v in frame.popn(ins.argval):
        result.m_add(vm, v)
    frame.push(result)


@opcode("BUILD_MAP")
def build_map(vm: Any, frame: Any, ins: Any) -> None:
    items = frame.popn(2 * ins.argval)
    result = DictValue({})
    for key, value in zip(items[::2], items[1::2]):
        result.store(vm, key, value)
    frame.push(result)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(vm: Any, frame: Any, ins: Any) -> None:
    keys = vm.unpack(frame.pop())
    result = DictValue({})
    for key, value in zip(keys, frame.popn(ins.argval)):
        result.store(vm, key, value)
    frame.push(result)


@opcode("LIST_APPEND")
def list_append(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.argval].m_append(vm, value)


@opcode("SET_ADD")
def set_add(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.argval].m_add(vm, value)


@opcode("MAP_ADD")
def map_add(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    key = frame.pop()
    frame.stack[-ins.argval].store(vm, key, value)


@opcode("LIST_EXTEND")
def list_extend(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.argval].m_extend(vm, value)


@opcode("SET_UPDATE")
def set_update(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.argval].m_update(vm, value)


@opcode("DICT_UPDATE")
def dict_update(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    update_from(vm, frame.stack[-ins.argval], value)


@opcode("DICT_MERGE")
def dict_merge(vm: Any, frame: Any, ins: Any) -> None:
    value = frame.pop()
    target = frame.stack[-ins.argval]
    other = mapping_of(value)
    if other is not None:
        for key in other.key_values(vm):
            if vm.key(key) in target.items:
                vm.throw(TypeError, f"got multiple values for keyword argument {key.constant()!r}")
    update_from(vm, target, value)


@opcode("LIST_TO_TUPLE")
def list_to_tuple(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(TupleValue(frame.pop().items))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(vm: Any, frame: Any, ins: Any) -> None:
    items = vm.unpack(frame.pop())
    if len(items) < ins.argval:
        vm.throw(ValueError, f"not enough values to unpack (expected {ins.argval}, got {len(items)})")
    if len(items) > ins.argval:
        vm.throw(ValueError, f"too many values to unpack (expected {ins.argval})")
    frame.stack.extend(reversed(items))


@opcode("UNPACK_EX")
def unpack_ex(vm: Any, frame: Any, ins: Any) -> None:
    before, after = ins.argval & 0xFF, ins.argval >> 8
    items = vm.unpack(frame.pop())
    if len(items) < before + after:
        vm.throw(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = items[before : len(items) - after]
    frame.stack.extend(reversed([*items[:before], ListValue(middle), *items[len(items) - after :]]))


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value(vm: Any, frame: Any, ins: Any) -> None:
    flags = ins.argval or 0
    spec = frame.pop() if flags & 4 else ConstantValue("")
    value = frame.pop()
    frame.push(format_one(vm, value, flags & 3, spec))


def format_one(vm: Any, value: Any, conversion: int, spec: Any) -> Any:
    if conversion:
        value = vm.call(vm.wrap({1: str, 2: repr, 3: ascii}[conversion]), [value], {})
    return vm.call(vm.wrap(format), [value, spec], {})


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(vm.call(vm.wrap({1: str, 2: repr, 3: ascii}[ins.argval]), [frame.pop()], {}))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(format_one(vm, frame.pop(), 0, ConstantValue("")))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(vm: Any, frame: Any, ins: Any) -> None:
    spec = frame.pop()
    frame.push(format_one(vm, frame.pop(), 0, spec))


@opcode("BUILD_STRING")
def build_string(vm: Any, frame: Any, ins: Any) -> None:
    try:
        frame.push(ConstantValue("".join(v.constant() for v in frame.popn(ins.argval))))
    except NotConstant:
        vm.unsupported("FE025", "a string made from a value unknown at capture")
