"""Values as text, without running code of the program."""

from __future__ import annotations

import enum
import itertools
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .weak import DEAD, WeakObject, living


def short(value: Any, limit: int = 120) -> str:
    """What a value is, cut to ``limit`` characters. No code of the program runs for it, which may do more than to tell: of objects whose
    ``__repr__`` would, and of what holds them, the class is shown."""
    text = _plainly(value, 4)
    return text if len(text) <= limit else text[: limit - 3] + "..."


_TELLING = (int, float, complex, bool, str, bytes, type(None), type(...), range, FunctionType, BuiltinFunctionType, CodeType)
_BRACKETS: dict[type, tuple[str, str]] = {tuple: ("(", ")"), list: ("[", "]"), set: ("{", "}"), frozenset: ("{", "}")}
_MOST_ITEMS = 40


def _plainly(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is WeakObject:
        found = living(value)
        return f"<a {value.kind.__qualname__} that has died>" if found is DEAD else _plainly(found, depth)
    if kind in _TELLING:
        return repr(value)
    if issubclass(kind, type):
        return type.__repr__(value)
    if kind is ModuleType:
        return ModuleType.__repr__(value)
    if kind is MethodType:
        return f"<bound method {getattr(value.__func__, '__qualname__', '')} of {_plainly(value.__self__, 0)}>"
    if kind is partial:
        return f"functools.partial({_plainly(value.func, depth)})"
    if kind in _BRACKETS and depth:
        first, last = _BRACKETS[kind]
        items = [_plainly(each, depth - 1) for each in itertools.islice(value, _MOST_ITEMS)]
        return f"{first}{', '.join(items)}{',' if kind is tuple and len(items) == 1 else ''}{last}"
    if kind is dict and depth:
        items = [f"{_plainly(k, depth - 1)}: {_plainly(v, depth - 1)}" for k, v in itertools.islice(value.items(), _MOST_ITEMS)]
        return f"{{{', '.join(items)}}}"
    if issubclass(kind, enum.Enum) and "_name_" in (own := object.__getattribute__(value, "__dict__")):
        return f"{kind.__qualname__}.{own['_name_']}"
    if kind.__module__ in ("torch", "numpy", "torch.nn.parameter"):  # types, devices, tensors
        try:
            return repr(value)
        except Exception:
            return f"<{kind.__qualname__}>"
    return f"<{kind.__module__}.{kind.__qualname__} object>"


def of_error(error: BaseException) -> str:
    """What an exception says; a KeyError would ask the key."""
    return f"{type(error).__name__}: {', '.join(each if type(each) is str else short(each) for each in error.args)}"
