"""Tensors: a node of the recorded graph and a fake that knows its shape."""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Hashable, TypeGuard, cast

import torch

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.symbolic import item_at
from opmill_fake_tensors.wrappers import takes_operators
from opmill_guards import instance_dict
from opmill_guards.source import Attr, InstanceDict, Item, Pinned, Source

from ..graph.beginnings import assume_beginnings
from ..graph.failing import UNCOUNTED
from ..graph.leaves import refused_flag
from ..interpretation.optimizing import in_optimizer
from .assertions import demanded_of, may_demand, raising
from .base import MISSING, Lazy, Machine, NotConstant, Value
from .constant import ConstantValue
from .data_dependent import LateFloat, LateTruth
from .floating import FloatNumber, as_float
from .iterators import STOP, ItemsIterator
from .mapping import DictValue
from .new_data import NewData, may_be_given, take
from .sequence import ListValue, SliceValue, TupleValue
from .tensor_members import attribute_of_tensors, of_instances, refuse_number
from .wrapped import may_put_on

#: dunder -> (function recorded, operands swapped)
OPERATORS: dict[str, tuple[object, bool]] = {}
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

#: Tensors of more elements are no lists of numbers of a graph.
LISTED = 32
#: Methods that leave the tensor world or keep a reference to the Python object: never recorded.
REFUSED = frozenset(
    "storage untyped_storage data_ptr const_data_ptr mutable_data_ptr share_memory_ pin_memory __dlpack__ cpu_offload "
    "_is_view is_set_to __reduce__ __reduce_ex__".split()
)


#: Methods that the library has rows for.
WITH_ROWS = frozenset("backward retain_grad register_hook register_post_accumulate_grad_hook as_subclass numpy __array__ narrow".split())
#: Methods whose answer a fake has by itself.
QUESTIONS = frozenset("size dim stride numel nelement ndimension is_floating_point element_size storage_offset is_conj is_neg".split())
SCALED = {
    f"{name}{suffix}": (by, combined, then + suffix)
    for name, by, combined, then in (
        ("addcmul", "value", "__mul__", "add"),
        ("addcdiv", "value", "__truediv__", "add"),
        ("add", "alpha", "", "add"),
        ("sub", "alpha", "", "sub"),
    )
    for suffix in ("", "_")
}
"""Methods that multiply by a factor: the keyword that gives it, the operator on the product and the second tensor, the method on the
result."""
COMPUTED_IN = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""Types of which operators that take several steps round the last."""
_WRITTEN_OUT = {"resolve_conj": "is_conj", "resolve_neg": "is_neg"}
"""Methods that copy a tensor which is marked so, and give any other itself."""


#: Classes that tensors of any class are instances of where an attribute says so.
SAID: dict[object, str] = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}


OF_OBJECTS = frozenset("grad_fn _grad_fn _backward_hooks __dict__ _version _base retains_grad output_nr _cdata _python_dispatch".split())
"""Attributes that belong to the tensor object, not to its value."""


class TensorValue(Value):
    """A tensor in the captured program. ``node`` is made when first used for tensors that existed before the call."""

    def __init__(self, fake: Any, node: Any = None, cls: type = torch.Tensor, obj: Any = None, source: Source | None = None) -> None:
        self.fake = fake
        self.node = node
        self.cls = cls
        self.obj = obj
        self.source = source
        self.below = False
        """Whether it is the tensor below one of a class that overrides torch's functions."""
        self.held = False
        """Whether it is found in a module that is tracked."""
        self.of_array = self.of_number = False
        """Whether it is below an array of before the call."""
        self.scalar: Any = None
        """The float that it stands for, where it is an input that does."""
        self.new_grad: Value | None = None
        """What captured code assigned to ``grad``."""
        self.unhooked: TensorValue | None = None
        """Where there is a hook on it: the tensor below the hooks."""
        self.hooked_at: int | None = None
        """The place where the first hook was put on it."""
        self.retained_at: int | None = None
        """The place where captured code said that its gradient is to be kept, which it made itself."""
        self.given: NewData | None = None
        """The memory that it gets when the graph has run."""
        self.late_leaf = False
        """Whether it is a parameter that captured code made: a leaf of the program, which the graph computes without a history."""
        self.aliased = False
        """Whether the graph is given an alias, which keeps the memory of before."""
        self._attrs: DictValue | None = None

    def __repr__(self) -> str:
        return f"Tensor({self.node or self.source})"

    def python_type(self) -> type:
        return self.cls

    def real(self) -> object:
        return MISSING if self.obj is None else self.obj

    def describe(self) -> str:
        return f"tensor {list(self.fake.shape)}"

    def current(self, vm: Machine) -> TensorValue:
        """The tensor as a step of the graph reads it: where its data was assigned, what it was given."""
        if self.late_leaf and torch.is_grad_enabled():
            why = "the gradient of what is computed of it ends at the parameter, which the graph only gives back"
            vm.unsupported("FE012", "a use of a parameter that captured code made", why, "make it outside")
        return self if self.given is None else self.given.current(vm)

    def like_before(self) -> TensorValue:
        """The same input, whatever becomes of this one."""
        return TensorValue(self.fake, self.node, self.cls, self.obj, self.source)

    def key(self, vm: Machine) -> Hashable:
        vm.guard_object(self)
        return self

    def truth(self, vm: Machine) -> bool:
        if vm.recorder.modes.on:
            return vm.truth(self.method(vm, "__bool__", [], {}))
        one = isinstance(self.fake, FakeTensor) and not self.is_known() and all(type(n) is int and n == 1 for n in self.fake.shape)
        if one and may_demand(vm) and (way := raising(vm)) is not None:
            mask = self if self.fake.dtype is torch.bool else self.method(vm, "ne", [ConstantValue(0)], {})
            return demanded_of(vm, mask, way)
        return bool(self.method(vm, "__bool__", [], {}).constant())

    @property
    def attrs(self) -> DictValue:
        """What the program put on the object."""
        if self._attrs is None and self.obj is None:
            self._attrs = DictValue({})
            self._attrs.part_of = self
        elif self._attrs is None:
            source, table = InstanceDict(self.source), instance_dict(self.obj)
            items: dict[object, tuple[Value, object]] = {k: (ConstantValue(k), Lazy(v, Item(source, k))) for k, v in table.items()}
            self._attrs = DictValue(items, dict, source, table)
        return self._attrs

    def put_on(self) -> dict[str, Value]:
        """What captured code put on a tensor that it made."""
        return {} if self._attrs is None or self.obj is not None else {key: value for key, (_, value) in self._attrs.items.items()}

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__class__":
            return vm.wrap(self.cls)
        if vm.recorder.modes.on and (descriptor := attribute_of_tensors(name)) is not None:
            return vm.call_builtin(descriptor.__get__, [self], {})
        if name == "data" and self.given is not None:
            return self.given.plain.getattr(vm, name)
        if name in ("grad", "_grad"):
            if self.new_grad is not None:
                return self.new_grad
            if self.obj is None and self.retained_at is None and self.fake.requires_grad:
                vm.recorder.said.ask(vm, getattr, [self.fake, name], {})
            if self.obj is None:
                return ConstantValue(None)
            if not self.obj.is_leaf:
                vm.unsupported(
                    "FE031", "the gradient of a tensor that is no leaf", "whether one is retained belongs to the object, not to its value"
                )
            return vm.wrap(self.obj.grad, Attr(self.source, name))
        if takes_operators(self.cls) and (found := vm.added(self, name)) is not MISSING:
            return found
        if (found := self.own(vm, name)) is not MISSING:
            return found
        if name == "retains_grad" and (self.obj is None or self.obj.is_leaf):
            return ConstantValue(self.retained_at is not None)
        if name in OF_OBJECTS and (name != "output_nr" or self.fake.requires_grad):
            if name in ("grad_fn", "_grad_fn") and self.fake.grad_fn is None:
                return ConstantValue(None)
            vm.unsupported("FE031", f"attribute {name} of a tensor", "it belongs to the tensor object, not to its value")
        if not of_instances(torch.Tensor, name):
            if of_instances(self.cls, name):
                vm.unsupported("FE031", f"attribute {name} of a {self.cls.__qualname__}", "what a class of tensors adds is not captured")
            vm.no_attribute(self, name, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if callable(getattr(torch.Tensor, name)):
            return TensorMethod(self, name)
        owner = next(base for base in self.cls.__mro__ if name in vars(base))
        raw = vars(owner)[name]
        if not hasattr(type(raw), "__get__"):
            return vm.wrap(raw, vm.class_source(owner, name, raw))  # what is said of the class
        return vm.recorder.attribute(vm, self, name)

    def own(self, vm: Machine, name: str) -> Value:
        """What the program put on the object under this name, or MISSING; what a tensor has anyway is not assumed to be hidden by
        nothing."""
        if of_instances(torch.Tensor, name) and (self.obj is None or name not in self.obj.__dict__):
            return MISSING
        return MISSING if self.obj is None and self._attrs is None else self.attrs.lookup(vm, name)

    def says(self, vm: Machine, mark: str) -> bool:
        """Whether an attribute says that it is a parameter or a buffer."""
        found = self.own(vm, mark)
        return found is not MISSING and vm.truth(found)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if vm.recorder.modes.on and attribute_of_tensors(name) is not None:
            vm.unsupported("FE029", f"assignment to attribute {name} of a tensor under a torch function mode")
        if takes_operators(self.cls) and name != "grad" and (name in SAID.values() or not may_put_on(self, name)):
            why = "it may say what operators on the tensor do"
            vm.unsupported("FE032", f"assignment to attribute {name} of a {self.cls.__qualname__}", why, "make a new tensor")
        if name == "data" and isinstance(value, TensorValue) and may_be_given(vm, self, value):
            take(vm, self, value)
            return
        if name == "data" and isinstance(value, TensorValue):
            vm.unsupported("FE032", "assignment to tensor.data", "the tensor would change its memory", "use copy_() under no_grad")
        if name == "requires_grad" and type(value) is ConstantValue and type(value.value) is bool:
            if value.value and (refused := refused_flag(self.fake if self.obj is None else self.obj)) is not None:
                vm.throw(RuntimeError, refused)
            self.method(vm, "requires_grad_", [value], {})
            return
        if name == "grad" and self.obj is not None and self.takes_gradient(value):
            self.new_grad = value
            vm.effects.assigned(self, ConstantValue(name), value)
        elif of_instances(self.cls, name) or name == "__dict__" or "__setattr__" in vars(self.cls):
            vm.unsupported("FE032", f"assignment to attribute {name} of a tensor")
        else:
            self.attrs.store(vm, ConstantValue(name), value)

    def delattr(self, vm: Machine, name: str) -> None:
        if of_instances(self.cls, name) or self.own(vm, name) is MISSING:
            vm.unsupported("FE032", f"deletion of attribute {name} of a tensor")
        self.attrs.method(vm, "__delitem__", [ConstantValue(name)], {})

    def takes_gradient(self, value: Value) -> bool:
        """Whether ``value`` may become the gradient: None, or a tensor that torch does not refuse."""
        if isinstance(value, TensorValue):
            new, own = value.fake, self.fake
            plain = all(type(n) is int for n in (*new.shape, *own.shape)) and value is not self
            return plain and new.shape == own.shape and new.dtype == own.dtype and new.device == own.device
        return isinstance(value, ConstantValue) and value.value is None

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if not callable(getattr(torch.Tensor, name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if vm.recorder.modes.on:
            asking = getattr(torch.Tensor, name)
            return vm.call(vm.wrap(asking, Pinned(asking, name)), [self, *args], kwargs)
        if vm.recorder.overriding and any(map(is_overriding, args)):
            return vm.call_builtin(getattr(torch.Tensor, name), [self, *args], kwargs)
        if name in REFUSED:
            vm.unsupported("FE033", f"method {name} of a tensor", "it is not part of a graph of tensor operations")
        refuse_number(vm, name, args, kwargs)
        if name in ("__getitem__", "__setitem__") and args and type(args[0]) is TupleValue:
            args = [stacked(vm, self, args[0]), *args[1:]]
        if name in WITH_ROWS:
            return vm.call(vm.wrap(getattr(torch.Tensor, name)), [self, *args], kwargs)
        if name == "__getitem__" and (parts := indexed_by_numbers(vm, self, args[0])) is not None:
            return selected(vm, self, *parts)
        if name == "__getitem__" and vm.recorder.index_by_tensors and (indices := tensor_indices(vm, self, args[0])) is not None:
            return vm.recorder.call_function(vm, torch.ops.aten.index.Tensor, [self, ListValue(list(indices))], {})
        if name in OPERATORS and not kwargs:
            function, swapped = OPERATORS[name]
            if swapped and function is operator.truediv and late_factor(vm, args[0]) is not None:
                return self.method(vm, "reciprocal", [], {}).method(vm, "__mul__", args, {})  # which is how torch divides a number
            if swapped and function is operator.pow:
                function = torch.pow  # what a graph writes as an operator raises -1 ** x to a power first
            return vm.recorder.call_function(vm, function, [*args, self] if swapped else [self, *args], {})
        if name == "__setitem__" and (parts := indexed_by_numbers(vm, self, args[0])) is not None:
            vm.recorder.call_function(vm, operator.setitem, [selected(vm, self, *parts), ConstantValue(...), args[1]], {})
            return ConstantValue(None)
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
        if name == "is_inference":
            return ConstantValue(self.is_inference(vm))
        if name in QUESTIONS:
            if name == "storage_offset":
                assume_beginnings(vm, self)
            return vm.recorder.evaluate(vm, getattr(self.fake, name), args, kwargs)
        if name in _WRITTEN_OUT:
            return self.method(vm, "clone", [], {}) if getattr(self.fake, _WRITTEN_OUT[name])() else self
        if name in ("__int__", "__index__") and not args and self.is_integer():
            return self.method(vm, "item", [], {})
        if name in ("item", "__float__") and not args and (late := self.late(vm, name)) is not None:
            return late
        if name == "tolist" and not self.is_known() and self.is_integer(most=LISTED):
            return self.numbers(vm)
        if name == "tolist" and not args and self.is_known():
            return listed(self.fake.tolist())
        if name == "tolist":
            vm.unsupported("FE030", "tolist of a tensor", "the result depends on data")
        if name == "type" and not args and not kwargs:
            return ConstantValue(self.fake.type())
        if name == "detach_" and self.obj is not None and self.obj._is_view():
            vm.unsupported("FE032", "method detach_ of a view", "eager refuses it", "use detach()")
        if self.given is not None and name in UNCOUNTED and not self.requires_as_before(name, args):
            why = "it changes what the tensor itself is, and the graph has what stands for it"
            vm.unsupported("FE032", f"method {name} of a tensor whose data was assigned", why)
        factor = SCALED.get(name)
        if factor is not None and are_floats(args) and are_floats([self]) and (by := late_factor(vm, kwargs.get(factor[0]))) is not None:
            return self.scaled(vm, by, args, {k: v for k, v in kwargs.items() if k != factor[0]}, factor)
        if name == "new" and len(args) == 1 and not kwargs and args[0].python_type() is torch.Size:
            return self.method(vm, "new_empty", args, {})  # a tuple would be numbers
        return vm.recorder.call_method(vm, name, [self, *args], kwargs)

    def requires_as_before(self, name: str, args: list[Value]) -> bool:
        """Whether a call of ``requires_grad_`` leaves the tensor as it is."""
        wanted = args[0] if args else ConstantValue(True)
        return name == "requires_grad_" and type(wanted) is ConstantValue and wanted.value == self.fake.requires_grad

    def scaled(
        self,
        vm: Machine,
        factor: LateFloat | FloatNumber | TensorValue,
        args: list[TensorValue],
        kwargs: dict[str, Value],
        parts: tuple[str, str, str],
    ) -> Value:
        """A method that takes a factor, where that is a number that is not assumed: multiplied first, as the method itself does, in the
        type in which that computes: what it gives is rounded once."""
        _, combined, then = parts
        own = common_dtype([self, *args])
        wide = COMPUTED_IN.get(own, own)
        if not combined and wide is not own and self.fake.device.type == "cpu":  # where these methods round their factor, too
            factor = factor.of_dtype(vm, own) if isinstance(factor, TensorValue) else vm.recorder.scalars.assigned(factor, own)
        product = args[0].of_dtype(vm, wide).method(vm, "__mul__", [factor], {})
        if combined:
            product = product.method(vm, combined, [args[1].of_dtype(vm, wide)], {})
        if wide is own or then.endswith("_"):
            return self.method(vm, then, [product], kwargs)
        return self.of_dtype(vm, wide).method(vm, then, [product], kwargs).method(vm, "to", [ConstantValue(own)], {})

    def of_dtype(self, vm: Machine, dtype: torch.dtype) -> TensorValue:
        """The same numbers in this type; itself where they are."""
        return self if self.fake.dtype is dtype else cast(TensorValue, self.method(vm, "to", [ConstantValue(dtype)], {}))

    def first_use(self) -> int | None:
        """The place where a tensor of captured code is used first. What listens to its gradient natively must see the gradients of all
        uses: these have to come after the graph, whose results need not be computed from each other for autograd."""
        users = () if self.obj is not None or self.node is None else self.node.users
        return min((user.meta["place"] for user in users if "place" in user.meta), default=None)

    def is_inference(self, vm: Machine) -> bool:
        if self.obj is None and torch.is_inference_mode_enabled():
            why = "what is made in inference mode is recorded as if it were made under no_grad"
            vm.unsupported("FE033", "method is_inference of a tensor", why, place=vm.recorder.inference.began)
        if self.obj is None and vm.recorder.inference.made(self.fake):
            return True
        if self.obj is None and any(each.obj is not None and each.obj.is_inference() for each in vm.recorder.by_fake.values()):
            vm.unsupported("FE033", "method is_inference of a tensor", "views of tensors of inference mode are such, too")
        return self.obj is not None and bool(self.obj.is_inference())

    def late(self, vm: Machine, name: str) -> Value | None:
        """The float or truth that it holds, which is read when the graph has run; None for what is no such number."""
        dtype = self.fake.dtype
        known = not isinstance(self.fake, FakeTensor) or self.fake.is_known()
        if (
            known
            or not (vm.recorder.counts or in_optimizer(vm))
            or dtype.is_complex
            or any(type(n) is not int or n != 1 for n in self.fake.shape)
        ):
            return None
        if name == "item" and not dtype.is_floating_point and dtype is not torch.bool:
            return None
        plain = self.method(vm, "detach", [], {})
        if self.fake.dim():
            plain = plain.method(vm, "reshape", [TupleValue([])], {})
        if dtype in (torch.bool, torch.float64):
            plain = plain.method(vm, "clone", [], {})  # what it holds now, whatever is written later
        if name == "item" and dtype is torch.bool:
            return LateTruth(vm, plain)
        double = dtype is torch.float64
        return LateFloat(vm, plain if double else plain.method(vm, "to", [ConstantValue(torch.float64)], {}), single=not double)

    def is_known(self) -> bool:
        """Whether its values are known at the capture."""
        return isinstance(self.fake, FakeTensor) and self.fake.is_known()

    def is_integer(self, most: int = 1) -> bool:
        """Whether it holds integers, ``most`` at most."""
        fake = self.fake
        kind = not (fake.is_floating_point() or fake.is_complex() or fake.dtype is torch.bool)
        return kind and all(type(n) is int for n in fake.shape) and fake.dim() <= 1 and fake.numel() <= most

    def numbers(self, vm: Machine) -> Value:
        """The list of them, or the one where there are no dimensions."""
        if not self.fake.dim():
            return self.method(vm, "item", [], {})
        return ListValue(
            [
                self.method(vm, "select", [ConstantValue(0), ConstantValue(i)], {}).method(vm, "item", [], {})
                for i in range(self.fake.shape[0])
            ]
        )

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if takes_operators(self.cls) and (found := vm.added(self, name)) is not MISSING:
            return vm.call(found, args, {})
        refuse_number(vm, name, args, {})
        if name in ("__getitem__", "__setitem__"):
            args = [args[0].as_subscript(vm), *(value.as_operand(vm) for value in args[1:])]
        elif name in OPERATORS and args:
            args = [value.as_operand(vm) for value in args]
        if name in OPERATORS and args and not is_overriding(args[0]) and not vm.recorder.is_operand(args[0]):
            return ConstantValue(NotImplemented)
        if not callable(getattr(torch.Tensor, name, None)):
            return None
        return self.method(vm, name, args, {})

    def as_bound(self, vm: Machine) -> Value:
        reads = vm.recorder.counts and not self.is_known() and self.is_integer()
        return self.method(vm, "item", [], {}) if reads else self

    def iterate(self, vm: Machine) -> Value:
        if vm.recorder.modes.on:
            return self.method(vm, "__iter__", [], {})
        if self.fake.dim() == 0:
            vm.throw(TypeError, "iteration over a 0-d tensor")
        rows = self.method(vm, "unbind", [ConstantValue(0)], {})
        assert isinstance(rows, TupleValue)
        return ItemsIterator(lambda vm, i: rows.item(vm, i) if i < len(rows.items) else STOP, type(iter(())))


def listed(items: object) -> Value:
    """A new list, of lists, of numbers."""
    return ListValue(list(map(listed, items))) if isinstance(items, list) else ConstantValue(items)


def late_factor(vm: Machine, value: Value | None) -> LateFloat | FloatNumber | TensorValue | None:
    """A factor whose value is no part of the graph: such a number, or a tensor that torch takes for one."""
    value = value if value is None else as_float(vm, value)
    if isinstance(value, (LateFloat, FloatNumber)):
        return value
    if not isinstance(value, TensorValue) or not value.fake.is_floating_point() or value.fake.dim() or value.is_known():
        return None
    return None if value.fake.requires_grad else value


def common_dtype(values: list[TensorValue]) -> torch.dtype:
    """The type that floats have together: those without dimensions count where all are such."""
    counted = [value.fake for value in values if value.fake.dim()] or [value.fake for value in values]
    return functools.reduce(torch.promote_types, (fake.dtype for fake in counted))


def are_floats(values: list[Value]) -> TypeGuard[list[TensorValue]]:
    """Whether all are tensors of real numbers that are not integers."""
    return all(isinstance(value, TensorValue) and value.fake.is_floating_point() for value in values)


def is_overriding(value: object) -> bool:
    """Whether it is a tensor whose class is asked what torch's functions mean."""
    return getattr(value, "inner", None).__class__ is TensorValue


def indexed_by_numbers(vm: Machine, owner: TensorValue, key: Value) -> tuple[list[Value], dict[int, Value]] | None:
    """The parts of a subscript with ``:`` for each integer that is not assumed, and these integers by place. None where there are none, or
    where a tensor among the parts decides which dimension is whose."""
    parts: list[Any] = list(key.values(vm)) if isinstance(key, TupleValue) else [key]
    numbers: dict[int, Value] = {}
    for k, part in enumerate(parts):
        if type(part) is Lazy:
            part = parts[k] = vm.wrap(part.obj, part.source)
        if (
            isinstance(part, TensorValue)
            and not vm.recorder.index_by_tensors
            and vm.recorder.counts
            and part.fake.dim() == 0
            and part.is_integer()
        ):
            part = part.method(vm, "item", [], {})
        if part.symbolic:
            numbers[k] = part
            parts[k] = SliceValue(*[ConstantValue(None)] * 3)
    plain = all(
        isinstance(p, SliceValue) or (isinstance(p, ConstantValue) and type(p.value) in (int, type(None), type(...))) for p in parts
    )
    return (parts, numbers) if numbers and plain else None


def stacked(vm: Machine, owner: TensorValue, key: TupleValue) -> TupleValue:
    """A subscript with one tensor for each list of positions of which some are tensors: torch reads such a list item by item."""
    parts, told = list(key.values(vm)), key
    kind: dict[str, Value] = {"dtype": ConstantValue(torch.int64), "device": ConstantValue(owner.fake.device)}
    for k, part in enumerate(parts):
        items = part.values(vm) if isinstance(part, (ListValue, TupleValue)) else []
        if any(is_position(owner, item) for item in items) and all(is_position(owner, item) or is_plain_int(item) for item in items):
            made = [vm.recorder.call_function(vm, torch.tensor, [each], kind) if is_plain_int(each) else each for each in items]
            parts[k] = vm.recorder.call_function(vm, torch.stack, [ListValue(made)], {})
            told = TupleValue(parts)
    return told


def is_position(owner: TensorValue, item: Value) -> bool:
    """Whether it is a tensor that holds one position."""
    return type(item) is TensorValue and item.fake.dim() == 0 and item.fake.dtype is torch.int64 and item.fake.device == owner.fake.device


def is_plain_int(item: Value) -> bool:
    """Whether it is an integer that is known."""
    return type(item) is ConstantValue and type(item.value) is int


def selected(vm: Machine, owner: TensorValue, parts: list[Value], numbers: dict[int, Value]) -> Value:
    """The view of ``owner`` that a subscript with these numbers in it shows."""
    if len(parts) == 1 and vm.recorder.counts:
        return vm.recorder.call_function(vm, item_at, [owner, numbers[0]], {})
    used = sum(1 for p in parts if isinstance(p, SliceValue) or (isinstance(p, ConstantValue) and type(p.value) is int))
    dims: dict[int, int] = {}
    dim = 0
    for k, part in enumerate(parts):
        dims[k] = dim
        if isinstance(part, ConstantValue) and part.value is ...:
            dim += owner.fake.dim() - used
        elif not (isinstance(part, ConstantValue) and type(part.value) is int):
            dim += 1
    out: Value = owner
    if len(parts) > len(numbers):
        out = vm.recorder.call_function(vm, operator.getitem, [owner, TupleValue(parts)], {})
    for k in sorted(numbers, reverse=True):
        out = vm.recorder.call_function(vm, torch.select, [out, ConstantValue(dims[k]), numbers[k]], {})
    return out


def tensor_indices(vm: Machine, owner: TensorValue, key: Value) -> list[Value] | None:
    """The parts of a subscript as tensors; None when one is neither a tensor nor an integer."""
    parts = key.values(vm) if isinstance(key, TupleValue) else [key]
    out: list[Value] = []
    for part in parts:
        if isinstance(part, ConstantValue) and isinstance(part.value, int):
            kind: dict[str, Value] = {"dtype": ConstantValue(torch.int64), "device": ConstantValue(owner.fake.device)}
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

    def constant(self) -> object:
        raise NotConstant("method of a tensor")

    def call(self, vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.method(vm, self.name, args, kwargs)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name == "__name__":
            return ConstantValue(self.name)
        if name == "__self__":
            return self.owner
        return super().getattr(vm, name)
