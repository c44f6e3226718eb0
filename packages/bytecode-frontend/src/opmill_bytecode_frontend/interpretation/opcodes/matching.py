"""The match statement."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.mapping import DictValue, mapping_of
from ...values.sequence import ListValue, TupleValue
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ..frame import Frame
    from ..machine import Interpreter


#: Flags of classes: what ``collections.abc`` says of them, which of the two where it says both.
IS_SEQUENCE, IS_MAPPING = 1 << 5, 1 << 6
#: Classes whose only positional pattern is the object itself.
ITSELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@opcode("MATCH_SEQUENCE")
def match_sequence(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes whether the subject is a sequence, in the sense of patterns."""
    frame.push(ConstantValue(bool(frame.stack[-1].python_type().__flags__ & IS_SEQUENCE)))


@opcode("MATCH_MAPPING")
def match_mapping(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes whether the subject is a mapping, in the sense of patterns."""
    frame.push(ConstantValue(bool(frame.stack[-1].python_type().__flags__ & IS_MAPPING)))


@opcode("GET_LEN")
def get_len(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes the length of the subject."""
    frame.push(frame.stack[-1].special(vm, "__len__", []))


@opcode("MATCH_KEYS")
def match_keys(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes the values of the subject's keys, or None where one is missing."""
    keys, subject = frame.stack[-1], frame.stack[-2]
    frame.push(values_at(vm, subject, vm.unpack(keys)))


def values_at(vm: Interpreter, subject: Value, keys: list[Value]) -> Value:
    """A tuple of what the mapping holds for the keys, or None when one is absent. Nothing is made by ``__missing__``."""
    mapping = mapping_of(subject)
    found: list[Value] = []
    seen: set[object] = set()
    for key in keys:
        hashed = vm.key(key)
        if hashed in seen:
            vm.throw(ValueError, f"mapping pattern checks duplicate key ({vm.plain(key)!r})")
        seen.add(hashed)
        if mapping is not None:
            if not vm.contains(mapping, key):
                return ConstantValue(None)
            found.append(DictValue.m___getitem__(mapping, vm, key))
            continue
        absent = ListValue([])
        value = vm.call(vm.getattr(subject, "get"), [key, absent], {})
        if value is absent:
            return ConstantValue(None)
        found.append(value)
    return TupleValue(found)


@opcode("MATCH_CLASS")
def match_class(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops names and a class, and pushes the subject's attributes that a pattern names, or None."""
    names = vm.plain(frame.pop())
    cls = frame.pop()
    subject = frame.pop()
    parts = class_parts(vm, subject, cls, ins.argval or 0, names)
    frame.push(ConstantValue(None) if parts is None else TupleValue(parts))


def class_parts(vm: Interpreter, subject: Value, cls: Value, positional: int, names: tuple[str, ...]) -> list[Value] | None:
    """The values of the sub-patterns of ``cls(...)``, or None when the subject does not match."""
    plain: object = getattr(cls, "obj", None)
    if not isinstance(plain, type):
        vm.throw(TypeError, "called match pattern must be a class")
    if not vm.truth(vm.call(vm.wrap(isinstance), [subject, cls], {})):
        return None
    wanted = list(names)
    parts: list[Value] = []
    if positional:
        found = vm.attempt(lambda: vm.getattr(cls, "__match_args__"), AttributeError)
        allowed = None if found is None else vm.plain(found)
        if allowed is not None and type(allowed) is not tuple:
            vm.throw(TypeError, f"{plain.__name__}.__match_args__ must be a tuple (got {type(allowed).__name__})")
        if allowed is None and issubclass(plain, ITSELF):
            if positional > 1:
                vm.throw(TypeError, f"{plain.__name__}() accepts 1 positional sub-pattern ({positional} given)")
            parts.append(subject)
        else:
            allowed = allowed or ()
            if positional > len(allowed):
                vm.throw(
                    TypeError,
                    f"{plain.__name__}() accepts {len(allowed)} positional sub-pattern{'s' * (len(allowed) != 1)} ({positional} given)",
                )
            wanted = [*allowed[:positional], *names]
    for i, name in enumerate(wanted):
        if type(name) is not str:
            vm.throw(TypeError, f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in wanted[:i]:
            vm.throw(TypeError, f"{plain.__name__}() got multiple sub-patterns for attribute {name!r}")
        value = vm.attempt(functools.partial(vm.getattr, subject, name), AttributeError)
        if value is None:
            return None
        parts.append(value)
    return parts
