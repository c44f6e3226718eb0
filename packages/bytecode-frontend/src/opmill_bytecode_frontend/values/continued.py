"""Generators that go on behind a graph: a capture that ended in the block of a context manager made them, and the next one reads what they
were made of, and runs the rest of them itself."""

from __future__ import annotations

import dis
import functools
from collections.abc import Generator
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, cast

import torch

from ..assumptions.asked import Asked, is_given, new_source
from ..resume import ASK, END, STATE
from .base import Lazy, Machine, Value
from .functions import FunctionValue
from .iterators import STOP, ExternalIterator, GeneratorValue
from .sequence import TupleValue

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter


class ContinuedGenerator(ExternalIterator):
    """Such a generator. It is run to its end, or not at all: the real one cannot be brought to another place."""

    ended = False

    def next(self, vm: Machine) -> Value:
        if self.ended:
            return STOP
        copy = begun_again(cast("Interpreter", vm), self)
        if copy is None or copy.step(vm) is not STOP or copy.returned.python_type() is not type(None):
            return super().next(vm)
        self.ended = True
        vm.effects.calls.append((end, [self], {}))
        return STOP


def begun_again(vm: Interpreter, value: ContinuedGenerator) -> GeneratorValue | None:
    """A generator of captured code that is where the real one is; None where what that was made of is not to be asked for here."""
    recorder = vm.recorder
    elsewhere = torch._C._functorch.get_dynamic_layer_stack_depth() != vm.entry_levels or recorder.inference.mode is not None
    if not is_given(value) or type(value.source).__name__ == "Pinned" or recorder.regions or recorder.devices or elsewhere:
        return None
    parts = made_of(value.obj)
    if parts is None:
        return None
    source = new_source(vm.effects.asked)
    vm.effects.asked.append(Asked(made_of, (value,), {}, source))
    tracked = vm.wrap(parts, source)
    assert isinstance(tracked, TupleValue)
    function, *args = [vm.wrap(each.obj, each.source) if type(each) is Lazy else each for each in tracked.items]
    assert isinstance(function, FunctionValue)
    copy = vm.inline(function, [*args, tracked], {})
    assert isinstance(copy, GeneratorValue)
    copy.step(vm)
    return copy


def made_of(generator: object) -> tuple[object, ...] | None:
    """The function and the arguments that made a generator which has not gone on since; None of others."""
    if not isinstance(generator, GeneratorType) or not is_continued(generator) or not generator.gi_suspended:
        return None
    if generator.gi_frame is None or generator.gi_frame.f_lasti not in first_yield(generator.gi_code):
        return None
    found: tuple[object, ...] = generator.send(ASK)
    return found


def is_continued(obj: object) -> bool:
    """Whether it is a generator that a capture made to go on with another one."""
    return type(obj) is GeneratorType and STATE in obj.gi_code.co_varnames


@functools.lru_cache(maxsize=1024)
def first_yield(code: CodeType) -> tuple[int, ...]:
    """Where it yields first, in bytes, and what comes next: from Python 3.13 on a frame that waits tells that."""
    offsets = [(each.opname, each.offset) for each in dis.get_instructions(code)]
    place = next(k for k, (name, _) in enumerate(offsets) if name == "YIELD_VALUE")
    return tuple(offset for _, offset in offsets[place : place + 2])


def end(generator: Generator[object, object, object]) -> None:
    """Ends a generator whose rest has been run elsewhere."""
    try:
        generator.send(END)
    except StopIteration:
        pass


__all__ = ["ContinuedGenerator", "is_continued"]
