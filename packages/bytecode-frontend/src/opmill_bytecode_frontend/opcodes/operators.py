"""Arithmetic, comparison, attributes, subscripts."""

from __future__ import annotations

import sys
from typing import Any

from ..values.base import MISSING
from ..values.constant import ConstantValue
from ..values.objects import SuperValue
from ..values.sequence import SliceValue
from .registry import opcode


@opcode("BINARY_OP")
def binary_op(vm: Any, frame: Any, ins: Any) -> None:
    right = frame.pop()
    left = frame.pop()
    frame.push(vm.binary(ins.argval, left, right))


@opcode("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def unary(vm: Any, frame: Any, ins: Any) -> None:
    name = {"UNARY_NEGATIVE": "__neg__", "UNARY_POSITIVE": "__pos__", "UNARY_INVERT": "__invert__"}[ins.opname]
    frame.push(vm.unary(name, frame.pop()))


@opcode("UNARY_NOT")
def unary_not(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(ConstantValue(not vm.truth(frame.pop())))


@opcode("TO_BOOL")
def to_bool(vm: Any, frame: Any, ins: Any) -> None:
    frame.push(ConstantValue(vm.truth(frame.pop())))


@opcode("COMPARE_OP")
def compare_op(vm: Any, frame: Any, ins: Any) -> None:
    right = frame.pop()
    left = frame.pop()
    result = vm.compare(ins.argval, left, right)
    if sys.version_info >= (3, 13) and ins.flag & 16:
        result = ConstantValue(vm.truth(result))
    frame.push(result)


@opcode("IS_OP")
def is_op(vm: Any, frame: Any, ins: Any) -> None:
    right = frame.pop()
    left = frame.pop()
    frame.push(ConstantValue(vm.is_same(left, right) != bool(ins.argval)))


@opcode("CONTAINS_OP")
def contains_op(vm: Any, frame: Any, ins: Any) -> None:
    container = frame.pop()
    item = frame.pop()
    frame.push(ConstantValue(vm.contains(container, item) != bool(ins.argval)))


@opcode("LOAD_ATTR")
def load_attr(vm: Any, frame: Any, ins: Any) -> None:
    value = vm.getattr(frame.pop(), ins.argval)
    if not ins.flag & 1:
        frame.push(value)
    elif sys.version_info < (3, 13):
        frame.push(MISSING)
        frame.push(value)
    else:
        frame.push(value)
        frame.push(MISSING)


@opcode("LOAD_METHOD")
def load_method(vm: Any, frame: Any, ins: Any) -> None:
    value = vm.getattr(frame.pop(), ins.argval)
    frame.push(MISSING)
    frame.push(value)


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(vm: Any, frame: Any, ins: Any) -> None:
    owner, cls, function = frame.pop(), frame.pop(), frame.pop()
    if function.real() is super:
        value = SuperValue(cls.constant(), owner).getattr(vm, ins.argval)
    else:
        value = vm.getattr(vm.call(function, [cls, owner] if ins.flag & 2 else [], {}), ins.argval)
    if ins.flag & 1 and sys.version_info < (3, 13):
        frame.push(MISSING)
    frame.push(value)
    if ins.flag & 1 and sys.version_info >= (3, 13):
        frame.push(MISSING)


@opcode("STORE_ATTR")
def store_attr(vm: Any, frame: Any, ins: Any) -> None:
    owner = frame.pop()
    vm.setattr(owner, ins.argval, frame.pop())


@opcode("DELETE_ATTR")
def delete_attr(vm: Any, frame: Any, ins: Any) -> None:
    frame.pop().delattr(vm, ins.argval)


@opcode("BINARY_SUBSCR")
def binary_subscr(vm: Any, frame: Any, ins: Any) -> None:
    key = frame.pop()
    frame.push(vm.getitem(frame.pop(), key))


@opcode("STORE_SUBSCR")
def store_subscr(vm: Any, frame: Any, ins: Any) -> None:
    key = frame.pop()
    owner = frame.pop()
    vm.setitem(owner, key, frame.pop())


@opcode("DELETE_SUBSCR")
def delete_subscr(vm: Any, frame: Any, ins: Any) -> None:
    key = frame.pop()
    owner = frame.pop()
    if owner.special(vm, "__delitem__", [key]) is None:
        vm.throw(TypeError, f"{owner.python_type().__name__!r} object doesn't support item deletion")


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(vm: Any, frame: Any, ins: Any) -> None:
    owner, start, stop = frame.popn(3)
    frame.push(vm.getitem(owner, SliceValue(start, stop, ConstantValue(None))))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(vm: Any, frame: Any, ins: Any) -> None:
    value, owner, start, stop = frame.popn(4)
    vm.setitem(owner, SliceValue(start, stop, ConstantValue(None)), value)


@opcode("BUILD_SLICE")
def build_slice(vm: Any, frame: Any, ins: Any) -> None:
    parts = frame.popn(ins.argval)
    frame.push(SliceValue(*parts, *[ConstantValue(None)] * (3 - len(parts))))
