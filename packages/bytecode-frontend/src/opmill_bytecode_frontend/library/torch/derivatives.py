"""``torch.autograd.grad`` in captured code: a step of the graph, where the graph holds all that is to be differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._C import _functorch

from ...effects.backwards import settled
from ...graph.leaves import history
from ...values.base import Value
from ...values.tensor import TensorValue
from ..registry import named
from .backward import LISTENED, OF_GRADIENTS, is_listened_to, listed
from .retaining import retained
from .transforms import leaves, recorded_here, wrapped

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@named("torch.autograd.grad")
def derivative(vm: Interpreter, *args: Value, **kwargs: Value) -> Value | None:
    """Of what function transforms made, the graph itself holds all there is to differentiate, and so it does where its inputs are
    leaves without hooks."""
    outputs = listed(vm, args[0] if args else kwargs["outputs"])
    if _functorch.get_dynamic_layer_stack_depth() == 0 and not any(map(wrapped, outputs)):
        if not outputs or not all(map(recorded_here, outputs)) or not leaves(vm):
            return None
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        if inputs is not None:
            refuse_listeners(vm, outputs, listed(vm, inputs))
    settled(vm)
    vm.recorder.went_back = True
    return vm.recorder.call_function(vm, torch.autograd.grad, list(args), kwargs)


def refuse_listeners(vm: Interpreter, outputs: list[Value], inputs: list[Value]) -> None:
    """Ends the graph (FE033) where autograd would tell others of a gradient: hooks on what it is asked for, put before the call or in it,
    and tensors on the way that keep theirs. In the graph, nobody is."""
    if any(isinstance(leaf, TensorValue) and leaf.obj is not None and is_listened_to(vm, leaf, OF_GRADIENTS) for leaf in inputs):
        vm.unsupported("FE033", "torch.autograd.grad", LISTENED)
    if retained(vm, set(history([each.fake.grad_fn for each in outputs if isinstance(each, TensorValue)]))):
        vm.unsupported("FE033", "torch.autograd.grad", "it leads through a tensor whose own gradient is to be kept")


__all__ = ["derivative"]
