"""``backward()`` in captured code: gradients are computed in the graph, and added to those of leaves as autograd adds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch._C import _functorch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.strides import is_dense
from opmill_guards.guard import Is
from opmill_guards.source import Attr

from ...effects.backwards import settled
from ...graph.leaves import history, is_leaf
from ...graph.spent import MESSAGE, is_spent
from ...graph.versions import memory
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.sequence import ListValue, SequenceValue
from ...values.tensor import TensorValue
from ..registry import handles, named
from .bodies import through_operator
from .gradients import grad_mode
from .retaining import keep, retained
from .transforms import leaves, recorded_here

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
OF_GRADIENTS: dict[str, object] = {"_backward_hooks": torch.Tensor.register_hook}
HOOKS = {**OF_GRADIENTS, "_post_accumulate_grad_hooks": torch.Tensor.register_post_accumulate_grad_hook}
"""Where a tensor keeps its hooks -> the method that puts them there."""
LISTENED = "there are hooks on a tensor that it leads to"


@handles(torch.Tensor.backward)
def backward_of_tensor(
    vm: Interpreter, tensor: Value, gradient: Value = NONE, retain_graph: Value = NONE, create_graph: Value = NONE, inputs: Value = NONE
) -> Value:
    """``tensor.backward()``."""
    return backward(vm, tensor, gradient, retain_graph, create_graph, inputs=inputs)


@named("torch.autograd.backward")
def backward(
    vm: Interpreter,
    tensors: Value,
    grad_tensors: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = NONE,
    grad_variables: Value = NONE,
    inputs: Value = NONE,
) -> Value:
    """``torch.autograd.backward()``: gradients become outputs of the graph and are accumulated behind it."""
    outputs: list[Any] = listed(vm, tensors)
    for value in (create_graph, grad_variables):
        if not is_off(value):
            refuse(vm, "its gradients are to be differentiated themselves, or it is called in an old way")
    if not outputs or not all(map(recorded_here, outputs)) or not leaves(vm):
        refuse(vm, "some of what led to it was computed before the call")
    if vm.recorder.regions or _functorch.get_dynamic_layer_stack_depth():
        refuse(vm, "it is called inside of a branch, a loop or a transform")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        refuse(vm, "who sends gradients to other processes waits for them at the parameters")
    if any(is_spent(output.fake) for output in outputs):
        vm.throw(RuntimeError, MESSAGE)
    if not is_off(inputs):
        refuse_computed(vm, inputs)
    seen: set[object] = set()
    found = [value for value in met(vm, outputs, seen) if wanted(vm, value, inputs)]
    marked = retained(vm, seen)
    if marked and not is_off(inputs):
        refuse(vm, "only some gradients are asked for, and it leads through a tensor whose own is to be kept")
    if not found:
        if not any(output.fake.requires_grad for output in outputs):
            vm.throw(RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn")
        return NONE
    kwargs: dict[str, Value] = {"allow_unused": ConstantValue(True)}
    if not is_off(retain_graph):
        kwargs["retain_graph"] = ConstantValue(True)
    given: list[Value] = [
        ListValue(outputs),
        ListValue([*[each if each.given is None else each.given.original for each in found], *marked]),
    ]
    if not is_off(grad_tensors):
        given.append(ListValue(listed(vm, grad_tensors)))
    settled(vm)
    taken = {memory(value.fake) for value in vm.recorder.by_fake.values()}
    own = not any(map(through_operator, seen))  # else a gradient may be any tensor that the program's backward has
    vm.recorder.went_back = True
    gradients = vm.recorder.call_function(vm, torch.autograd.grad, given, kwargs)
    with grad_mode(vm, False):
        for value, gradient in zip([*found, *marked], vm.unpack(gradients), strict=True):
            if isinstance(gradient, TensorValue) and value.retained_at is not None:
                keep(vm, value, gradient)
            elif isinstance(gradient, TensorValue):
                accumulate(vm, value, gradient, taken, own)
    return NONE


def is_off(value: Value) -> bool:
    """Whether an argument is None or False."""
    return isinstance(value, ConstantValue) and not value.value


def refuse(vm: Interpreter, why: str) -> NoReturn:
    """Ends the graph at a ``backward()``."""
    vm.unsupported("FE033", "method backward of a tensor", why, "call it outside of the compiled function")


def refuse_computed(vm: Interpreter, inputs: Value) -> None:
    """Ends the graph where the gradients are not only for leaves: before what is no leaf is used, so that it is one of a graph's inputs."""
    chosen = [each for each in listed(vm, inputs) if isinstance(each, TensorValue)]
    computed = [each for each in chosen if each.obj is None and not is_leaf(each.fake)]
    places = [place for each in computed if (place := each.first_use()) is not None]
    if computed or not chosen:
        why = "gradients are asked for of what is no leaf"
        vm.unsupported("FE033", "method backward of a tensor", why, "take torch.autograd.grad", place=min(places, default=None))


def listed(vm: Interpreter, values: Value) -> list[Value]:
    """The tensors of an argument that is one of them, or a sequence."""
    return list(vm.unpack(values)) if isinstance(values, SequenceValue) else [values]


def met(vm: Interpreter, outputs: list[Any], seen: set[object]) -> Iterator[TensorValue]:
    """The leaves that the history of ``outputs`` leads to. ``seen``: gets its steps."""
    for output in outputs:
        if output.fake.requires_grad and output.fake.grad_fn is None:
            yield output
    for step in history([output.fake.grad_fn for output in outputs]):
        seen.add(step)
        leaf = getattr(step, "variable", None)
        if leaf is not None:
            value = vm.recorder.by_fake.get(id(leaf))
            if value is None:
                refuse(vm, "it leads to a tensor that is not known")
            yield value


def wanted(vm: Interpreter, leaf: TensorValue, inputs: Value) -> bool:
    """Whether the gradient of a leaf is asked for. Raises Unsupported for one that more happens to than adding."""
    if not is_off(inputs):
        if not any(each is leaf for each in listed(vm, inputs)):
            return False
    if is_listened_to(vm, leaf, HOOKS):
        refuse(vm, LISTENED)
    if type(leaf.fake) is not FakeTensor or any(type(n) is not int for n in leaf.fake.shape):
        refuse(vm, "it leads to a tensor of another class, or of sizes that vary")
    return True


def is_listened_to(vm: Interpreter, leaf: TensorValue, hooks: Mapping[str, object]) -> bool:
    """Whether there are such hooks on a leaf, put before the call or in it; assumed where there are none from before."""
    for name in hooks if leaf.obj is not None else ():
        if getattr(leaf.obj, name):
            return True
        vm.guard(Is(Attr(leaf.source, name), getattr(leaf.obj, name)))
    return any(call[0] in hooks.values() and call[1][0] is leaf for call in vm.effects.calls)


def accumulate(vm: Interpreter, leaf: TensorValue, gradient: TensorValue, taken: set[int], own_memory: bool) -> None:
    """What autograd does with the gradient of a leaf: it is added in place to what is there, or becomes it, laid out as the leaf is."""
    known = vm.getattr(leaf, "grad")
    if isinstance(known, TensorValue):
        known.method(vm, "add_", [gradient], {})
        return
    fake, own = gradient.fake, leaf.fake
    shape = tuple(own.shape)
    laid_out = tuple(fake.stride()) == tuple(own.stride()) if is_dense(shape, own.stride()) else fake.is_contiguous()
    if not laid_out or not own_memory or memory(gradient.fake) in taken:
        empty = vm.call(vm.wrap(torch.empty_like), [leaf], {"requires_grad": ConstantValue(False)})
        gradient = cast(TensorValue, empty.method(vm, "copy_", [gradient], {}))
    taken.add(memory(gradient.fake))
    if leaf.obj is None:  # it stays in the graph, or ends it
        leaf.new_grad = gradient
    else:
        vm.setattr(leaf, "grad", gradient)


__all__ = ["backward", "is_listened_to", "is_off", "listed"]
