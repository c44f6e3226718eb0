"""Optimizers of tensors over a mesh: a step is arithmetic on the parts that are here, where all tensors of a parameter lie alike."""

from __future__ import annotations

from typing import Any

import torch

from opmill_fake_tensors.wrappers import is_over_mesh


def parts_here(lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The lists with the parts in place of parameters over a mesh, and of their gradients and state."""
    if not any(is_over_mesh(type(param)) for param in lists["param"]):
        return lists
    entries = [_inside(entry) for entry in zip(*lists.values(), strict=True)]
    return {name: list(column) for name, column in zip(lists, zip(*entries, strict=True), strict=True)}


def wholes(lists: dict[str, list[Any]], places: list[int], names: list[str]) -> list[torch.Tensor]:
    """Those of the tensors at these places that are over a mesh."""
    return [t for name in names for k in places if is_over_mesh(type(t := lists[name][k]))]


def _inside(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """The entry itself where its tensors do not lie alike, or are sums that are still to be made."""
    param = entry[0]
    if not is_over_mesh(type(param)) or any(p.is_partial() for p in param.placements):
        return entry
    for other in entry:
        if is_over_mesh(type(other)):
            if other.placements != param.placements or other.device_mesh != param.device_mesh or other.shape != param.shape:
                return entry
        elif not isinstance(other, torch.Tensor) or other.numel() != 1:
            return entry
    return tuple(_part(t) if is_over_mesh(type(t)) else t for t in entry)


def _part(tensor: Any) -> Any:
    part = tensor._local_tensor
    return part.trigger_wait() if hasattr(type(part), "trigger_wait") else part


__all__ = ["parts_here", "wholes"]
