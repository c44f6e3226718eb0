"""``isinstance`` of what does not tell by its class: by protocols of ``typing.runtime_checkable``, which ask what an object has, and of
weak proxies, which ask another object."""

from __future__ import annotations

import contextlib
import sys
import typing
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...values.base import MISSING, Value
from ...values.objects import ObjectValue, find_in_mro

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def is_real_instance(vm: Interpreter, obj: object, cls: type) -> bool:
    """``isinstance`` of an object of before the call. What a weak proxy stands for is not guarded, and may be gone."""
    if type(obj) in weakref.ProxyTypes and not issubclass(type(obj), cls):
        vm.unsupported("FE018", "isinstance of a weak proxy", "what it stands for is known when the program runs")
    return isinstance(obj, cls)


def is_asked_of_instances(cls: object, kind: type) -> bool:
    """Whether it depends on the attributes of an object of class ``kind`` that it is an instance of ``cls``."""
    if not getattr(cls, "_is_protocol", False) or not getattr(cls, "_is_runtime_protocol", False):
        return False
    return bool(kind.__dictoffset__) or find_in_mro(kind.__mro__, "__getattr__")[1] is not MISSING


def fits(vm: Interpreter, value: Value, protocol: type) -> bool:
    """Whether a value has what a protocol names, in its class or itself, as captured code has left it."""
    with contextlib.suppress(TypeError):  # a class cannot be asked about members that are no methods
        if issubclass(value.python_type(), protocol):
            return True
    if protocol in value.python_type().__mro__:
        return True
    return all(has_member(vm, value, name, callable(getattr(protocol, name, None))) for name in sorted(members(protocol)))


def has_member(vm: Interpreter, value: Value, name: str, is_method: bool) -> bool:
    """Python 3.11 reads the attribute, later ones find it without running the program's code. A method may not be hidden by None."""
    found: Value | None
    if sys.version_info < (3, 12) or not isinstance(value, ObjectValue):
        found = vm.attempt(lambda: vm.getattr(value, name), AttributeError)
        return found is not None and not (is_method and found.real() is None)
    found = value.instance_attribute(vm, name)
    if found is MISSING:
        raw = find_in_mro(value.python_type().__mro__, name)[1]
        return raw is not MISSING and not (is_method and raw is None)
    return not (is_method and found.real() is None)


def members(protocol: type) -> Iterable[str]:
    """The names that a protocol asks for."""
    known: Iterable[str] | None = getattr(protocol, "__protocol_attrs__", None)  # since Python 3.12, and in typing_extensions
    return known if known is not None else typing._get_protocol_attrs(protocol)  # type: ignore[attr-defined]
