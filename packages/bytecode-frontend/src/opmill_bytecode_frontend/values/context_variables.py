"""Context variables: what one holds in the running context is an input, and what is set is set when the graph has run."""

from __future__ import annotations

import contextvars
from contextvars import ContextVar
from typing import Any, Callable

from opmill_guards.guard import Predicate
from opmill_guards.source import ContextValue, Pinned

from .base import Machine, Value
from .functions import BuiltinValue

Call = tuple[Any, list[Value], dict[str, Value]]


class ContextVariable(BuiltinValue):
    """A variable of before the call."""

    obj: ContextVar[object]

    def find_method(self, name: str) -> Callable[..., Value] | None:
        own: dict[str, Callable[..., Value]] = {"get": self.get, "set": self.set, "reset": self.reset}
        return own.get(name) or super().find_method(name)

    def getattr(self, vm: Machine, name: str) -> Value:
        return vm.fresh(self.obj.name) if name == "name" else super().getattr(vm, name)

    def get(self, vm: Machine, default: Value | None = None) -> Value:
        known: Value | None = vm.effects.context.get(id(self.obj))
        if known is not None:
            return known
        source = Pinned(self.obj, self.obj.name)
        if default is not None and is_set(self.obj):  # it comes before the variable's own
            vm.guard(Predicate(source, is_set, "is set"))
        elif default is not None:
            vm.guard(Predicate(source, lambda now: not is_set(now), "is not set"))
            return default
        try:
            return vm.wrap(self.obj.get(), ContextValue(source))
        except LookupError:
            vm.guard(Predicate(source, lambda now: not is_set(now), "is not set"))
            return vm.throw(LookupError, self)

    def set(self, vm: Machine, value: Value) -> Value:
        effects = vm.effects
        made = Token(self, value, effects.context.get(id(self.obj)))
        effects.calls.append(made.setting)
        effects.context[id(self.obj)] = value
        effects.mutations += 1
        return made

    def reset(self, vm: Machine, token: Value) -> Value:
        """What was set and is reset in captured code, with nothing in between that others may see, was never set."""
        calls = vm.effects.calls
        at = next((k for k, call in enumerate(calls) if isinstance(token, Token) and call is token.setting), None)
        if at is None or any(call[0] is not SET or call[1][0] is not self for call in calls[at:]):
            vm.unsupported("FE020", "a context variable that is reset", "others may have seen what it was set to, or it was set before")
        assert isinstance(token, Token)
        del calls[at:]
        vm.effects.mutations += 1
        if token.before is None:
            del vm.effects.context[id(self.obj)]
        else:
            vm.effects.context[id(self.obj)] = token.before
        return vm.fresh(None)


def is_set(variable: ContextVar[object]) -> bool:
    """Whether a context variable has a value here."""
    return variable in contextvars.copy_context()


SET = ContextVar.set


class Token(Value):
    """What setting a variable gave. ``before``: what captured code had set it to before."""

    def __init__(self, variable: ContextVariable, value: Value, before: Value | None) -> None:
        self.variable = variable
        self.value = value
        self.before = before
        self.setting: Call = (SET, [variable, value], {})

    def python_type(self) -> type:
        return contextvars.Token

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "var":
            return self.variable
        return vm.unsupported("FE020", f"{name} of a token of a context variable", "it is made when the program runs")
