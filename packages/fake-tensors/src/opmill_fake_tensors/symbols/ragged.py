"""Sizes along which rows of jagged tensors differ, times sizes that are symbolic.

torch's own node for such a size is multiplied by numbers alone. This one keeps a factor that may be symbolic; both are equal where the
tensor that they are known by and the factors are."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_int import NestedIntNode

TRUTH: Any = torch._C._get_constant_bool_symnode


def number_of(node: Any) -> Any:
    """The integer that a node stands for, symbolic or not."""
    return node.constant_int() if hasattr(node, "constant_int") else torch.SymInt(node)


class RaggedNode(NestedIntNode):
    """``t_id``: torch's number for the tensor that the size is known by."""

    def mul(self, other: Any) -> RaggedNode:
        return RaggedNode(self.t_id, self.coeff * number_of(other))

    def _same(self, other: Any) -> bool:
        return isinstance(other, NestedIntNode) and other.t_id == self.t_id and bool(other.coeff == self.coeff)

    def eq(self, other: Any) -> Any:
        return TRUTH(self._same(other))

    def ne(self, other: Any) -> Any:
        return TRUTH(not self._same(other))


def times(node: NestedIntNode, size: Any) -> RaggedNode:
    """A ragged size times a symbolic one."""
    return RaggedNode(node.t_id, node.coeff).mul(size)


def compared(kind: str) -> bool:
    """A symbolic size with a ragged one, as torch has it: they are different, and no more is known."""
    if kind in ("eq", "ne"):
        return kind == "ne"
    raise ValueError(f"{kind}: relation is indeterminate")


__all__ = ["RaggedNode", "compared", "times"]
