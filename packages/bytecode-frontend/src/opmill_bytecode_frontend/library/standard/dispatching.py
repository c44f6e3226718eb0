"""``functools.singledispatch``: functions that the program has, and those that captured code makes, by Python's own code."""

from __future__ import annotations

import abc
import functools
import types
import weakref
from typing import TYPE_CHECKING

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.generic_functions import FoundImplementations
from ..registry import handles, receives_function
from .modules import refuse_reference

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


MAKER = functools.singledispatch.__code__
#: Code of the functions that it makes.
INSIDE = frozenset(each for each in MAKER.co_consts if isinstance(each, types.CodeType))


@receives_function("functools.singledispatch.<locals>.dispatch")
def dispatch(vm: Interpreter, fn: types.FunctionType, cls: Value) -> Value:
    """The implementation for a class: asked of the real registry, which may grow later."""
    wanted = cls.constant()
    registries = [cell.cell_contents for cell in fn.__closure__ or () if isinstance(cell.cell_contents, dict)]
    if any(getattr(changed, "obj", None) is registry for changed in vm.effects.changed for registry in registries):
        vm.unsupported("FE010", f"a call of {fn.__qualname__}", "an implementation was registered in the captured code before")
    try:
        found = fn(wanted)
    except Exception as exc:  # of what is no class
        vm.throw_real(exc)
    vm.guard(Predicate(Pinned(fn, "dispatch"), lambda f: f(wanted) is found, f"({wanted.__name__}) is {found.__name__}"))
    return vm.wrap(found, Pinned(found, found.__name__))


@handles(weakref.WeakKeyDictionary)
def weak_keys(vm: Interpreter, mapping: Value = ConstantValue(None)) -> Value:
    """``weakref.WeakKeyDictionary()`` in which a generic function keeps what it has found; others are refused (FE018)."""
    if vm.frame.code is not MAKER:
        refuse_reference(vm, "a weak dictionary made in captured code", "when its keys go is not seen by a capture")
    return FoundImplementations()


@handles(abc.get_cache_token)
def cache_token(vm: Interpreter) -> Value:
    """The number of registrations with abstract classes. Generic functions compare it with what it was, to forget what they have found:
    one that captured code makes has found nothing yet where it leaves that, and whether a class is registered is assumed where it is
    asked."""
    if vm.frame.code is not MAKER and vm.frame.code not in INSIDE:
        vm.unsupported("FE010", "call of abc.get_cache_token", "it counts what the process has registered")
    return ConstantValue(abc.get_cache_token())
