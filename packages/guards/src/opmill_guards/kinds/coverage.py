"""Which values cannot change without a watched dictionary or class changing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..guard import Absent, DictKeys, Equals, Guard, Is, Length, TypeIs
from ..source import Attr, InstanceDict, Item, Pinned, Source, TypeOf

TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HEAP_TYPE = 1 << 9
_GENERIC: Any = object.__dict__["__getattribute__"]


class Uncovered(Exception):
    """The value may change without leaving evidence."""


def _class_attribute(type_: type, name: str) -> tuple[bool, Any]:
    for base in type_.__mro__:
        if name in base.__dict__:
            return True, base.__dict__[name]
    return False, None


class Coverage:
    """What is implied by the evidence on ``modules``; remembers in ``containers`` which types that relied on."""

    def __init__(self, modules: tuple[tuple[Source, Any], ...], module_getattr: Any) -> None:
        self._modules = dict(modules)
        self._ids = {id(module) for _, module in modules}
        self._getattr = module_getattr
        self._memo: dict[Source, Any] = {}
        self._watched: dict[int, Any] = {}
        self.containers: dict[Source, type] = {}
        for _, module in modules:
            own = vars(module)
            for table in (own, *(own.get(name) for name in TABLES + HOOKS)):
                if isinstance(table, dict):
                    self._watched[id(table)] = table

    def is_module(self, value: Any) -> bool:
        return id(value) in self._ids

    def value(self, source: Source) -> Any:
        """The value of a covered source; raises :class:`Uncovered`."""
        if source in self._modules:
            return self._modules[source]
        if source not in self._memo:
            self._memo[source] = self.derived(source)
        return self._memo[source]

    def derived(self, source: Source) -> Any:
        """The same, by the last step of the path alone: a module counts only where it is reached from another one."""
        step = _STEPS.get(type(source))
        if step is None:
            raise Uncovered
        return step(self, source)

    def covers(self, guard: Guard) -> bool:
        """Whether this guard, once true, stays true as long as nothing watched changes."""
        rule = _GUARDS.get(type(guard))
        try:
            return rule is not None and rule(self, guard, self.value(guard.source))  # type: ignore[union-attr]
        except Uncovered:
            return False

    def _module_of(self, source: Source) -> Any:
        module = self.value(source)
        if not self.is_module(module):
            raise Uncovered
        return module

    def _container(self, source: Source) -> Any:
        container = self.value(source)
        exact = type(container)
        if not (id(container) in self._watched or exact is tuple):
            raise Uncovered
        self.containers[source] = exact
        return container

    def _attr(self, source: Attr) -> Any:
        module = self._module_of(source.base)
        exact, own, name = type(module), vars(module), source.name
        on_class, attribute = _class_attribute(exact, name)
        if _class_attribute(exact, "__getattribute__")[1] is not _GENERIC or (on_class and hasattr(type(attribute), "__set__")):
            raise Uncovered
        if name in own:
            return own[name]
        if on_class:
            if hasattr(type(attribute), "__get__"):
                raise Uncovered
            return attribute
        if _class_attribute(exact, "__getattr__")[1] is self._getattr is not None:
            for table in TABLES:
                if name in own.get(table, ()):
                    return own[table][name]
        raise Uncovered

    def _instance_dict(self, source: InstanceDict) -> Any:
        return vars(self._module_of(source.base))

    def _item(self, source: Item) -> Any:
        try:
            return self._container(source.base)[source.key]
        except (LookupError, TypeError):
            raise Uncovered from None

    def _type_of(self, source: TypeOf) -> Any:
        return type(self._module_of(source.base))

    def _pinned(self, source: Pinned) -> Any:
        return source.object

    def _immutable(self, guard: Any, value: Any) -> bool:
        return True

    def _type_is(self, guard: TypeIs, value: Any) -> bool:
        return self.is_module(value) or not type(value).__flags__ & _HEAP_TYPE

    def _content(self, guard: Any, value: Any) -> bool:
        return not isinstance(value, OrderedDict) and self._container(guard.source) is value


_STEPS: dict[type, Callable[[Coverage, Any], Any]] = {
    Attr: Coverage._attr,
    InstanceDict: Coverage._instance_dict,
    Item: Coverage._item,
    TypeOf: Coverage._type_of,
    Pinned: Coverage._pinned,
}
_GUARDS: dict[type, Callable[[Coverage, Any, Any], bool]] = {
    Is: Coverage._immutable,
    Equals: Coverage._immutable,
    TypeIs: Coverage._type_is,
    Length: Coverage._content,
    DictKeys: Coverage._content,
    Absent: Coverage._content,
}
