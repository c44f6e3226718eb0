"""Tensors of the graph that hold the same at each call, since they are computed from constants of the program alone."""

from __future__ import annotations

import operator
import re

import torch

from opmill_guards.source import Pinned

from .base import Machine
from .tensor import TensorValue

CONSTANTS = frozenset("tensor as_tensor scalar_tensor full zeros ones empty arange eye linspace".split())
"""Functions that make tensors of what is told them."""
MOST = 4096
"""Elements of a tensor that is computed at capture."""


def made_of_constants(vm: Machine, nodes: set[torch.fx.Node]) -> bool:
    """Whether nodes, which have all that they use among them, are computed from constants alone."""
    made = {each.node for each in vm.recorder.inputs if isinstance(each.source, Pinned)}  # once, of constants
    for node in nodes:
        told = node.op == "call_function" and getattr(node.target, "__name__", "") in CONSTANTS
        if node.op not in ("call_function", "call_method", "placeholder") or not (node.all_input_nodes or node in made or told):
            return False
    return True


def with_writes(node: torch.fx.Node) -> set[torch.fx.Node]:
    """A node, and all that it is computed from, or that what was written to these is."""
    used, seen = behind(node), set[torch.fx.Node]()
    todo = [*used]
    while todo:
        for each in todo.pop().users:  # what is computed of them may be views, which are written to
            if each in seen:
                continue
            seen.add(each)
            todo.append(each)
            if each not in used and writes(each):
                todo += (more := behind(each) - used)
                used |= more
    return used


def writes(node: torch.fx.Node) -> bool:
    """Whether a step writes to a tensor that it is given."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "").removesuffix(".default")
    in_place = node.op in ("call_method", "call_function") and re.search(r"[^_]_$", name) is not None
    return in_place or "out" in node.kwargs or node.target is operator.setitem


def fixed_value(vm: Machine, tensor: TensorValue) -> torch.Tensor | None:
    """What it holds at each call, where that is known and little."""
    if any(type(n) is not int for n in tensor.fake.shape) or tensor.fake.numel() > MOST:
        return None
    if tensor.node is None:
        return tensor.obj if isinstance(tensor.source, Pinned) and isinstance(tensor.obj, torch.Tensor) else None
    used = with_writes(tensor.node)
    if not made_of_constants(vm, used):
        return None
    found: dict[torch.fx.Node, torch.Tensor] = {
        each.node: each.obj for each in vm.recorder.inputs if isinstance(each.obj, torch.Tensor) and each.node
    }
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        found = {node: held.clone() for node, held in found.items() if node in used}
        for node in sorted(used):
            if node not in found:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
                function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
                found[node] = function(*args, **kwargs)
                if not writes(node):
                    node.meta["fixed"] = True  # nobody misses it in a graph that has no other use for it
    return found.get(tensor.node)


def behind(node: torch.fx.Node) -> set[torch.fx.Node]:
    """A node, and all that it is computed from."""
    seen, todo = {node}, [node]
    while todo:
        more = [each for each in todo.pop().all_input_nodes if each not in seen]
        seen.update(more)
        todo += more
    return seen


__all__ = ["fixed_value"]
