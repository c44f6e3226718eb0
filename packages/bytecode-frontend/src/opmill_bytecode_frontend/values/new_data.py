"""``tensor.data = other``: the tensor gets other memory when the graph has run. What uses it later begins another graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .base import Machine
    from .tensor import TensorValue


def may_be_given(vm: Machine, tensor: TensorValue, data: TensorValue) -> bool:
    """Whether a tensor of before the call may get the memory of ``data`` behind the graph: nothing of the graph that it already is a part
    of may be kept for a backward, which would find the new memory."""
    new, own = data.fake, tensor.fake
    fits = new.shape == own.shape and new.dtype == own.dtype and new.device == own.device and new.layout == own.layout
    plain = tensor.obj is not None and type(tensor.obj) in (torch.Tensor, torch.nn.Parameter) and type(new) is type(own)
    if not plain or not fits or vm.recorder.regions or tensor.unhooked is not None:
        return False
    users = [] if tensor.node is None else list(tensor.node.users)
    return bool(tensor.obj.is_leaf) and (vm.recorder.went_back or all(map(only_reads, users)))


def only_reads(node: torch.fx.Node) -> bool:
    """Whether a node is the same memory without a history."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in ("detach", "detach.default") or (name == "getattr" and node.args[1:] == ("data",))


def give(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.data = data


__all__ = ["give", "may_be_given"]
