"""``tensor.retain_grad()``: that a gradient is kept shows where the tensor is left to see. Until then it is a mark, which a ``backward()``
in captured code reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._C import _functorch

from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.tensor import TensorValue
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


@handles(torch.Tensor.retain_grad)
def retain_grad(vm: Interpreter, tensor: TensorValue) -> Value:
    """``tensor.retain_grad()``: the gradient is kept where the graph computes one."""
    if vm.recorder.regions or _functorch.get_dynamic_layer_stack_depth():
        vm.unsupported("FE033", "method retain_grad of a tensor", "it is called inside of a branch, a loop or a transform")
    if not tensor.fake.requires_grad:
        vm.throw(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False")
    if tensor.obj is not None:
        if not tensor.obj.is_leaf:
            vm.effects.calls.append((torch.Tensor.retain_grad, [tensor], {}))
    elif not tensor.fake.is_leaf and tensor.retained_at is None:
        tensor.retained_at = vm.place()
    return NONE


def retained(vm: Interpreter, steps: set[object]) -> list[TensorValue]:
    """The tensors of captured code whose gradient is kept, of those that the ``steps`` of a backward come from."""
    marked = {id(value): value for value in vm.recorder.by_fake.values() if value.retained_at is not None}
    return [value for value in marked.values() if value.fake.grad_fn in steps]


def keep(vm: Interpreter, tensor: TensorValue, gradient: Value) -> None:
    """What autograd does with such a gradient: it is a tensor of its own, laid out densely, and each one after it makes a new sum."""
    known = vm.getattr(tensor, "grad")
    if isinstance(known, TensorValue):
        tensor.new_grad = known.method(vm, "add", [gradient], {})
    else:
        assert isinstance(gradient, TensorValue)
        tensor.new_grad = gradient.method(vm, "clone", [], {"memory_format": ConstantValue(torch.contiguous_format)})


__all__ = ["keep", "retained"]
