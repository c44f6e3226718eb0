"""Lives of objects that a program can see the end of: ``__del__``, weak references.

A capture holds what it looks at, and a call of C holds its arguments, so that such an object would live longer than the program says. A
function that makes one, or a weak reference to one, therefore runs as it is from its beginning (`Unsupported.whole`), and a resume function
takes such an argument out of a list that nobody else has (`resume.taking`)."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from opmill_guards.weak import WeakObject

from ..bytecode import decode, uses_and_kills
from ..errors import Unsupported
from ..resume import ParameterKind, Resume
from ..values.base import MISSING, Lazy, Value, find_in_mro
from ..values.functions import CellValue
from ..values.growing_lists import GrowingList
from ..values.iterators import ExternalIterator, GeneratorValue, lets_through
from ..values.mapping import DictValue, SetValue
from ..values.sequence import SequenceValue

if TYPE_CHECKING:
    from ..interpretation.frame import Frame
    from ..interpretation.machine import Interpreter


#: Objects that weak references of torch, of Python's library and of guards point to, and whose lives seldom tell.
LASTING: tuple[type, ...] = (torch.Tensor, torch.nn.Module, type, types.FunctionType, types.ModuleType)
if torch.distributed.is_available():
    LASTING += (torch.distributed.ProcessGroup, torch.distributed.device_mesh.DeviceMesh)  # plans of redistribution are kept by mesh
MOST_ITEMS = 100
COUNTED = (int, float, complex, str, bytes, bool, type(None), tuple, list, dict)
#: Builtin types whose objects tell when they go: what is behind a view may change its size, of what nobody awaited Python warns, a callback
#: is forgotten.
TELLING = (memoryview, types.CoroutineType, types.AsyncGeneratorType, weakref.ref)


def is_mortal(obj: object) -> bool:
    """Whether the program would see when an object dies: its class has a ``__del__`` in Python, there are weak references to it, or it is
    one of Python's own that tell."""
    kind = type(obj)
    if kind in COUNTED:
        return False
    if issubclass(kind, TELLING):
        return not isinstance(obj, weakref.ref) or obj.__callback__ is not None
    if type(find_in_mro(kind.__mro__, "__del__")[1]) is types.FunctionType:
        return True
    return not issubclass(kind, LASTING) and bool(kind.__weakrefoffset__) and is_referred_to(obj)


def is_referred_to(obj: object) -> bool:
    """Whether the program has weak references to an object: those of guards are none of its own."""
    return any(type(each) is not WeakObject for each in weakref.getweakrefs(obj))


def holds_mortal(obj: Any, depth: int = 3) -> bool:
    """Whether it is a mortal object, or a tuple or list with one, perhaps in another."""
    if type(obj) in (tuple, list):
        return depth > 0 and any(holds_mortal(item, depth - 1) for item in obj[:MOST_ITEMS])
    return is_mortal(obj)


def keeps_mortal(function: types.FunctionType) -> bool:
    """Whether a function has a mortal object in one of its cells: whoever keeps the function keeps that."""
    return any(holds_mortal(obj) for cell in function.__closure__ or () for obj in gc.get_referents(cell))


def is_suspended(obj: object, depth: int = 4) -> bool:
    """Whether it is a generator that is in the midst of something, an iterator over one, or a list that holds one: when it is dropped its
    ``finally`` blocks run, and what its variables hold dies."""
    if type(obj) is types.GeneratorType:
        return obj.gi_suspended and obj.gi_frame is not None and obj.gi_frame.f_lasti >= 0
    if depth == 0:
        return False
    if type(obj) not in (tuple, list) and not is_builtin_iterator(type(obj)):
        return False
    # asked of the collector, for iterators of C keep tuples whose items are not there yet
    return any(is_suspended(each, depth - 1) for each in gc.get_referents(obj)[:MOST_ITEMS])


def is_builtin_iterator(kind: type) -> bool:
    """Whether objects of a class are iterators of Python's own, over others perhaps."""
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


def ends_when_dropped(obj: object, depth: int = 4) -> bool:
    """Whether something runs when nobody has an iterator any more: the end of a try or with block of a generator, or what the end of
    an object is told to."""
    kind = type(obj)
    if type(obj) is types.GeneratorType:
        if not is_suspended(obj):
            return False
        if is_guarded(obj):
            return True
    elif not (kind is tuple or is_builtin_iterator(kind)):
        return is_mortal(obj)
    return depth > 0 and any(ends_when_dropped(each, depth - 1) for each in gc.get_referents(obj))


def is_guarded(generator: types.GeneratorType[object, object, object]) -> bool:
    """Whether a suspended generator is in a try or with block that does something when it is closed."""
    frame, instructions = generator.gi_frame, decode(generator.gi_code).instructions
    if frame is None:
        return False
    handler = next((ins.handler for ins in instructions if ins.offset == frame.f_lasti), None)
    if handler is None or handler.target.opname == "CALL_INTRINSIC_1":
        return False
    return not lets_through(instructions, frame.f_globals, handler.target)


def refuse_ending(value: object) -> None:
    """Ends the graph where a value is taken from the stack that somebody else made: captured code has it until it ends."""
    if isinstance(value, (Lazy, ExternalIterator)) and ends_when_dropped(value.obj):
        why = "its finally and with blocks run when it is dropped, and captured code has it until it ends"
        raise Unsupported("FE076", f"a {type(value.obj).__name__} that is dropped half-way", why, whole=True)


def content(arg: object) -> object:
    """What an argument of a resume function stands for: a variable that functions share comes as its cell."""
    return next(iter(gc.get_referents(arg)), None) if type(arg) is types.CellType else arg


def ends_inside(resume: Resume, args: tuple[object, ...]) -> bool:
    """Whether a mortal object that a resume function is given may die before the function ends: one that its code takes from the stack, or
    whose variable it assigns or deletes; or whether several generators may end, which do in the order of the frame's variables, not of
    the arguments."""
    if sum(is_suspended(arg) for arg in map(content, args)) > 1:
        return True
    if not any(holds_mortal(arg) or is_suspended(arg) for arg in args):
        return False
    killed = {name for ins in decode(resume.code).instructions for name in uses_and_kills(ins)[1]}
    for parameter, arg in zip(resume.parameters, args):
        on_stack = parameter.kind is ParameterKind.STACK
        if (holds_mortal(arg) and (on_stack or parameter.name in killed)) or (
            is_suspended(arg) and not on_stack and parameter.name in killed
        ):
            return True
    return False


def refuse_dropping(vm: Interpreter) -> None:
    """Raises Unsupported where what the captured code changes lets go of a mortal object of before: that comes after the graph, and after
    other changes."""
    told = {id(obj) for obj in vm.referred}
    for value in vm.effects.changed:
        if isinstance(value, GrowingList) and value.only_grew:
            continue
        kept = {id(obj) for obj in now(value)}
        for obj in before(value):
            if (id(obj) in told or is_mortal(obj)) and id(obj) not in kept:
                refuse(type(obj).__qualname__)
    for namespace, name, _new in vm.effects.globals.values():
        obj = namespace.get(name)
        if id(obj) in told or is_mortal(obj):
            refuse(type(obj).__qualname__)


def refuse(name: str) -> None:
    """Ends the graph where the death of an object would show."""
    why = "when it dies tells, and what captured code changes is changed after the graph"
    raise Unsupported("FE018", f"the {name} that a name or a container lets go of", why, whole=True)


def refuse_forgetting(frame: Frame | None) -> None:
    """An exception that came up in a frame knows what the frame's variables hold. What stands for the frame lets go of all that when it is
    left, so that a generator would run the end of its try and with blocks before anybody drops the exception."""
    while frame is not None:
        for value in [*frame.locals.values(), *frame.cells.values()]:
            held = value.content if isinstance(value, CellValue) else value
            for each in held.looked_at() if isinstance(held, SequenceValue) else [held]:
                if isinstance(each, GeneratorValue) and each.frame.pc > 0 and each.may_be_guarded():
                    why = "an exception knows the frame that has it, and it is closed when that exception goes"
                    raise Unsupported("FE076", f"the generator {each.origin[0].qualname} is held by a traceback", why, whole=True)
        frame = frame.caller


def before(value: Value) -> Iterator[object]:
    """The objects that a changed container or object really holds."""
    obj = getattr(value, "obj", None)
    if isinstance(value, SequenceValue) and isinstance(obj, (list, set)):
        yield from list.__iter__(obj) if isinstance(obj, list) else ()
    elif isinstance(value, DictValue):
        holder = obj if isinstance(obj, dict) else getattr(obj, "__dict__", None)
        if isinstance(holder, dict):
            yield from dict.keys(holder)
            yield from dict.values(holder)
    elif isinstance(value, SetValue) and isinstance(obj, set):
        yield from set.__iter__(obj)


def now(value: Value) -> Iterator[object]:
    """The objects of before the call that it holds in the end."""
    items: list[object] = []
    if isinstance(value, DictValue):
        items = [each for pair in value.items.values() for each in pair]
    elif isinstance(value, SetValue):
        items = list(value.items.values())
    elif isinstance(value, SequenceValue):
        items = list(getattr(value, "items", ()))
    for item in items:
        obj = item.obj if type(item) is Lazy else item.real() if isinstance(item, Value) else MISSING
        if obj is not MISSING:
            yield obj


__all__ = ["ends_inside", "is_mortal", "is_suspended", "refuse_dropping", "refuse_ending", "refuse_forgetting"]
