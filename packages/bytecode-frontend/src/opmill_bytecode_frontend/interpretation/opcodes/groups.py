"""``except*``: splitting exception groups and putting together what is raised again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.exceptions import ExceptionObject
from ...values.objects import ObjectValue
from ...values.sequence import ListValue, TupleValue
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ..frame import Frame
    from ..machine import Interpreter


NONE = ConstantValue(None)


@opcode("CHECK_EG_MATCH")
def check_group_match(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """``except* classes``: pops both, pushes the part of the exception that is left and the part that matches, or None for each."""
    wanted = frame.pop()
    exc = frame.pop()
    classes = tuple(v.constant() for v in vm.unpack(wanted)) if isinstance(wanted, TupleValue) else (wanted.constant(),)
    if any(issubclass(c, BaseExceptionGroup) for c in classes):
        vm.throw(TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.")
    matched, rest = split(vm, exc, classes)
    if matched is not None and matched is exc and not is_group(exc):
        matched = group(vm, exc, ConstantValue(""), [matched])
        matched.fields["args"] = TupleValue([ConstantValue(""), TupleValue([exc])])
    frame.push(rest or NONE)
    frame.push(matched or NONE)
    if matched is not None:
        vm.handled = matched


@opcode("PREP_RERAISE_STAR", until=(3, 11))
def prepare_reraise(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """The end of a ``try`` with ``except*``: pops the raised and the original exception, pushes what is to be raised, or None."""
    raised = frame.pop()
    frame.push(reraised(vm, frame.pop(), vm.unpack(raised)))


@opcode("CALL_INTRINSIC_2", since=(3, 12))
def call_intrinsic_2(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """From 3.12 on the end of ``except*``; the intrinsics for type parameters are refused (FE062)."""
    if ins.argval != 1:  # the others make type variables
        vm.unsupported("FE062", f"intrinsic {ins.argval} of two values")
    prepare_reraise(vm, frame, ins)


def is_group(exc: Value) -> bool:
    """Whether an exception is a group of them."""
    return issubclass(exc.python_type(), BaseExceptionGroup)


def members(vm: Interpreter, exc: Value) -> list[Value]:
    """The exceptions that a group holds itself."""
    return vm.unpack(vm.getattr(exc, "exceptions"))


def group(vm: Interpreter, like: Value, message: Value, excs: list[Value]) -> ExceptionObject:
    """A new group, remembered as a part of the exception that it was split from."""
    ordinary = all(issubclass(e.python_type(), Exception) for e in excs)
    made = vm.new_exception(ExceptionGroup if ordinary else BaseExceptionGroup, [message, ListValue(list(excs))])
    made.hold(message, excs)
    made.part_of = origin(like)
    if isinstance(like, ExceptionObject) and is_group(like):
        inherit(vm, made, like)
    return made


def inherit(vm: Interpreter, part: ExceptionObject, whole: ExceptionObject) -> None:
    """What ``split`` and ``subgroup`` give to a part: traceback, links and notes of the whole."""
    part.passages, part.raised_at = list(whole.passages), dict(whole.raised_at)
    part.fields |= {name: whole.read(vm, name) for name in ("__context__", "__cause__", "__traceback__")}
    part.fields["__suppress_context__"] = ConstantValue(True)
    notes = vm.attempt(lambda: vm.getattr(whole, "__notes__"), AttributeError)
    if notes is not None:
        vm.setattr(part, "__notes__", ListValue(list(vm.unpack(notes))))


def origin(exc: Value) -> Value:
    """The exception that a part came from by splitting; itself otherwise."""
    return getattr(exc, "part_of", None) or exc


def split(vm: Interpreter, exc: Value, classes: tuple[type, ...]) -> tuple[Value | None, Value | None]:
    """What of an exception is of the classes, and what is not."""
    if issubclass(exc.python_type(), classes):
        return exc, None
    if not is_group(exc):
        return None, exc
    if exc.python_type() not in (ExceptionGroup, BaseExceptionGroup) or not isinstance(exc, ObjectValue) or exc.source is not None:
        vm.unsupported("FE062", f"except* of a {exc.python_type().__qualname__}", "how it is split is up to it")
    pairs = [split(vm, each, classes) for each in members(vm, exc)]
    parts = [[p for p in side if p is not None] for side in zip(*pairs)]
    message = vm.getattr(exc, "message")
    matched, rest = [group(vm, exc, message, side) if side else None for side in parts]  # anew also where a side has all of them
    return matched, rest


def reraised(vm: Interpreter, original: Value, raised: list[Value]) -> Value:
    """What an ``except*`` statement raises in the end; None where everything was handled."""
    found = [exc for exc in raised if not (isinstance(exc, ConstantValue) and exc.value is None)]
    if not found:
        return NONE
    if not is_group(original):
        return found[0]
    if any(exc.source is not None for exc in (original, *found)):
        vm.unsupported("FE062", "the end of an except* statement behind a graph break", "what was split from what is known to Python alone")
    new = [exc for exc in found if origin(exc) is not original]
    kept = projection(vm, original, [leaf for exc in found if origin(exc) is original for leaf in leaves(vm, exc)])
    if not new:
        return kept or NONE
    return group(vm, NONE, ConstantValue(""), [*new, kept] if kept is not None else new)


def leaves(vm: Interpreter, exc: Value) -> list[Value]:
    """The exceptions in a group that are no groups."""
    return [leaf for each in members(vm, exc) for leaf in leaves(vm, each)] if is_group(exc) else [exc]


def projection(vm: Interpreter, exc: Value, kept: list[Value]) -> Value | None:
    """The part of a group that holds these leaves."""
    if not is_group(exc):
        return exc if any(exc is leaf for leaf in kept) else None
    parts = [part for each in members(vm, exc) if (part := projection(vm, each, kept)) is not None]
    return group(vm, exc, vm.getattr(exc, "message"), parts) if parts else None
