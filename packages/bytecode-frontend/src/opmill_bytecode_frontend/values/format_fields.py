"""``"{0.shape[0]:>4} {name!r}".format(x, name=...)`` where not all is known at capture: field by field, as f-strings are."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from opmill_guards.source import Pinned

from .base import Machine, Value
from .made_texts import joined, made_text

CONVERSIONS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}
DEEPEST = 2
"""How deep Python looks for fields in the formats of fields."""
_split = import_module("_string").formatter_field_name_split


def by_fields(vm: Machine, template: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The text; None for a template that Python refuses, or that names what there is not: the errors are Python's to tell."""
    return Fields(vm, args, kwargs).text(template, DEEPEST)


class Fields:
    """What the fields of a template name: arguments by place, counted on where the template does not, and by name."""

    def __init__(self, vm: Machine, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
        self.vm, self.args, self.kwargs, self.counted = vm, args, kwargs, 0
        self.numbered: set[bool] = set()
        """Whether the template counts the fields itself, and whether it does not: Python refuses both in one."""

    def text(self, template: str, deep: int) -> Value | None:
        """The fields one after the other, each made when the ones before it are."""
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError:
            return None
        made: list[Value] = []
        for literal, name, spec, conversion in parts:
            if literal:
                made.append(self.vm.fresh(literal))
            if name is None:
                continue
            value = self.named(name)
            if value is None or (conversion and conversion not in CONVERSIONS):
                return None
            if conversion:
                value = self.call(CONVERSIONS[conversion], [value])
            form = self.text(spec or "", deep - 1) if deep else None
            if form is None:
                return None
            made.append(self.call(format, [value, form]))
        given = [self.vm.fresh(""), *made]
        return made_text(joined, given) if any(part.told_later for part in made) else self.vm.fresh("".join(map(self.vm.plain, made)))

    def named(self, name: str) -> Value | None:
        """The value that a field names: an argument, or what attributes and items lead to from there."""
        first, steps = _split(name)
        if first == "" or isinstance(first, int):
            self.numbered.add(first != "")
            place = self.counted if first == "" else first
            self.counted += 1
            found = self.args[place] if place < len(self.args) and len(self.numbered) == 1 else None
        else:
            found = self.kwargs.get(first)
        if found is None:
            return None
        for is_attribute, step in steps:
            found = self.vm.getattr(found, step) if is_attribute else self.vm.getitem(found, self.vm.fresh(step))
        return found

    def call(self, function: Callable[..., str], args: list[Value]) -> Value:
        """A builtin function of values."""
        return self.vm.call(self.vm.wrap(function, Pinned(function, function.__name__)), args, {})


__all__ = ["by_fields"]
