"""Comparisons of sizes where some are known from data alone: each asker says what it needs to know.

The conditions are ``bool`` or ``torch.SymBool`` of an environment of ours. Those of sizes that have hints are decided by them, and
recorded."""

from __future__ import annotations

import builtins
from typing import Any

import torch


def typically(condition: Any) -> bool:
    """A comparison of sizes, decided by their hints. Where only data tell: what it is for sizes from 2 on. For questions of layout: of a
    size of 0 or 1 no stride means anything, and a wrong answer costs time and no result."""
    return condition if type(condition) is bool else condition.node.guard_size_oblivious()


def surely(condition: Any) -> bool:
    """The same; where only data tell: whether it holds whatever they are."""
    return condition if type(condition) is bool else condition.node.guard_or_false()


def demanded(condition: Any) -> bool:
    """The same; where only data tell, it is demanded of them: checked when the program runs. For what eager refuses where it does not
    hold."""
    if type(condition) is bool:
        return condition
    node = condition.node
    return node.bool_() if node.has_hint() else node.demand()  # type: ignore[no-any-return]


def positive(size: Any) -> Any:
    """``max(size, 1)``; a size that only data tell is itself: where it is zero there are no elements, and no strides."""
    return max(size, 1) if type(size) is int or size.node.has_hint() else size


def known_from_data(size: Any) -> bool:
    """Whether only data tell this size."""
    return type(size) is not int and not size.node.has_hint()


def check(condition: bool | torch.SymBool, text: str, error: str) -> None:
    """What stands in a graph for ``torch._check``: raises the builtin exception ``error`` where the condition does not hold; demands it of
    sizes that only data tell."""
    if not demanded(condition):
        raise getattr(builtins, error)(*([text] if text else []))
