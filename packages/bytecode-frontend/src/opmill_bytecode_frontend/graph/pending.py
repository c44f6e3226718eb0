"""Backwards that run when the call is over: what they read of the program's own objects has to be what it was when they were recorded."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ..values.base import MISSING

LITERALS = (int, float, bool, str, bytes, complex)
SETTLED = (*LITERALS, type(None), type, enum.Enum, torch.dtype, torch.device, torch.layout, types.FunctionType, torch._ops.OpOverload)
"""What a table of a module may hold for its contents to be compared: nothing that says another thing later."""
TABLES = (set, frozenset, list, dict)
MOST = 64
"""Items of a table: they are looked at in each backward."""
OF_MODULES = ("_parameters", "_buffers", "_modules")


class StateChanged(RuntimeError):
    """A backward read an object of the program at capture that is another one now."""


def attribute(owner: object, name: str) -> object:
    """What a lookup finds, before descriptors of the program run: these are read by themselves."""
    if isinstance(owner, type):
        return next((vars(cls)[name] for cls in owner.__mro__ if name in vars(cls)), MISSING)
    own = getattr(owner, "__dict__", {})
    if name in own:
        return own[name]
    if isinstance(owner, torch.nn.Module):
        for table in OF_MODULES:
            if name in own.get(table, {}):
                return own[table][name]
    raw = attribute(type(owner), name)
    return getattr(owner, name, MISSING) if isinstance(raw, types.MemberDescriptorType) else raw


def global_name(namespace: Mapping[str, object], name: str) -> object:
    """What a global name is bound to now."""
    return namespace.get(name, MISSING)


def contents(namespace: Mapping[str, object], name: str) -> object:
    """What the table that a global name is bound to holds now; MISSING of what is no table, is longer, or has other things in it."""
    table = namespace.get(name, MISSING)
    if type(table) not in TABLES:
        return MISSING
    assert isinstance(table, (set, frozenset, list, dict)), table
    if len(table) > MOST:
        return MISSING
    items = (*table.keys(), *table.values()) if isinstance(table, dict) else tuple(table)
    return items if all(isinstance(item, SETTLED) for item in items) else MISSING


def cell(holder: types.CellType, name: str) -> object:
    """What a variable of a function around holds now."""
    try:
        return holder.cell_contents
    except ValueError:
        return MISSING


def same(before: object, now: object) -> bool:
    """Whether two values are one, or equal constants."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if type(before) is tuple and type(now) is tuple:
        return len(before) == len(now) and all(map(same, before, now))
    if type(before) in (float, complex):
        return repr(before) == repr(now)
    return type(before) in LITERALS and bool(before == now)


Read = tuple[Callable[[object, str], object], object, str]


def watch(outputs: Iterable[Any], of: str, *reads: Read) -> None:
    """The backward of ``outputs`` raises where ``reads`` find other things than now."""
    known = [(read, holder, name, read(holder, name)) for read, holder, name in reads]

    def unchanged(gradients: object) -> None:
        for read, holder, name, before in known:
            if not same(before, read(holder, name)):
                raise StateChanged(
                    f"FE095: {name}, which the backward of {of} reads, was changed after the forward was captured\n"
                    f"  why: the backward was compiled for what it held then\n"
                    f"  hint: keep it in the ctx of the function, or leave the function out of the capture (opmill.disable)"
                )

    for node in {t.grad_fn for t in outputs if t.grad_fn is not None}:
        node.register_prehook(unchanged)


__all__ = ["Read", "StateChanged", "attribute", "cell", "contents", "global_name", "watch"]
