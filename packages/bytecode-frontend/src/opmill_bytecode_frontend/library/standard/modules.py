"""The standard library beyond builtins: collections, weakref, types, sys, and modules whose functions only compute."""

from __future__ import annotations

import collections
import gc
import inspect
import logging
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from opmill_guards.guard import Predicate
from opmill_guards.source import Local, Pinned

from ...interpretation.owners import work_of_package
from ...values.base import MISSING, Value, content, find_in_mro
from ...values.constant import ConstantValue
from ...values.functions import WeakReference
from ...values.objects import ObjectValue
from ...values.sequence import TupleValue
from ..builtins.iteration import each
from ..dispatch import fold
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


@handles(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(vm: Interpreter, mapping: Value, items: Value) -> Value:
    """The inner loop of ``collections.Counter``."""
    cls = mapping.python_type()
    plain = all(find_in_mro(cls.__mro__, name)[1] is vars(dict)[name] for name in ("get", "__setitem__"))
    storage: Any = content(mapping)
    get = None if plain else vm.getattr(mapping, "get")
    for item in each(vm, vm.iterate(items)):
        given = [item, ConstantValue(0)]
        count = vm.binary("+", storage.m_get(vm, *given) if get is None else vm.call(get, given, {}), ConstantValue(1))
        storage.store(vm, item, count) if get is None else vm.setitem(mapping, item, count)
    return NONE


@handles(types.SimpleNamespace)
def simple_namespace(vm: Interpreter, /, **kwargs: Value) -> Value:
    """``types.SimpleNamespace()`` of keywords."""
    made = ObjectValue(types.SimpleNamespace)
    for name, value in kwargs.items():
        made.attrs.store(vm, ConstantValue(name), value)
    return made


@handles(sys.getrefcount, gc.get_referrers, weakref.getweakrefs, weakref.getweakrefcount)
def who_refers(vm: Interpreter, *args: Value) -> Value:
    """A capture refers to what it has met."""
    given = work_of_package(vm.frame) or {"whole": True}
    vm.unsupported("FE011", "a question who refers to an object", "captured code refers to it, too", **given)


@handles(sys.intern)
def intern(vm: Interpreter, text: Value) -> Value:
    """``sys.intern()`` of a text that is known."""
    return fold(vm, sys.intern, [text], {})


@handles(sys.exc_info)
def exc_info(vm: Interpreter) -> Value:
    """``sys.exc_info()`` of the exception that is being handled."""
    if vm.handled is None:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([vm.wrap(vm.handled.python_type()), vm.handled, vm.getattr(vm.handled, "__traceback__")])


@handles(sys.exception)
def exception(vm: Interpreter) -> Value:
    """``sys.exception()``: the exception that is being handled, or None."""
    return NONE if vm.handled is None else vm.handled


#: What is read of a frame that the code behind a break, which is another frame, does not change.
OF_FRAMES, OF_OWN_FRAME = {"f_locals"}, {"f_lineno", "f_lasti"}


@handles(sys._getframe)
def get_frame(vm: Interpreter, depth: Value = ConstantValue(0)) -> Value:
    """A frame on the stack is looked at between graphs, and by the plain function where that shows."""
    code, own = vm.frame.code, isinstance(depth, ConstantValue) and depth.value == 0
    looks = not (OF_FRAMES | OF_OWN_FRAME if own else OF_FRAMES).isdisjoint(code.co_names)
    what, why = "call of sys._getframe", "what runs behind a break has a frame of its own, with other variables"
    return vm.unsupported("FE010", what, why, whole=looks)


@handles(inspect.currentframe)
def current_frame(vm: Interpreter) -> Value:
    """``sys._getframe()``."""
    return get_frame(vm)


@handles(weakref.ref)
def weak_reference(vm: Interpreter, target: Value, callback: Value = NONE) -> Value:
    """``weakref.ref()`` to an object of before the call that is no argument; others are refused (FE018)."""
    if not (isinstance(callback, ConstantValue) and callback.value is None):
        refuse_reference(vm, "a weak reference with a callback", "when it runs depends on the life of objects")
    if target.real() is MISSING:
        refuse_reference(vm, "a weak reference to an object made in captured code", "when that object goes is not seen by a capture")
    if type(target.source) is Local:
        refuse_reference(vm, "a weak reference to an argument", "when that object goes is not seen by a capture")
    try:
        weakref.ref(target.real())
    except TypeError as exc:
        vm.throw_real(exc)
    vm.referred.append(target.real())
    return WeakReference(target)


def refuse_reference(vm: Interpreter, what: str, why: str) -> NoReturn:
    """Refuses (FE018) the whole function: whether the object lives depends on who else holds it."""
    vm.unsupported("FE018", what, why, "the function runs as it is, and what it calls is captured", whole=True)


@handles(weakref.proxy)
def weak_proxy(vm: Interpreter, target: Value, callback: Value = NONE) -> Value:
    """``weakref.proxy()`` is refused (FE018)."""
    return refuse_reference(vm, "a weak proxy", "when its object goes is not seen by a capture")


@named("logging.getLogger", "logging.Manager.getLogger")
def get_logger(vm: Interpreter, *args: Value) -> Value:
    """Loggers are made once and kept: the real one may as well be made now."""
    return vm.wrap(logging.getLogger(*[vm.plain(a) for a in args[-1:] if isinstance(a, ConstantValue)]))


def is_logging(value: Value) -> TypeGuard[ObjectValue]:
    """Whether it is something of before the call that says which messages are wanted."""
    return isinstance(value, ObjectValue) and isinstance(value.real(), (logging.Logger, logging.Manager))


@named("logging.Logger.isEnabledFor")
def is_enabled_for(vm: Interpreter, logger: Value, level: Value) -> Value:
    """``logger.isEnabledFor()``: the answer at capture, guarded."""
    asked, wanted = logger.real(), level.constant()
    if asked is MISSING:
        vm.unsupported("FE010", "a logger made in captured code")
    if any(is_logging(value) and value.attrs.version for _, value in vm.known.values()):
        vm.unsupported("FE010", "Logger.isEnabledFor", "captured code has changed a logger")
    answer = asked.isEnabledFor(wanted)

    def holds(now: object) -> bool:
        return isinstance(now, logging.Logger) and now.isEnabledFor(wanted) == answer

    vm.guard(Predicate(logger.source or Pinned(asked, f"logger {asked.name}"), holds, f"isEnabledFor({wanted}) == {answer}"))
    return ConstantValue(answer)
