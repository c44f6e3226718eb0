"""NumPy's arrays and numbers: each a tensor of the graph that has its memory, and an array of ones of its layout, which NumPy is asked
about."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Callable, Hashable

import torch

from opmill_fake_tensors.symbols.node import SizeNode
from opmill_guards.guard import TypeIs
from opmill_guards.source import Attr, Source

from ..graph.versions import memory
from .base import MISSING, Machine, NotConstant, Value
from .constant import ConstantValue
from .fixed import fixed_value
from .iterators import STOP, ItemsIterator
from .number import SymbolicNumber
from .tensor import TensorValue

Array = Any
"""An array or number of NumPy's, which may be absent."""
#: dunder -> (name of the universal function, operands swapped)
OPERATORS: dict[str, tuple[str, bool]] = {}
OPERATORS["__divmod__"], OPERATORS["__rdivmod__"] = ("divmod", False), ("divmod", True)
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
    "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
for _name, _function in _BINARY.items():
    OPERATORS[f"__{_name}__"] = (_function, False)
    OPERATORS[f"__r{_name}__"] = (_function, True)
for _name, _function in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "neg": "negative",
    "pos": "positive", "abs": "absolute", "invert": "invert",
}.items():  # fmt: skip
    OPERATORS[f"__{_name}__"] = (_function, False)
IN_PLACE = {f"__i{name}__": function for name, function in _BINARY.items()}
#: What an array says of itself, and nothing but its layout decides.
FACTS = frozenset("shape ndim size dtype itemsize nbytes strides".split())
NUMBERS = frozenset("__bool__ __int__ __float__ __index__ __complex__".split())


def is_symbolic(fake: torch.Tensor) -> bool:
    """Whether sizes of a tensor are not assumed."""
    return any(type(n) is not int for n in (*fake.shape, *fake.stride()))


def sizes_now(numbers: Iterable[Array]) -> tuple[int, ...]:
    """Sizes, or strides, as they are at this call; nothing is assumed thereby. Those that only data tell as they could be."""
    return tuple(n if type(n) is int else n.node.hint if n.node.has_hint() else could_be(n.node) for n in numbers)


def could_be(node: SizeNode) -> int:
    """A size that only data tell, as NumPy is asked about it: no two of them are alike."""
    sizes, data = node.sizes, node.sizes.data()
    values = {name: 11 + 2 * data.index(name) if symbol.hint is None else symbol.hint for name, symbol in sizes.symbols.items()}
    return int(node.expr.evaluate(sizes.with_derived(values)))


OF_ITSELF = "it is about the memory of the array itself, of which a graph knows nothing"
ASKED_OUTSIDE = "ask the array outside of the compiled function, and hand over what it says"


class ArrayValue(Value):
    """``inner``: the tensor with its memory; ``like``: a real array, or number, of its layout at this call; ``stands_for``: where NumPy's
    own is a view that tensors have none of, the tensor that it shows and how often that had been written to. Such an array is read only
    inside; ``shows``: the array that it is a view of, and how many bytes behind the first item of that its own lies. ``of``: the array that
    it was taken of as a view, None where it has memory of its own, the tensor whose memory it has, MISSING where that is not known."""

    def __init__(
        self,
        inner: TensorValue,
        like: Array,
        obj: object = None,
        source: Source | None = None,
        stands_for: tuple[TensorValue, int] | None = None,
        shows: tuple[ArrayValue, int] | None = None,
        of: Array = MISSING,
    ) -> None:
        self.inner, self.like, self.obj, self.source, self.stands_for = inner, like, obj, source, stands_for
        self.shows, self.of = shows, of
        self.told_later = self.is_number and like.dtype.kind in "iuf"
        self.taken: tuple[int, list[Value]] | None = None
        """Of a mask: where it is true, and how often it had been written to."""
        self.counted: dict[tuple[int, object], Array] = {}
        """How many items ``numpy.bincount`` of it has, by how often it had been written to, and the least number that was asked for."""
        self.once = False
        """Whether it holds positions where a mask is true: none is there twice."""

    def python_type(self) -> type:
        return type(self.like)

    def real(self) -> object:
        return MISSING if self.obj is None else self.obj

    def constant(self) -> object:
        raise NotConstant(f"a NumPy {type(self.like).__name__}")

    def describe(self) -> str:
        return f"a NumPy {type(self.like).__name__}"

    @property
    def is_number(self) -> bool:
        return not hasattr(self.like, "__setitem__")

    def truth(self, vm: Machine) -> bool:
        known = self.inner.fake.numel() == 1 and fixed_value(vm, self.inner)
        return bool(known) if isinstance(known, torch.Tensor) else vm.truth(self.inner)

    def key(self, vm: Machine) -> Hashable:
        vm.unsupported("FE024", f"hash of {self.describe()}")

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if not callable(getattr(type(self.like), name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name.startswith("__"):
            found = self.special(vm, name, args)
            if found is not None:
                return found
        return vm.call_builtin(getattr(type(self.like), name), [self, *args], kwargs)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        if name in OPERATORS:
            function, swapped = OPERATORS[name]
            if args and not (isinstance(args[0], (ArrayValue, ConstantValue, SymbolicNumber)) or not args[0].symbolic):
                return ConstantValue(NotImplemented)
            return call(vm, function, [*args, self] if swapped else [self, *args])
        if name in IN_PLACE:
            return None if self.is_number else call(vm, IN_PLACE[name], [self, *args], out=self)
        if name in NUMBERS:
            known = known_number(vm, self)
            made_by = {"__bool__": bool, "__int__": int, "__index__": int, "__float__": float}.get(name)
            if known is not None and made_by is not None and (name != "__index__" or type(known) is int):
                return ConstantValue(made_by(known))
            return self.inner.method(vm, name, args, {})
        if name == "__len__" and not self.is_number:
            if not self.like.ndim:
                vm.throw(TypeError, "len() of unsized object")
            return vm.fresh(self.inner.fake.shape[0])
        if name in ("__getitem__", "__setitem__") and not self.is_number:
            return vm.call_builtin(getattr(type(self.like), name), [self, *args], {})
        if getattr(type(self.like), name, None) is None:
            return None
        vm.unsupported("FE085", f"{name} of {self.describe()}", "there is no program of torch for it")

    def as_told(self) -> object:
        return self.like if self.told_later else super().as_told()

    def as_operand(self, vm: Machine) -> Value:
        """Numbers are Python's for torch, and truths floats."""
        made_by = {"b": "__float__", "i": "__int__", "u": "__int__", "f": "__float__"}.get(self.like.dtype.kind) if self.is_number else None
        return self if made_by is None else self.dunder(vm, made_by, [])

    def as_subscript(self, vm: Machine) -> Value:
        """Arrays of integers, and masks, are tensors of such."""
        if self.is_number or self.stands_for is not None or not self.like.ndim or self.like.dtype.kind not in "ib":
            return self.as_operand(vm)
        return self.inner if self.like.dtype.kind == "b" else self.inner.method(vm, "to", [ConstantValue(torch.int64)], {})

    def getattr(self, vm: Machine, name: str) -> Value:
        if name in FACTS:
            return self.fact(vm, name)
        if name in ("T", "mT", "real", "imag"):
            function = {"T": "transpose", "mT": "matrix_transpose"}.get(name, name)
            return call(vm, function, [self])
        if name == "__class__":
            return vm.wrap(type(self.like))
        if name == "flat" and not self.is_number:
            return Flat(self)
        if name == "base" and (found := self.base(vm)) is not None:
            return found
        if name == "flags" and not is_symbolic(self.inner.fake):
            return Flags(self.like.flags)
        if not hasattr(self.like, name):
            vm.no_attribute(self, name, f"'{type(self.like).__module__}.{type(self.like).__name__}' object has no attribute {name!r}")
        if callable(getattr(type(self.like), name, None)):
            return super().getattr(vm, name)
        vm.unsupported("FE085", f"attribute {name} of {self.describe()}", OF_ITSELF, ASKED_OUTSIDE)

    def base(self, vm: Machine) -> Value | None:
        """What has the memory. None where that is not known."""
        if self.is_number or self.of is None:
            return ConstantValue(None)
        if isinstance(self.of, (ArrayValue, TensorValue)):
            return self.of.first(vm) if isinstance(self.of, ArrayValue) else self.of
        before: Array = self.obj
        if self.source is None or before is None or type(before.base) not in (type(None), type(self.like), torch.Tensor):
            return None
        return vm.wrap(before.base, Attr(self.source, "base"))

    def first(self, vm: Machine) -> Value | None:
        """The base of views of it: NumPy tells the first array of those that were taken of each other."""
        if isinstance(self.of, ArrayValue):
            return self.of.first(vm)
        if self.of is MISSING:
            before: Array = self.obj
            if self.source is None or before is None:
                return None
            if isinstance(before.base, type(self.like)):
                return self.base(vm)
            vm.guard(TypeIs(Attr(self.source, "base"), type(before.base)))
        return self

    def fact(self, vm: Machine, name: str) -> Value:
        fake, like = self.inner.fake, self.like
        if not is_symbolic(fake) or name in ("ndim", "dtype", "itemsize"):
            return vm.fresh(getattr(like, name))
        if name == "shape":
            return vm.fresh(tuple(fake.shape))
        if name == "strides":
            return vm.fresh(tuple(s * like.itemsize for s in fake.stride()))
        return vm.fresh(math.prod(fake.shape) * (like.itemsize if name == "nbytes" else 1))

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        made_here = self.source is None and self.obj is None and self.stands_for is None and not self.is_number
        if name == "shape" and made_here and not is_symbolic(self.inner.fake):
            other = call(vm, "reshape", [self, value])
            if isinstance(other, ArrayValue) and memory(other.inner.fake) == memory(self.inner.fake):
                self.inner, self.like, self.taken, self.once = other.inner, other.like, None, False
                return
        hint = "make another array (reshape, astype, view, .real), or assign outside of the compiled function"
        vm.unsupported("FE085", f"assignment to attribute {name} of {self.describe()}", "a graph has no such operation", hint)

    def iterate(self, vm: Machine) -> Value:
        if self.is_number or not self.like.ndim:
            vm.throw(
                TypeError, "iteration over a 0-d array" if not self.is_number else f"{type(self.like).__name__!r} object is not iterable"
            )
        count = int(self.inner.fake.shape[0])
        return ItemsIterator(lambda vm, i: self.special(vm, "__getitem__", [ConstantValue(i)]) if i < count else STOP)


class Flat(Value):
    """``a.flat``: the items in a row."""

    def __init__(self, array: ArrayValue) -> None:
        self.array = array

    def python_type(self) -> type:
        return type(sys.modules["numpy"].empty(0).flat)

    def m___getitem__(self, vm: Machine, key: Value) -> Value:
        return self.row(vm).method(vm, "__getitem__", [key], {})

    def m___setitem__(self, vm: Machine, key: Value, value: Value) -> Value:
        if not self.array.like.flags.c_contiguous or is_symbolic(self.array.inner.fake):
            hint = "assign to items of the array itself, or to those of a contiguous copy of it (numpy.ascontiguousarray)"
            vm.unsupported("FE085", "an assignment to NumPy's flat", "the items do not lie in a row", hint)
        return call(vm, "reshape", [self.array, ConstantValue(-1)]).method(vm, "__setitem__", [key, value], {})

    def m___len__(self, vm: Machine) -> Value:
        return self.array.getattr(vm, "size")

    def iterate(self, vm: Machine) -> Value:
        count = int(self.array.inner.fake.numel())
        return ItemsIterator(lambda vm, i: self.row(vm).method(vm, "__getitem__", [ConstantValue(i)], {}) if i < count else STOP)

    def row(self, vm: Machine) -> Value:
        """The items as an array of their own."""
        return self.array.method(vm, "flatten", [], {})


class Flags(Value):
    """``a.flags``: what they say of how the items lie."""

    def __init__(self, flags: Array) -> None:
        self.flags = flags

    def python_type(self) -> type:
        return type(self.flags)

    def getattr(self, vm: Machine, name: str) -> Value:
        if name not in CONTIGUITY:
            vm.unsupported("FE085", f"{name} among the flags of a NumPy array", OF_ITSELF, ASKED_OUTSIDE)
        return ConstantValue(getattr(self.flags, name))


CONTIGUITY = frozenset("c_contiguous f_contiguous contiguous fortran fnc forc".split())


def call(vm: Machine, function: str, args: list[Value], out: Value | None = None) -> Value:
    """A function of NumPy by its name."""
    return vm.call_builtin(getattr(sys.modules["numpy"], function), args, {} if out is None else {"out": out})


def known_number(vm: Machine, array: ArrayValue) -> int | bool | float | None:
    """The number that an array of one element holds at each call, where the program makes it of constants alone."""
    if array.like.dtype.kind not in "iubf" or array.inner.fake.numel() != 1 or (found := fixed_value(vm, array.inner)) is None:
        return None
    return found.item()


def torch_dtype(dtype: Array) -> torch.dtype | None:
    """torch's dtype for one of NumPy's; None for what tensors do not hold."""
    if dtype.names is not None or not dtype.isnative:
        return None
    return DTYPES.get(dtype.name)


HELD = ("uint16", "uint32")
"""What torch holds, and has hardly an operator for."""
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (*"bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128".split(), *HELD)
}


def is_computed_with(dtype: Array) -> bool:
    """Whether programs of torch compute with a dtype of NumPy's."""
    return torch_dtype(dtype) is not None and dtype.name not in HELD


def like_layout(dtype: Array, shape: tuple[int, ...], strides: tuple[int, ...], filled: int = 1) -> object:
    """An array of ones with this layout (strides in bytes, none below 0), or ``filled`` with another number."""
    np = sys.modules["numpy"]
    if 0 in shape:
        return np.ones(shape, dtype)
    extent = sum((n - 1) * stride for n, stride in zip(shape, strides)) // dtype.itemsize + 1
    return np.lib.stride_tricks.as_strided(np.full(extent, filled, dtype), shape, strides)


def like_tensor(fake: torch.Tensor, filled: int = 1) -> object:
    """An array with the layout of a tensor; a number for one without dimensions."""
    dtype = sys.modules["numpy"].dtype(str(fake.dtype).removeprefix("torch."))
    if not fake.dim():
        return dtype.type(filled)
    return like_layout(dtype, sizes_now(fake.shape), tuple(s * dtype.itemsize for s in sizes_now(fake.stride())), filled)


__all__ = [
    "Array",
    "ArrayValue",
    "is_computed_with",
    "is_symbolic",
    "known_number",
    "like_layout",
    "like_tensor",
    "sizes_now",
    "torch_dtype",
]
