"""Arithmetic, comparison, attributes, subscripts."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING

from ...breaks.returning import Attribute, asked, contained, dropped, method_of, pushed
from ...values.base import MISSING
from ...values.classes import SuperValue
from ...values.constant import ConstantValue
from ...values.objects import ObjectValue, find_in_mro
from ...values.sequence import SliceValue
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ...values.base import Value
    from ..frame import Frame
    from ..machine import Interpreter


@opcode("BINARY_OP")
def binary_op(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops two operands, and pushes what an operator gives, in place or not."""
    right = frame.pop()
    left = frame.pop()
    frame.push(vm.binary(ins.argval, left, right, direct=True))


@opcode("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def unary(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes what ``-``, ``+`` or ``~`` gives."""
    name = {"UNARY_NEGATIVE": "__neg__", "UNARY_POSITIVE": "__pos__", "UNARY_INVERT": "__invert__"}[ins.opname]
    value = frame.pop()
    vm.expect(value, name, pushed)
    frame.push(vm.unary(name, value))


@opcode("UNARY_NOT")
def unary_not(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes whether it is false."""
    value = frame.pop()
    frame.expects(*asked(operator.not_, value))
    frame.push(ConstantValue(not vm.truth(value)))


@opcode("TO_BOOL")
def to_bool(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes its truth."""
    value = frame.pop()
    frame.expects(*asked(bool, value))
    frame.push(ConstantValue(vm.truth(value)))


@opcode("COMPARE_OP")
def compare_op(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops two values, and pushes what a comparison gives, or the truth of that in front of a jump."""
    right = frame.pop()
    left = frame.pop()
    truth = ins.gives_truth
    result = vm.compare(ins.argval, left, right, direct=not truth)
    if truth:
        result = ConstantValue(vm.truth(result))
    frame.push(result)


@opcode("IS_OP")
def is_op(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops two values, and pushes whether they are the same object."""
    right = frame.pop()
    left = frame.pop()
    frame.push(ConstantValue(vm.is_same(left, right) != bool(ins.argval)))


@opcode("CONTAINS_OP")
def contains_op(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an item and a container, and pushes whether it is in there."""
    container = frame.pop()
    item = frame.pop()
    vm.expect(container, "__contains__", contained)
    frame.push(ConstantValue(vm.contains(container, item) != bool(ins.argval)))


def read_attribute(vm: Interpreter, frame: Frame, owner: Value, name: str, null: bool) -> Value:
    """The attribute. A graph may end inside of the getter of a property whose exceptions nobody else has an answer to."""
    getter = None
    if isinstance(owner, ObjectValue) and method_of(owner, "__getattr__") is None and method_of(owner, "__getattribute__") is None:
        raw = find_in_mro(owner.cls.__mro__, name)[1]
        getter = raw.fget if issubclass(type(raw), property) else None
    frame.expects(getter, Attribute(sys.version_info < (3, 13) if null else None))
    return vm.getattr(owner, name)


@opcode("LOAD_ATTR")
def load_attr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an object, and pushes an attribute; of a method that is called at once, the function and the object."""
    value = read_attribute(vm, frame, frame.pop(), ins.argval, bool(ins.flag & 1))
    if not ins.flag & 1:
        frame.push(value)
    elif sys.version_info < (3, 13):
        frame.push(MISSING)
        frame.push(value)
    else:
        frame.push(value)
        frame.push(MISSING)


@opcode("LOAD_METHOD")
def load_method(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an object, and pushes a method's function and the object, or a plain attribute."""
    value = read_attribute(vm, frame, frame.pop(), ins.argval, True)
    frame.push(MISSING)
    frame.push(value)


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops ``super``, a class and an object, and pushes the attribute that comes behind that class."""
    owner, cls, function = frame.pop(), frame.pop(), frame.pop()
    if function.real() is super:
        value = SuperValue(cls.obj, owner).getattr(vm, ins.argval)
    else:
        value = vm.getattr(vm.call(function, [cls, owner] if ins.flag & 2 else [], {}), ins.argval)
    if ins.flag & 1 and sys.version_info < (3, 13):
        frame.push(MISSING)
    frame.push(value)
    if ins.flag & 1 and sys.version_info >= (3, 13):
        frame.push(MISSING)


@opcode("STORE_ATTR")
def store_attr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an object and a value, which becomes its attribute."""
    owner = frame.pop()
    setter = method_of(owner, "__setattr__")
    if setter is None and isinstance(owner, ObjectValue):
        raw = find_in_mro(owner.cls.__mro__, ins.argval)[1]
        setter = raw.fset if issubclass(type(raw), property) else None
    frame.expects(setter, dropped)
    vm.setattr(owner, ins.argval, frame.pop())


@opcode("DELETE_ATTR")
def delete_attr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops an object, whose attribute is deleted."""
    frame.pop().delattr(vm, ins.argval)


@opcode("BINARY_SUBSCR")
def binary_subscr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a container and a key, and pushes the item."""
    key = frame.pop()
    owner = frame.pop()
    vm.expect(owner, "__getitem__", pushed)
    frame.push(vm.getitem(owner, key))


@opcode("STORE_SUBSCR")
def store_subscr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, a container and a key, where the value goes."""
    key = frame.pop()
    owner = frame.pop()
    vm.expect(owner, "__setitem__", dropped)
    vm.setitem(owner, key, frame.pop())


@opcode("DELETE_SUBSCR")
def delete_subscr(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a container and a key, whose item is deleted."""
    key = frame.pop()
    owner = frame.pop()
    vm.expect(owner, "__delitem__", dropped)
    if owner.special(vm, "__delitem__", [key]) is None:
        vm.refuse_deletion(owner, key)


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a container and two bounds, and pushes the slice."""
    owner, start, stop = frame.popn(3)
    frame.push(vm.getitem(owner, SliceValue(start, stop, ConstantValue(None))))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, a container and two bounds, and assigns to the slice."""
    value, owner, start, stop = frame.popn(4)
    vm.setitem(owner, SliceValue(start, stop, ConstantValue(None)), value)


@opcode("BUILD_SLICE")
def build_slice(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops two or three bounds, and pushes a slice."""
    parts = frame.popn(ins.argval)
    frame.push(SliceValue(*parts, *[ConstantValue(None)] * (3 - len(parts))))
