"""Calls that are one step of the graph, by NumPy itself (`kernel`): functions that torch has no program of, or computes in another way."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from ...values.arrays import ArrayValue, sizes_now, torch_dtype
from ...values.assertions import may_demand
from ...values.base import Lazy, NotConstant, Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, SliceValue, TupleValue
from .asking import asked, refuse
from .kernel import STEPS, Told, encoded, operator
from .results import finished, write
from .sizes import assume, changing, settled, shared

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

#: Of those without a program of torch, the ones that are steps rather than read.
UNREAD = frozenset(
    "partition argpartition choose packbits unpackbits ravel_multi_index histogram2d polyfit i0 diagflat nanargmax nanargmin nanquantile "
    "nanpercentile linalg.eigh linalg.matrix_rank linalg.cond linspace logspace geomspace".split()
)
#: Those that data may make raise an exception: only the whole program can say what happens then.
RAISING = frozenset(
    "power ravel_multi_index choose histogram histogram2d quantile percentile nanquantile nanpercentile nanargmax nanargmin digitize take "
    "take_along_axis polyfit unravel_index linalg.eigh linalg.eigvalsh linalg.svd linalg.svdvals linalg.inv linalg.pinv "
    "linalg.solve linalg.cholesky linalg.matrix_rank linalg.cond".split()
)


def may_step(key: str, obj: object) -> bool:
    """Whether calls of this function may be steps."""
    if key.lstrip(".") in STEPS:
        return True
    if type(obj).__name__ != "ufunc":
        owner, _, name = key.partition(".")
        return name in ("reduce", "accumulate") and getattr(sys.modules["numpy"], owner, None) is getattr(obj, "__self__", None) is not None
    return getattr(sys.modules["numpy"], key, None) is obj


def stepped(vm: Interpreter, obj: Told, key: str, args: list[Value], kwargs: dict[str, Value], why: str, unit: bool = False) -> Value:
    """What the call gives. The graph ends, and ``why`` says so, where it cannot be a step."""
    if not may_step(key, obj) or ("where" in kwargs and type(obj).__name__ == "ufunc"):
        return refuse(vm, key, why)
    if type(obj).__name__ == "ufunc" and obj.nout > 1 and len(args) > obj.nin:
        return refuse(vm, key, why)
    want, likes = asked(vm, obj, key, args, kwargs, unit)
    if any(shared(want, likes)):
        return refuse(vm, key, why)
    made = step(vm, key, want, args, kwargs, why)
    result = finished(vm, key, want, made, [])
    given = changing(vm, [*args, *kwargs.values()])
    return settled(vm, result, lambda sizes: asked(vm, obj, key, args, kwargs, unit, sizes), given)


def step(vm: Interpreter, key: str, want: Told, args: list[Value], kwargs: dict[str, Value], why: str) -> Value:
    """The tensor, or the tensors, that the step gives; ``want``: such results of NumPy's."""
    np = sys.modules["numpy"]
    several = isinstance(want, (tuple, list))
    wants = list(want) if several else [want]
    if any(not isinstance(w, (np.ndarray, np.generic)) or torch_dtype(w.dtype) is None for w in wants):
        return refuse(vm, key, why)
    if key.lstrip("!.") in RAISING and not may_demand(vm):
        return refuse(vm, key, why)
    writer = Writer(vm)
    try:
        told = [[writer.written(a) for a in args], {"named": {k: writer.written(v) for k, v in kwargs.items()}}]
    except (NotImplementedError, NotConstant):
        return refuse(vm, key, why)
    if not writer.arrays or any(a.inner.fake.requires_grad for a in writer.arrays):
        return refuse(vm, key, why)
    sizes = [size for w in wants for size in sizes_of(writer.arrays, w.shape)]
    results = " ".join(f"{w.dtype.name}:{w.ndim}" for w in wants)
    tensors: list[Value] = [a.inner for a in writer.arrays]
    rest: list[Value] = [ConstantValue(json.dumps(told)), ListValue(list(map(vm.fresh, sizes))), ConstantValue(results)]
    made = vm.recorder.call_function(vm, operator(), [ConstantValue(key), ListValue(tensors), *rest], {})
    assert isinstance(made, SequenceValue)
    return TupleValue(list(made.values(vm))) if several else made.values(vm)[0]


class Writer:
    """Arguments as the step is told them; ``arrays`` are those among them."""

    def __init__(self, vm: Interpreter) -> None:
        self.vm, self.arrays = vm, list[ArrayValue]()

    def written(self, value: Value | Lazy) -> Told:
        """One of them."""
        if type(value) is Lazy:
            value = self.vm.wrap(value.obj, value.source)
        if isinstance(value, ArrayValue):
            self.arrays.append(value)
            return {"number" if value.is_number else "array": len(self.arrays) - 1}
        if isinstance(value, SymbolicNumber):
            assume(self.vm, [value])
            return value.constant()
        if isinstance(value, (TupleValue, ListValue)):
            items = [self.written(v) for v in value.items]
            return {"tuple": items} if isinstance(value, TupleValue) else items
        if isinstance(value, SliceValue):
            return {"slice": [self.written(v) for v in value.parts]}
        return encoded(self.vm.plain(value))


def sizes_of(arrays: list[ArrayValue], shape: tuple[int, ...]) -> list[Told]:
    """The sizes of a result; those that may be sizes of an array that are not assumed, as these: whether they are, is asked for others."""
    known = {now: n for a in arrays for n, now in zip(a.inner.fake.shape, sizes_now(a.inner.fake.shape)) if type(n) is not int}
    return [known.get(n, n) for n in shape]


def changed(vm: Interpreter, key: str, args: list[Value], kwargs: dict[str, Value], why: str) -> None:
    """A function that writes to its first array, as a step that gives what a copy of it becomes."""
    owner = args[0]
    if not isinstance(owner, ArrayValue) or owner.stands_for is not None:
        refuse(vm, key, why)
    write(vm, owner, step(vm, f"!{key}", owner.like, args, kwargs, why))


__all__ = ["STEPS", "UNREAD", "changed", "may_step", "stepped"]
