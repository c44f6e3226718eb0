"""Tokens of context variables leave captured code as what setting the variable gives."""

from __future__ import annotations

from ..errors import Unsupported
from ..values.context_variables import Token
from .rebuild import Rebuilder, rebuilds


@rebuilds(Token)
def token(r: Rebuilder, value: Token) -> str:
    """The variable is set here; later it is set once more, to the same, with all else that changes."""
    calls = r.vm.effects.calls
    if not any(call is value.setting for call in calls):
        raise Unsupported("FE070", "the token of a context variable leaves the captured code", "the variable was reset by it")
    variable = value.variable
    for call in calls[: next(k for k, call in enumerate(calls) if call is value.setting)]:
        if call[1][:1] == [variable]:
            raise Unsupported("FE070", "the token of a context variable leaves the captured code", "the variable was set before it")
    return r.assign(value, f"{r.expr(variable)}.set({r.expr(value.value)})")
