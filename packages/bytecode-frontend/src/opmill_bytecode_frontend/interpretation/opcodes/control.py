"""Jumps, loops, calls, returns, generators, making functions."""

from __future__ import annotations

import builtins
import inspect
import sys
from typing import TYPE_CHECKING, Any

from ...breaks.returning import Branched, asked, asks, iterated, pushed, stepped
from ...values.base import MISSING, Raised, class_has, is_iterable
from ...values.classes import ClassValue
from ...values.constant import ConstantValue, is_none
from ...values.functions import BuiltinValue, FunctionValue
from ...values.iterators import STOP, CoroutineValue, GeneratorValue, IteratorValue
from ...values.loops import LoopIterator
from ...values.mapping import mapping_of
from ...values.objects import ObjectValue
from ...values.sequence import ListValue
from ..frame import callee_of
from .registry import opcode

if TYPE_CHECKING:
    from ...bytecode import Instruction
    from ...values.base import Value
    from ..frame import Frame
    from ..machine import Interpreter


class Return(Exception):
    """Not raised: what a handler gives to end the frame with a value."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Yield:
    """What a handler gives to suspend the frame."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")
def jump(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Goes on elsewhere."""
    frame.jump(ins.target)


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and goes on elsewhere where it is false. Which way it goes is a guard, or ends the graph."""
    if not branched(vm, frame, frame.pop()):
        frame.jump(ins.target)


def branched(vm: Interpreter, frame: Frame, value: Value) -> bool:
    """The truth of a value that the instruction branches on."""
    method, rest = asked(bool, value)
    frame.expects(method, method and Branched(rest.builtin, rest.name, value))
    return vm.truth(value)


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and goes on elsewhere where it is true."""
    if branched(vm, frame, frame.pop()):
        frame.jump(ins.target)


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and goes on elsewhere where it is None."""
    if is_none(frame.pop()):
        frame.jump(ins.target)


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and goes on elsewhere where it is not None."""
    if not is_none(frame.pop()):
        frame.jump(ins.target)


@opcode("JUMP_IF_TRUE_OR_POP", until=(3, 11))
def jump_if_true_or_pop(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Goes on elsewhere where the topmost value is true, and drops it where it is not."""
    if branched(vm, frame, frame.stack[-1]):
        frame.jump(ins.target)
    else:
        frame.pop()


@opcode("JUMP_IF_FALSE_OR_POP", until=(3, 11))
def jump_if_false_or_pop(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Goes on elsewhere where the topmost value is false, and drops it where it is not."""
    if not branched(vm, frame, frame.stack[-1]):
        frame.jump(ins.target)
    else:
        frame.pop()


@opcode("GET_ITER")
def get_iter(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes its iterator."""
    value = frame.pop()
    vm.expect(value, "__iter__", iterated)
    frame.push(vm.iterate(value))


@opcode("FOR_ITER")
def for_iter(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes the next item of the iterator on the stack, or goes on behind the loop."""
    vm.expect(frame.stack[-1], "__next__", stepped)
    iterator = frame.stack[-1]
    item = iterator.unread(vm) if type(iterator) is LoopIterator and frame.stores() else vm.next(iterator)
    if item is not STOP:
        frame.push(item)
        return
    if sys.version_info < (3, 12):
        frame.pop()
        frame.jump(ins.target)
    elif sys.version_info < (3, 13):
        frame.pop()
        frame.jump(ins.target)
        frame.pc += 1  # the target is END_FOR, which pops what was not pushed
    else:
        frame.jump(ins.target)
        frame.pc += 1  # END_FOR; then POP_TOP takes the iterator


@opcode("RETURN_VALUE")
def return_value(vm: Interpreter, frame: Frame, ins: Instruction) -> Return:
    """Ends the frame with the value popped."""
    return Return(frame.pop())


@opcode("RETURN_CONST", since=(3, 12))
def return_const(vm: Interpreter, frame: Frame, ins: Instruction) -> Return:
    """Ends the frame with a constant."""
    return Return(vm.fresh(ins.argval))


@opcode("RETURN_GENERATOR")
def return_generator(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """What begins a generator: pushes the value that the next instruction drops."""
    frame.push(ConstantValue(None))  # popped by the POP_TOP that follows


@opcode("YIELD_VALUE")
def yield_value(vm: Interpreter, frame: Frame, ins: Instruction) -> Yield:
    """Suspends the frame with the value popped."""
    return Yield(frame.pop())


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes what ``yield from`` asks for items."""
    frame.push(vm.iterate(frame.pop()))


@opcode("SEND")
def send(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Sends the value popped to the iterator below it, and pushes what that gives, or goes on behind."""
    value = frame.pop()
    receiver = frame.stack[-1]
    if isinstance(receiver, GeneratorValue):
        item = receiver.step(vm, sent=None if is_none(value) else value)
        returned = receiver.returned if item is STOP and receiver.returned is not MISSING else ConstantValue(None)
    else:
        item, returned = send_to(vm, receiver, value)
    if item is not STOP:
        frame.push(item)
        return
    if sys.version_info < (3, 12):
        frame.stack[-1] = returned
    else:
        frame.push(returned)
    frame.jump(ins.target)


def send_to(vm: Interpreter, receiver: Value, value: Value) -> tuple[Value, Any]:
    """(next item, None), or (STOP, the value that the iterator returned)."""
    if isinstance(receiver, IteratorValue) and is_none(value):
        return receiver.next(vm), ConstantValue(None)
    handled = vm.handled
    try:
        return vm.call(vm.getattr(receiver, "__next__"), [], {}) if is_none(value) else vm.call(
            vm.getattr(receiver, "send"), [value], {}
        ), None
    except Raised as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        vm.handled = handled
        return STOP, vm.getattr(raised.value, "value")


def throw_into(vm: Interpreter, frame: Frame, inner: Any, exc: Value) -> tuple[Value | None, Value | None]:
    """An exception thrown into a generator that delegates to ``inner`` (PEP 380): (item that inner yields, None), or (None, exception
    to be raised in the generator, None where the delegation is over and the generator goes on after it)."""
    handled, leaves = vm.handled, issubclass(exc.python_type(), GeneratorExit)
    method = vm.attempt(lambda: vm.getattr(inner, "close" if leaves else "throw"), AttributeError)
    if method is None:
        return None, exc
    try:
        item = (
            inner.step(vm, thrown=exc) if isinstance(inner, GeneratorValue) and not leaves else vm.call(method, [] if leaves else [exc], {})
        )
        if leaves:
            return None, exc
        if item is not STOP:
            return item, None
        returned = inner.returned
    except Raised as raised:
        vm.handled = handled
        if leaves or not issubclass(raised.value.python_type(), StopIteration):
            return None, raised.value
        returned = vm.getattr(raised.value, "value")
    if sys.version_info >= (3, 12):
        return None, vm.new_exception(StopIteration, [returned])  # CLEANUP_THROW takes it
    frame.stack[-1] = returned
    frame.jump(frame.prepared.instructions[frame.pc - 2].target)
    return None, None


@opcode("END_SEND", since=(3, 12))
def end_send(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a result and the iterator below it, and pushes the result."""
    value = frame.pop()
    frame.stack[-1] = value


@opcode("GET_AWAITABLE")
def get_awaitable(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a value, and pushes what ``await`` asks for items."""
    value = frame.pop()
    based = isinstance(value, GeneratorValue) and value.frame.code.co_flags & inspect.CO_ITERABLE_COROUTINE
    if based or isinstance(value, CoroutineValue):
        frame.push(value)
        return
    if not class_has(vm, value, "__await__"):
        vm.throw(TypeError, f"object {value.python_type().__name__} can't be used in 'await' expression")
    found = value.special(vm, "__await__", []) if isinstance(value, ObjectValue) else None
    if found is None:
        vm.unsupported("FE060", "asynchronous code")
    if isinstance(found, CoroutineValue):
        vm.throw(TypeError, "__await__() returned a coroutine")
    if not isinstance(found, (IteratorValue, ObjectValue)):
        vm.throw(TypeError, f"__await__() returned non-iterator of type '{found.python_type().__name__}'")
    frame.push(found)


@opcode("ASYNC_GEN_WRAP", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR")
def asynchronous(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Refuses what only asynchronous code has (FE060)."""
    vm.unsupported("FE060", "asynchronous code")


@opcode("KW_NAMES", until=(3, 12))
def kw_names(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Notes the names of keywords for the call that follows."""
    frame.kwnames = ins.argval


@opcode("CALL")
def call(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops arguments and function, and pushes the result."""
    names, frame.kwnames = frame.kwnames, ()
    do_call(vm, frame, ins.argval or 0, names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops names of keywords, arguments and function, and pushes the result."""
    names = vm.plain(frame.pop())
    do_call(vm, frame, ins.argval or 0, names)


def do_call(vm: Interpreter, frame: Frame, count: int, names: tuple[str, ...]) -> None:
    """Calls what stands below ``count`` arguments on the stack, the last of them by ``names``, and pushes the result."""
    args = frame.popn(count)
    second = frame.pop()
    function = callee_of(frame.pop(), second, args)
    kwargs = {}
    if names:
        split = len(args) - len(names)
        kwargs = dict(zip(names, args[split:]))
        args = args[:split]
    if len(args) == 1 and not kwargs and isinstance(function, (BuiltinValue, ClassValue)) and asks(function.real()):
        frame.expects(*asked(function.real(), args[0]))
    else:
        frame.expects(function.callee(), pushed)
    frame.push(vm.call(function, args, kwargs))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Calls with a sequence and a mapping of arguments (``f(*args, **kwargs)``)."""
    kwargs = {}
    if (ins.argval or 0) & 1:
        mapping = mapping_of(frame.pop())
        if mapping is None:
            raise vm.unsupported("FE061", "** of something other than a dict")
        for key, value in zip(mapping.key_values(vm), mapping.all_values(vm)):
            kwargs[key.constant()] = value
        if not all(isinstance(key, str) for key in kwargs):
            vm.throw(TypeError, "keywords must be strings")
    given = frame.pop()
    if not is_iterable(vm, given):
        vm.unsupported("FE061", f"* of {given.describe()}", "it is not iterable")
    args = vm.unpack(given, sized=True)
    second = frame.pop()
    first = frame.stack[-1] if frame.stack else None
    if sys.version_info >= (3, 13):
        frame.pop()
        function = first
        if second is not MISSING:
            args.insert(0, second)
    else:
        function = second
        if first is MISSING:
            frame.pop()
    frame.expects(function.callee(), pushed)
    frame.push(vm.call(function, list(args), kwargs))


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def call_intrinsic_1(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Calls one of the functions of the interpreter itself, which it knows by number."""
    number = ins.argval
    if number == 3:  # stopiteration_error
        return
    if number == 5:  # unary positive
        frame.push(vm.unary("__pos__", frame.pop()))
    elif number == 6:  # list to tuple
        from .containers import list_to_tuple

        list_to_tuple(vm, frame, ins)
    else:
        vm.unsupported("FE062", f"intrinsic {number}")


@opcode("MAKE_FUNCTION")
def make_function(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops code and what belongs to it, and pushes the function."""
    code = frame.pop().constant()
    flags = (ins.argval or 0) if sys.version_info < (3, 13) else 0
    closure = tuple(frame.pop().items) if flags & 8 else ()
    annotations = frame.pop() if flags & 4 else None
    kwdefaults = {k.constant(): v for k, v in frame.pop().items.values()} if flags & 2 else {}
    defaults = list(frame.pop().items) if flags & 1 else []
    frame.push(FunctionValue(code, frame.globals, code.co_name, code.co_qualname, defaults, kwdefaults, closure, annotations=annotations))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pops a function and its defaults, annotations or cells, and pushes it with these."""
    function = frame.pop()
    value = frame.pop()
    if ins.argval == 8:
        function.closure = tuple(value.items)
    elif ins.argval == 2:
        function.kwdefaults = {k.constant(): v for k, v in value.items.values()}
    elif ins.argval == 1:
        function.defaults = list(value.items)
    elif ins.argval == 4:
        function.annotations = value
    frame.push(function)


@opcode("LOAD_BUILD_CLASS")
def load_build_class(vm: Interpreter, frame: Frame, ins: Instruction) -> None:
    """Pushes what makes classes."""
    frame.push(vm.wrap(builtins.__build_class__))


__all__ = ["IteratorValue", "ListValue", "Raised", "Return", "Yield", "throw_into"]
