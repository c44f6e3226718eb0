"""Texts that tell numbers which a capture does not assume (``f"loss {loss.item():.3f}"``): made when the graph has run."""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Callable, Sequence
from typing import Hashable, NoReturn

from .base import MISSING, Machine, NotConstant, Value

CONVERSION = re.compile(r"%(\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+)?)?[hlL]?(.)", re.DOTALL)
"""A field of a text that ``%`` formats: its key, width, precision and kind."""
OF_ALL, OF_INTEGERS = "srafFeEgG", "diuxXo"
"""Kinds that take any number, and that take any integer but not all floats; ``c`` does not take all integers."""


class MadeText(Value):
    """What ``function(*args)`` gives, each time anew: texts that are told, returned and kept. Whoever needs to know one ends the graph, or
    assumes the numbers where arguments of the call tell them. ``like``: what it could be."""

    told_later = True

    def __init__(self, function: Callable[..., str], args: Sequence[Value], like: str) -> None:
        self.function, self.args, self.like = function, args, like

    def __repr__(self) -> str:
        return f"MadeText({self.like!r})"

    def python_type(self) -> type:
        return str

    def constant(self) -> str:
        if any(value.told_later and value.symbolic is not True and type(value) is not MadeText for value in self.args):
            raise NotConstant(self.describe())
        return self.function(*[value.constant() for value in self.args])

    def real(self) -> object:
        return MISSING

    def describe(self) -> str:
        return "a text that tells a number which nobody knows yet"

    def as_told(self) -> str:
        return self.like

    def known(self, vm: Machine) -> Value:
        """The text as a constant, which is assumed."""
        try:
            return vm.fresh(self.constant())
        except NotConstant:
            return self.refuse(vm)

    def refuse(self, vm: Machine) -> NoReturn:
        vm.unsupported("FE025", f"use of {self.describe()}", "the graph has not run yet", "decide by the number itself")

    def truth(self, vm: Machine) -> bool:
        return vm.truth(self.known(vm))

    def key(self, vm: Machine) -> Hashable:
        return self.known(vm).key(vm)

    def iterate(self, vm: Machine) -> Value:
        return self.known(vm).iterate(vm)

    def find_method(self, name: str) -> Callable[..., Value] | None:
        return (lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)) if hasattr(str, name) else None

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return told(self, name, args, kwargs) or self.known(vm).method(vm, name, args, kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return told(self, name, args, {}) or self.known(vm).special(vm, name, args)

    def getattr(self, vm: Machine, name: str) -> Value:
        return super().getattr(vm, name) if hasattr(str, name) else self.known(vm).getattr(vm, name)


def percent(template: str, *items: object) -> str:
    """``template % items``."""
    return template % items


def joined(separator: str, *items: str) -> str:
    """``separator.join(items)``."""
    return separator.join(items)


def made_text(function: Callable[..., str], args: Sequence[Value]) -> MadeText | None:
    """The text that the function makes; None where it might raise, or where one of the values is no number or text."""
    try:
        like = function(*[value.as_told() for value in args])
    except Exception:
        return None
    return MadeText(function, args, like)


def told(owner: Value, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> MadeText | None:
    """What a method of a text gives for numbers that are not assumed, where that only tells them; None elsewhere."""
    template = owner.as_told()
    if not isinstance(template, str) or kwargs:
        return None
    alone = name != "__mod__" or args[0].python_type() is not tuple
    given: list[Value] = list(args) if alone else getattr(args[0], "items", [])
    if not all(isinstance(value, Value) for value in given) or not (owner.told_later or any(value.told_later for value in given)):
        return None
    if name == "__add__" and len(given) == 1:
        return made_text(operator.add, [owner, *given]) if given[0].python_type() is str else None
    if owner.told_later:
        return None
    if name == "__mod__" and takes_all(template, given):
        return made_text(percent, [owner, *given])
    if name == "format" and all(is_plain(part) for part in string.Formatter().parse(template)):
        return made_text(str.format, [owner, *given])
    return None


def takes_all(template: str, items: Sequence[Value]) -> bool:
    """Whether ``%`` makes a text of the items whatever numbers they are."""
    fields = [field for field in CONVERSION.finditer(template) if field[4] != "%"]
    if len(fields) != len(items) or any(field[1] or "*" in (field[2], field[3]) for field in fields):
        return False
    pairs = zip((field[4] for field in fields), items)
    return all(not item.told_later or kind in OF_ALL or (kind in OF_INTEGERS and item.python_type() in (int, bool)) for kind, item in pairs)


def is_plain(part: tuple[str, str | None, str | None, str | None]) -> bool:
    """Whether a field of a format is a number or text itself, and its format does not refuse some of them."""
    _, name, spec, _ = part
    return not any(c in (name or "") for c in ".[") and is_plain_format(spec or "")


def is_plain_format(spec: str) -> bool:
    """Whether a format takes all numbers of a type, or none: ``c`` does not take all integers."""
    return "{" not in spec and not spec.endswith("c")


def formatted(value: Value, spec: Value) -> MadeText | None:
    """``format(value, spec)`` of a number that is not assumed; None for others."""
    known = spec.as_told() if value.told_later and not spec.told_later else None
    return made_text(format, [value, spec]) if isinstance(known, str) and is_plain_format(known) else None


__all__ = ["MadeText", "formatted", "joined", "made_text", "told"]
