"""Iterators: over known items, over other iterators (zip, map, enumerate, ...), counters, generators."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .base import MISSING, ExistingObject, Machine, NotConstant, Raised, Value

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from ..interpretation.frame import Frame


_LIST_ITERATOR: type = type(iter([]))

#: What ``next`` of an iterator value gives when it is exhausted.
STOP: Any = type("Stop", (), {"__repr__": lambda self: "STOP"})()


class IteratorValue(Value):
    """Something with ``__next__``. Subclasses give ``next(vm)``: a value or STOP."""

    kind: type = _LIST_ITERATOR

    def python_type(self) -> type:
        return self.kind

    def next(self, vm: Machine) -> Value:
        raise NotImplementedError

    def iterate(self, vm: Machine) -> Value:
        return self

    def truth(self, vm: Machine) -> bool:
        return True

    def m___iter__(self, vm: Machine) -> Value:
        return self

    def m___next__(self, vm: Machine) -> Value:
        result = self.next(vm)
        if result is STOP:
            vm.throw(StopIteration)
        return result

    def remaining(self, vm: Machine) -> list[Value]:
        out = []
        while (item := self.next(vm)) is not STOP:
            out.append(item)
        return out


class ItemsIterator(IteratorValue):
    """Over a list that may grow while it is iterated (as Python's own list iterator does): ``read(i)`` gives item i or STOP."""

    def __init__(
        self,
        read: Callable[[Machine, int], Any],
        kind: type = _LIST_ITERATOR,
        length: Callable[[], int] | None = None,
        owner: Value | None = None,
        walks: tuple[Value, Callable[[], bool]] | None = None,
        maker: Callable[..., object] = iter,
    ) -> None:
        self.read = read
        self.kind = kind
        self.length = length
        self.owner = owner
        """The list or tuple itself, where the iterator stands for one of Python's own over it."""
        self.walks = walks
        """Of an iterator that sees how what it walks over changes: (what was asked for an iterator, whether that is as it was then)."""
        self.maker = maker
        """Which builtin function made it."""
        self.position = 0
        self.finished = False

    def next(self, vm: Machine) -> Value:
        """Once at its end an iterator stays there, also where the list has grown since."""
        result = STOP if self.finished else self.read(vm, self.position)
        if result is not STOP:
            self.position += 1
        self.finished = result is STOP
        return result

    def m___length_hint__(self, vm: Machine) -> Value:
        if self.length is None:
            vm.unsupported("FE020", "length hint of an iterator")
        return vm.fresh(0 if self.finished else max(0, self.length() - self.position))


class PythonIterator(IteratorValue):
    """A composed iterator written as a Python generator over values (zip, map, itertools); ``make(vm)`` starts it.
    ``parts()`` gives the arguments of ``maker``, which is ``kind`` itself or a function of Python, that make the rest of it as it is
    now."""

    def __init__(
        self, make: Callable[[Machine], Iterator[Value]], kind: type, parts: Callable[[], list[Value]] | None = None, maker: object = None
    ) -> None:
        self.make = make
        self.kind = kind
        self.parts = parts
        self.maker = maker or kind
        self.running: Iterator[Value] | None = None
        self.asked = False
        """Whether an item is on its way; or one was when the program raised, after which only Python knows how the iterator goes on."""

    def next(self, vm: Machine) -> Value:
        if self.asked:
            vm.unsupported("FE066", f"the next item of a {self.kind.__name__}", "the program raised in it, or asks it from inside of it")
        if self.running is None:
            self.running = self.make(vm)
        self.asked = True
        item = next(self.running, STOP)
        self.asked = False
        return item


class ExternalIterator(ExistingObject, IteratorValue):
    """An iterator of before the call: taking an item of it changes it, so that only the program itself does that."""

    def constant(self) -> object:
        raise NotConstant("an iterator")

    def describe(self) -> str:
        return f"an existing {type(self.obj).__name__}"

    def next(self, vm: Machine) -> Value:
        vm.unsupported("FE066", f"the next item of {self.describe()}", "the iterator existed before, and would be used up by the capture")

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return super().find_method(name) if name in ("__iter__", "__next__") else None


def lets_through(instructions: Sequence[Instruction], namespace: dict[str, object], target: object) -> bool:
    """Whether the exception handler at ``target`` and those around it do nothing about GeneratorExit: they are for other exceptions, by
    name, and raise it again."""
    at = instructions.index(target)
    while True:
        ins = instructions[at]
        if ins.opname in ("PUSH_EXC_INFO", "COPY", "POP_EXCEPT", "NOP"):
            at += 1
        elif ins.opname == "LOAD_GLOBAL":
            cls = namespace.get(ins.argval, getattr(builtins, ins.argval, None))
            check, jump = instructions[at + 1 : at + 3]
            if (
                not isinstance(cls, type)
                or issubclass(GeneratorExit, cls)
                or check.opname != "CHECK_EXC_MATCH"
                or not jump.opname.endswith("IF_FALSE")
            ):
                return False
            at = instructions.index(jump.target)
        elif ins.opname == "RERAISE":
            if ins.handler is None or ins.handler.target.opname == "CALL_INTRINSIC_1":
                return True
            at = instructions.index(ins.handler.target)
        else:
            return False


class GeneratorValue(IteratorValue):
    """A generator made in captured code: a frame interpreted lazily. ``advance(value or None)`` runs it to its next yield:
    (True, yielded) or (False, returned)."""

    kind: type = type((lambda: (yield))())
    noun = "generator"

    def __init__(self, frame: Frame, advance: Callable[[Frame, Value | None, Value | None], tuple[bool, Value]]) -> None:
        self.frame = frame
        self.advance = advance
        self.finished = False
        self.running = False
        self.returned: Value = MISSING
        self.origin: Any = None
        """The call that made it: (function, arguments, keyword arguments)."""

    def step(self, vm: Machine, sent: Value | None = None, thrown: Value | None = None) -> Value:
        """The next yielded value, or STOP (then ``returned`` holds the return value)."""
        if self.running:
            vm.throw(ValueError, f"{self.noun} already executing")
        if sent is not None and self.frame.pc == 0 and not self.finished and sent.python_type() is not type(None):
            vm.throw(TypeError, f"can't send non-None value to a just-started {self.noun}")
        if self.finished:
            return self.asked_again(vm, thrown)
        self.running = True
        try:
            yielded, value = self.advance(self.frame, sent, thrown)
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
        if yielded:
            return value
        self.finished = True
        self.returned = value
        return STOP

    def asked_again(self, vm: Machine, thrown: Value | None) -> Value:
        """What it gives behind its end."""
        if thrown is not None:
            raise Raised(thrown)
        self.returned = MISSING  # only the first to come to the end is told
        return STOP

    def next(self, vm: Machine) -> Value:
        return self.step(vm)

    def is_guarded(self) -> bool:
        """Whether it is suspended inside of a try or with block: Python runs the end of that when the generator is dropped."""
        if self.finished or self.frame.pc == 0:
            return False
        handler = self.frame.prepared.instructions[self.frame.pc - 1].handler
        # From 3.12 on every generator is inside of a handler that turns StopIteration into RuntimeError.
        if handler is None or handler.target.opname == "CALL_INTRINSIC_1":
            return False
        return not lets_through(self.frame.prepared.instructions, self.frame.globals, handler.target)

    def may_be_guarded(self) -> bool:
        """Whether it is in such a block, or may get into one later."""
        if self.finished:
            return False
        instructions, names = self.frame.prepared.instructions, self.frame.globals
        handlers = {id(ins.handler.target): ins.handler.target for ins in instructions if ins.handler is not None}
        return any(each.opname != "CALL_INTRINSIC_1" and not lets_through(instructions, names, each) for each in handlers.values())

    def getattr(self, vm: Machine, name: str) -> Value:
        if name in ("__name__", "__qualname__") and self.origin is not None:
            return self.origin[0].getattr(vm, name)
        return super().getattr(vm, name)

    def not_stopped(self, vm: Machine, result: Value) -> Value:
        if result is STOP:
            silent = self.returned is MISSING or self.returned.python_type() is type(None)
            vm.throw(StopIteration, *(() if silent else (self.returned,)))
        return result

    def m_send(self, vm: Machine, value: Value) -> Value:
        return self.not_stopped(vm, self.step(vm, sent=value))

    def m___next__(self, vm: Machine) -> Value:
        return self.not_stopped(vm, self.step(vm))

    def m_throw(self, vm: Machine, exc: Value, *rest: Value) -> Value:
        if not issubclass(exc.python_type(), BaseException):  # the older form: a class, perhaps an instance, perhaps a traceback
            given = rest[0] if rest and issubclass(rest[0].python_type(), BaseException) else None
            exc = given if given is not None else vm.call(exc, [v for v in rest[:1] if v.python_type() is not type(None)], {})
        return self.not_stopped(vm, self.step(vm, thrown=exc))

    def m_close(self, vm: Machine) -> Value:
        if not self.finished and self.frame.pc > 0:
            try:
                result = self.step(vm, thrown=vm.new_exception(GeneratorExit, []))
            except Raised as raised:
                if not issubclass(raised.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
            else:
                if result is not STOP:
                    vm.throw(RuntimeError, f"{self.noun} ignored GeneratorExit")
                if sys.version_info >= (3, 13) and self.returned is not MISSING:
                    return self.returned
        self.finished = True
        return vm.fresh(None)


class CoroutineValue(GeneratorValue):
    """What a call of an ``async def`` function gives: as a generator, but that it is awaited, once, and no iterator."""

    kind = types.CoroutineType
    noun = "coroutine"

    def asked_again(self, vm: Machine, thrown: Value | None) -> Value:
        return vm.throw(RuntimeError, "cannot reuse already awaited coroutine")

    def iterate(self, vm: Machine) -> Value:
        return vm.throw(TypeError, "'coroutine' object is not iterable")

    def m___iter__(self, vm: Machine) -> Value:
        return self.iterate(vm)

    def m___next__(self, vm: Machine) -> Value:
        return vm.throw(TypeError, "'coroutine' object is not an iterator")

    def is_never_awaited(self) -> bool:
        """Whether it has not begun: Python warns where it is dropped so."""
        return self.frame.pc == 0 and not self.finished
