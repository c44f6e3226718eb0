"""Tensors: a node of the recorded graph and a fake that knows its shape."""

from __future__ import annotations

import operator
from typing import Any

import torch

from opmill_guards.source import Attr

from .base import MISSING, Machine, NotConstant, Value
from .constant import ConstantValue
from .iterators import STOP, ItemsIterator
from .sequence import ListValue, TupleValue

#: dunder -> (function recorded, operands swapped)
OPERATORS: dict[str, tuple[Any, bool]] = {}
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"):
    OPERATORS[f"__{_name}__"] = (getattr(operator, _name), False)
    OPERATORS[f"__r{_name}__"] = (getattr(operator, _name), True)
    OPERATORS[f"__i{_name}__"] = (getattr(operator, "i" + _name), False)
for _name in ("and", "or", "xor"):
    OPERATORS[f"__{_name}__"] = (getattr(operator, _name if _name == "xor" else _name + "_"), False)
    OPERATORS[f"__r{_name}__"] = (getattr(operator, _name if _name == "xor" else _name + "_"), True)
    OPERATORS[f"__i{_name}__"] = (getattr(operator, "i" + _name), False)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    OPERATORS[f"__{_name}__"] = (getattr(operator, _name), False)
for _name in ("neg", "pos", "invert", "abs", "getitem"):
    OPERATORS[f"__{_name}__"] = (getattr(operator, _name), False)

#: Methods that leave the tensor world or keep a reference to the Python object: never recorded.
REFUSED = frozenset(
    "backward register_hook register_post_accumulate_grad_hook retain_grad storage untyped_storage data_ptr numpy __array__ "
    "share_memory_ pin_memory __dlpack__ cpu_offload".split()
)


class TensorValue(Value):
    """A tensor in the captured program. ``node`` is made when first used for tensors that existed before the call."""

    def __init__(self, fake: Any, node: Any = None, cls: type = torch.Tensor, obj: Any = None, source: Any = None) -> None:
        self.fake = fake
        self.node = node
        self.cls = cls
        self.obj = obj
        self.source = source

    def __repr__(self) -> str:
        return f"Tensor({self.node or self.source})"

    def python_type(self) -> type:
        return self.cls

    def real(self) -> Any:
        return MISSING if self.obj is None else self.obj

    def describe(self) -> str:
        return f"tensor {list(self.fake.shape)}"

    def key(self, vm: Machine) -> Any:
        return self

    def truth(self, vm: Machine) -> bool:
        return bool(self.method(vm, "__bool__", [], {}).constant())

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__class__":
            return vm.wrap(self.cls)
        if name in ("grad", "_grad"):
            if self.obj is None:
                return ConstantValue(None)
            if not self.obj.is_leaf:
                vm.unsupported("FE031", "the gradient of a tensor that is no leaf", "whether one is retained belongs to the object, not to its value")
            return vm.wrap(self.obj.grad, Attr(self.source, name))
        if self.obj is not None and name in self.obj.__dict__:
            return vm.wrap(self.obj.__dict__[name], Attr(self.source, name))
        if name in ("grad_fn", "_backward_hooks", "__dict__", "_version", "_base"):
            if name == "grad_fn" and self.fake.grad_fn is None:
                return ConstantValue(None)
            vm.unsupported("FE031", f"attribute {name} of a tensor", "it belongs to the tensor object, not to its value")
        raw = getattr(torch.Tensor, name, MISSING)
        if raw is MISSING:
            vm.no_attribute(self, name, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if callable(raw):
            return TensorMethod(self, name)
        return vm.recorder.attribute(vm, self, name)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if name == "data" and isinstance(value, TensorValue):
            vm.unsupported("FE032", "assignment to tensor.data", "the tensor would change its memory", "use copy_() under no_grad")
        vm.unsupported("FE032", f"assignment to attribute {name} of a tensor")

    def find_method(self, name: str) -> Any:
        if not callable(getattr(torch.Tensor, name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in REFUSED:
            vm.unsupported("FE033", f"method {name} of a tensor", "it is not part of a graph of tensor operations")
        if name == "__getitem__" and args[0].symbolic:
            return vm.recorder.call_function(vm, torch.select, [self, ConstantValue(0), args[0]], {})
        if name == "__getitem__" and vm.recorder.index_by_tensors and (indices := tensor_indices(vm, self, args[0])) is not None:
            return vm.recorder.call_function(vm, torch.ops.aten.index.Tensor, [self, ListValue(list(indices))], {})
        if name in OPERATORS and not kwargs:
            function, swapped = OPERATORS[name]
            return vm.recorder.call_function(vm, function, [*args, self] if swapped else [self, *args], {})
        if name == "__setitem__":
            vm.recorder.call_function(vm, operator.setitem, [self, *args], {})
            return ConstantValue(None)
        if name == "__len__":
            if self.fake.dim() == 0:
                vm.throw(TypeError, "len() of a 0-d tensor")
            return vm.fresh(self.fake.shape[0])
        if name == "__hash__":
            vm.unsupported("FE024", "hash of a tensor")
        if name == "__iter__":
            return self.iterate(vm)
        if name in ("size", "dim", "stride", "numel", "nelement", "ndimension", "is_floating_point", "element_size", "storage_offset"):
            return vm.recorder.evaluate(vm, getattr(self.fake, name), args, kwargs)
        if name == "tolist":
            vm.unsupported("FE030", "tolist of a tensor", "the result depends on data")
        if name == "type" and not args and not kwargs:
            return ConstantValue(self.fake.type())
        return vm.recorder.call_method(vm, name, [self, *args], kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if name in OPERATORS and args and not vm.recorder.is_operand(args[0]):
            return ConstantValue(NotImplemented)
        if not callable(getattr(torch.Tensor, name, None)):
            return None
        return self.method(vm, name, args, {})

    def iterate(self, vm: Machine) -> Value:
        if self.fake.dim() == 0:
            vm.throw(TypeError, "iteration over a 0-d tensor")
        rows = self.method(vm, "unbind", [ConstantValue(0)], {})
        assert isinstance(rows, TupleValue)
        return ItemsIterator(lambda vm, i: rows.item(vm, i) if i < len(rows.items) else STOP)


def tensor_indices(vm: Machine, owner: TensorValue, key: Value) -> list[Value] | None:
    """The parts of a subscript as tensors; None when one is neither a tensor nor an integer."""
    parts = key.values(vm) if isinstance(key, TupleValue) else [key]
    out: list[Value] = []
    for part in parts:
        if isinstance(part, ConstantValue) and isinstance(part.value, int):
            kind = {"dtype": ConstantValue(torch.int64), "device": ConstantValue(owner.fake.device)}
            part = vm.recorder.call_function(vm, torch.tensor, [part], kind)
        if not isinstance(part, TensorValue):
            return None
        out.append(part)
    return out


class TensorMethod(Value):
    """A method bound to a tensor."""

    def __init__(self, owner: TensorValue, name: str) -> None:
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type(torch.ones)

    def describe(self) -> str:
        return f"method {self.name} of a tensor"

    def constant(self) -> Any:
        raise NotConstant("method of a tensor")

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.method(vm, self.name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__name__":
            return ConstantValue(self.name)
        if name == "__self__":
            return self.owner
        return super().getattr(vm, name)
