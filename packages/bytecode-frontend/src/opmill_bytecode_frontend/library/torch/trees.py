"""Trees of tuples, lists and dictionaries are taken apart and put together in one step: torch's own code takes a hundred instructions for
each node, and function transforms and scans ask for it around every call. Trees of anything else are left to that code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from torch.utils import _pytree as pytree

from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.constant import ConstantValue, is_none
from ...values.mapping import DictValue
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ..builtins.classes import new_object
from ..registry import named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
V = TypeVar("V", bound=Value)


class _Other(Exception):
    """torch's own code is to look at this tree."""


def of_plain_trees(name: str) -> Callable[[Callable[..., V]], Callable[..., V]]:
    """The decorated function(vm, tree or spec[, other]) stands for the one of torch, called without ``is_leaf``, as long as it meets
    nothing but plain trees."""

    def add(rule: Callable[..., V]) -> Callable[..., V]:
        count = rule.__code__.co_argcount - 1

        def handler(vm: Interpreter, *args: Value, **kwargs: Value) -> Value | None:
            is_leaf = [*args[count:], *kwargs.values()]
            if len(args) < count or len(is_leaf) > 1 or (kwargs and "is_leaf" not in kwargs) or not all(map(is_none, is_leaf)):
                return None
            try:
                return rule(vm, *args[:count])
            except _Other:
                return None

        named(f"torch.utils._pytree.{name}")(handler)
        return rule

    return add


@of_plain_trees("tree_flatten")
def flatten(vm: Interpreter, tree: Value) -> Value:
    """``tree_flatten()``: a list of leaves, and the spec."""
    leaves: list[Value] = []
    spec = _spec(vm, tree, leaves)
    return TupleValue([ListValue(leaves), spec])


@of_plain_trees("tree_leaves")
def tree_leaves(vm: Interpreter, tree: Value) -> ListValue:
    """``tree_leaves()``."""
    children = _children(vm, tree)
    return ListValue([tree] if children is None else [leaf for child in children for leaf in tree_leaves(vm, child).items])


@of_plain_trees("tree_unflatten")
def unflatten_leaves(vm: Interpreter, leaves: Value, spec: Value) -> Value:
    """``tree_unflatten()``."""
    return unflatten(vm, spec, leaves)


@of_plain_trees("TreeSpec.unflatten")
def unflatten(vm: Interpreter, spec: Value, leaves: Value) -> Value:
    """``spec.unflatten()``; as many leaves as the spec has, else the real function says what is wrong."""
    if not isinstance(leaves, SequenceValue) or leaves.python_type() not in (list, tuple):
        raise _Other
    items = vm.unpack(leaves)
    if len(items) != _field(vm, spec, "num_leaves").constant():
        raise _Other
    return _put_together(vm, spec, iter(items))


@of_plain_trees("_broadcast_to_and_flatten")
def broadcast(vm: Interpreter, tree: Value, spec: Value) -> ListValue:
    """The leaves of a tree that stand above those of the tree with ``spec``, one for each of the latter."""
    children = _children(vm, tree)
    if children is None:
        return ListValue([tree] * _field(vm, spec, "num_leaves").constant())
    return ListValue([item for child, part in _side_by_side(vm, children, tree, spec) for item in broadcast(vm, child, part).items])


@of_plain_trees("TreeSpec.flatten_up_to")
def flatten_up_to(vm: Interpreter, spec: Value, tree: Value) -> ListValue:
    """What stands in a tree where the tree with ``spec`` has its leaves."""
    if _kind(vm, spec) is None:
        return ListValue([tree])
    children = _children(vm, tree)
    if children is None:
        raise _Other
    return ListValue([item for child, part in _side_by_side(vm, children, tree, spec) for item in flatten_up_to(vm, part, child).items])


def _side_by_side(vm: Interpreter, children: list[Value], tree: Value, spec: Value) -> list[tuple[Value, Value]]:
    """The parts of a tree beside those of the structure, which must be a tuple or list as it is."""
    parts = _parts(vm, spec)
    if _kind(vm, spec) is not tree.python_type() or len(parts) != len(children) or isinstance(tree, DictValue):
        raise _Other
    return list(zip(children, parts, strict=True))


def _field(vm: Interpreter, spec: Value, name: str) -> Value:
    if not issubclass(spec.python_type(), pytree.TreeSpec):
        raise _Other
    return vm.getattr(spec, name)


def _kind(vm: Interpreter, spec: Value) -> object:
    """The class of the containers that a structure is of, None of a leaf."""
    return _field(vm, spec, "type").constant()


def _parts(vm: Interpreter, spec: Value) -> list[Value]:
    return vm.unpack(_field(vm, spec, "_children"))


def _children(vm: Interpreter, value: Value) -> list[Value] | None:
    """The parts of a node, None of a leaf."""
    kind = value.python_type()
    if kind in (tuple, list) and isinstance(value, SequenceValue):
        return vm.unpack(value)
    if kind is dict and isinstance(value, DictValue):
        return vm.unpack(vm.call(vm.getattr(value, "values"), [], {}))
    if issubclass(kind, tuple) or kind in pytree.SUPPORTED_NODES:
        raise _Other
    return None


def _spec(vm: Interpreter, value: Value, leaves: list[Value]) -> Value:
    """The structure of a tree; its leaves are added to ``leaves``."""
    children = _children(vm, value)
    if children is None:
        leaves.append(value)
        return vm.wrap(pytree._LEAF_SPEC, Pinned(pytree._LEAF_SPEC, "the structure of a leaf"))
    context = vm.call(vm.wrap(list), [value], {}) if isinstance(value, DictValue) else NONE
    made = new_object(vm, pytree.TreeSpec)
    first = len(leaves)
    specs = [_spec(vm, child, leaves) for child in children]
    nodes = 1 + sum(vm.getattr(s, "num_nodes").constant() for s in specs)
    fields = {"type": vm.wrap(value.python_type()), "_context": context, "_children": ListValue(specs), "num_nodes": ConstantValue(nodes)}
    fields |= {"num_leaves": ConstantValue(len(leaves) - first), "num_children": ConstantValue(len(specs))}
    for name, field in fields.items():
        vm.call_builtin(object.__setattr__, [made, ConstantValue(name), field], {})
    return made


def _put_together(vm: Interpreter, spec: Value, leaves: Iterator[Value]) -> Value:
    kind = _kind(vm, spec)
    if kind is None:
        return next(leaves)
    if kind not in (tuple, list, dict):
        raise _Other
    children = [_put_together(vm, child, leaves) for child in _parts(vm, spec)]
    if kind is not dict:
        return TupleValue(children) if kind is tuple else ListValue(children)
    made = DictValue({})
    for key, child in zip(vm.unpack(vm.getattr(spec, "_context")), children, strict=True):
        made.store(vm, key, child)
    return made
