"""Raising, handlers, with-blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.returning import pushed
from ...values.base import MISSING, Raised, name_in_c
from ...values.classes import ClassValue
from ...values.constant import ConstantValue, is_none
from ...values.mapping import DictValue
from ...values.objects import bind_descriptor, find_in_mro
from ...values.sequence import TupleValue
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ...values.base import Value
    from ..frame import Frame
    from ..machine import Interpreter


@opcode("RAISE_VARARGS")
def raise_varargs(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Raises what is popped, perhaps from a cause, or again what is being handled."""
    cause = frame.pop() if ins.argval == 2 else None
    if not ins.argval:
        if vm.handled is None:
            vm.throw(RuntimeError, "No active exception to reraise")
        raise Raised(vm.handled)
    exc = instantiated(vm, frame.pop(), "exceptions")
    if cause is not None:
        vm.setattr(exc, "__cause__", cause if is_none(cause) else instantiated(vm, cause, "exception causes"))
    raise Raised(exc.raised_while(vm, vm.handled))


def instantiated(vm: Interpreter, given: Value, role: str) -> Value:
    """The exception that a raise statement is given, as itself or by its class."""
    if not isinstance(given, ClassValue) or not issubclass(given.obj, BaseException):
        if not issubclass(given.python_type(), BaseException):
            vm.throw(TypeError, f"{role} must derive from BaseException")
        return given
    made = vm.call(given, [], {})
    if not issubclass(made.python_type(), BaseException):
        vm.throw(TypeError, f"calling {given.obj!r} should have returned an instance of BaseException, not {made.python_type()!r}")
    return made


@opcode("PUSH_EXC_INFO")
def push_exc_info(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Begins a handler: the exception is the one being handled, the one before it lies below."""
    exc = frame.pop()
    frame.push(vm.handled if vm.handled is not frame.outer else ConstantValue(None))
    frame.push(exc)
    vm.handled = exc


@opcode("POP_EXCEPT")
def pop_except(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Ends a handler: what was being handled before is so again."""
    previous = frame.pop()
    vm.handled = frame.outer if isinstance(previous, ConstantValue) else previous


@opcode("CHECK_EXC_MATCH")
def check_exc_match(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops the classes of an except clause, and pushes whether the exception is of one of these."""
    wanted = frame.pop()
    classes = [getattr(v, "obj", None) for v in (vm.unpack(wanted) if isinstance(wanted, TupleValue) else [wanted])]
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        vm.throw(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    mro = frame.stack[-1].python_type().__mro__  # no __subclasscheck__ is asked
    frame.push(ConstantValue(any(cls in mro for cls in classes)))


@opcode("RERAISE")
def reraise(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Raises the exception popped again, which adds nothing to its traceback."""
    raise Raised(frame.pop())


def special_method(vm: Interpreter, value: Value, name: str) -> Value:
    """A method of the context manager protocol, bound to the value; TypeError of the program where its class has none."""
    cls = value.python_type()
    owner, raw = find_in_mro(cls.__mro__, name)
    vm.guard_lookup(cls, owner, name)
    if raw is MISSING:
        message = f"{name_in_c(cls)!r} object does not support the context manager protocol"
        vm.throw(TypeError, message + (" (missed __exit__ method)" if name == "__exit__" else ""))
    if value.find_method(name) is not None:
        return vm.getattr(value, name)
    vm.guard_class(owner, name, raw)
    return bind_descriptor(vm, owner, name, raw, value, vm.wrap(cls))


@opcode("BEFORE_WITH")
def before_with(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a manager, enters it, and pushes how it is left and what it gave."""
    manager = frame.pop()
    enter = special_method(vm, manager, "__enter__")
    frame.push(special_method(vm, manager, "__exit__"))
    vm.expect(manager, "__enter__", pushed)
    frame.push(vm.call(enter, [], {}))


@opcode("WITH_EXCEPT_START")
def with_except_start(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Leaves a manager with the exception of its block, and pushes whether it holds that back."""
    exc = frame.stack[-1]
    leave = frame.stack[-4]
    frame.expects(leave.callee(), pushed)
    frame.push(vm.call(leave, [vm.wrap(exc.python_type()), exc, vm.getattr(exc, "__traceback__")], {}))


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Ends a delegation that an exception was thrown into: StopIteration becomes its result."""
    exc = frame.pop()
    frame.popn(2)
    if not issubclass(exc.python_type(), StopIteration):
        raise Raised(exc)
    frame.push(ConstantValue(None))
    frame.push(vm.getattr(exc, "value"))


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Gives the body of a class its table of annotations."""
    if "__annotations__" not in frame.locals:
        frame.locals["__annotations__"] = DictValue({})
