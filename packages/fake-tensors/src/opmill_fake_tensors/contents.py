"""Which metas hold the same values, as far as operators tell, and what was counted in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class Contents:
    """Two tensors that the same operator made of the same arguments hold the same, until one of those that take part is written.

    Of computed tensors only those of integers and truths are followed, which are what sizes are counted in, and views of all. Everything is
    known by the identity of metas, which this keeps alive."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], tuple[torch.Tensor, Any]] = {}
        """What was counted in which meta."""
        self._made: dict[Any, tuple[torch.Tensor, ...]] = {}
        """By operator and arguments: the first result, and the tensors among the arguments."""
        self._first: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By the identity of a result: itself, and the first that holds the same."""
        self._truths: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By the identity of integers that were made of truths: themselves, and the truths."""
        self._outside: dict[int, torch.Tensor] = {}
        """Metas of tensors that were there before, by their storage: any two of them may share memory."""

    def entered(self, meta: torch.Tensor) -> None:
        """``meta`` stands for a tensor from outside."""
        self._outside[_storage(meta)] = meta

    def made(self, name: Any, args: Iterable[Any], result: torch.Tensor, view: bool) -> None:
        """An operator that computes from its arguments alone, or makes a view, gave ``result``."""
        if not view and (result.is_floating_point() or result.is_complex()):
            return
        parts: list[torch.Tensor] = []
        key = name, self._key(args, parts)
        try:
            first, *_ = self._made.setdefault(key, (result, *parts))
        except TypeError:  # sizes that are not known, ...
            return
        if first is not result and parts:
            self._first[id(result)] = result, first
        elif name == "aten::_to_copy" and parts[0].dtype is torch.bool:
            self._truths[id(result)] = result, parts[0]

    def same_as(self, meta: torch.Tensor) -> torch.Tensor:
        """The first one that holds what ``meta`` holds."""
        return self._first.get(id(meta), (meta, meta))[1]

    def number_in(self, meta: torch.Tensor) -> torch.Tensor:
        """The first one that holds the number ``meta`` holds: an integer made of a truth is that truth."""
        first = self.same_as(meta)
        return self._truths.get(id(first), (first, first))[1]

    def written(self, metas: Iterable[torch.Tensor]) -> None:
        """Whatever shares memory with these tensors may hold something else now."""
        if not (self.counts or self._made):
            return
        touched = {_storage(meta) for meta in metas}
        if touched & self._outside.keys():
            touched |= self._outside.keys()

        def kept(*involved: torch.Tensor) -> bool:
            return not any(_storage(meta) in touched for meta in involved)

        self.counts = {key: found for key, found in self.counts.items() if kept(found[0])}
        self._made = {key: found for key, found in self._made.items() if kept(*found)}
        self._first = {key: pair for key, pair in self._first.items() if kept(*pair)}
        self._truths = {key: pair for key, pair in self._truths.items() if kept(*pair)}

    def _key(self, value: Any, parts: list[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            first = self.same_as(value)
            parts.append(first)
            return torch.Tensor, id(first)
        if isinstance(value, (list, tuple)):
            return tuple(self._key(v, parts) for v in value)
        return type(value), value  # 1, 1.0 and True are equal


def _storage(meta: torch.Tensor) -> int:
    return int(meta.untyped_storage()._cdata)
